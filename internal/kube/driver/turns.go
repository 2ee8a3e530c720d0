package driver

import (
	"context"
	"fmt"
	"sync"
)

// turns let one at a time work on a claim. The kubelet asks for several claims at once, and a claim that waits for memory must not
// hold up the one that gives it back.
type turns struct {
	mu sync.Mutex
	of map[string]*turn
}

type turn struct {
	busy chan struct{} // holds one element while somebody works on the claim
	want int
}

// take waits for the turn of a claim. The caller calls done once it has worked.
func (t *turns) take(ctx context.Context, claim string) (done func(), err error) {
	t.mu.Lock()
	if t.of == nil {
		t.of = map[string]*turn{}
	}
	own := t.of[claim]
	if own == nil {
		own = &turn{busy: make(chan struct{}, 1)}
		t.of[claim] = own
	}
	own.want++
	t.mu.Unlock()
	select {
	case own.busy <- struct{}{}:
		return func() { <-own.busy; t.leave(claim, own) }, nil
	case <-ctx.Done():
		t.leave(claim, own)
		return nil, fmt.Errorf("an earlier call for this claim has not ended: %w", context.Cause(ctx))
	}
}

func (t *turns) leave(claim string, own *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if own.want--; own.want == 0 {
		delete(t.of, claim)
	}
}
