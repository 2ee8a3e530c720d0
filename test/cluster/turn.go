package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// turnFile is locked by the process whose tests have the machine's one cluster, also between two that it brings up.
const turnFile = "/run/weft-cluster.turn"

// inTurn, in the environment, says that a parent has the turn.
const inTurn = "WEFT_CLUSTER_TURN"

// turn is this process's own: how many times it has been taken.
var turn struct {
	sync.Mutex
	taken int
	free  func()
}

// Turn waits until no other process has the cluster of this machine, at most as long as wait says, and keeps it for this
// process until release. Up takes a turn by itself; tests that bring up several clusters take one for all of them. The error
// is ErrUp when the wait was too short.
func Turn(ctx context.Context, wait time.Duration) (release func(), err error) {
	if os.Getenv(inTurn) != "" {
		return func() {}, nil
	}
	turn.Lock()
	defer turn.Unlock()
	if turn.taken == 0 {
		bounded, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		turn.free, err = lock(bounded, turnFile, func() {})
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			return nil, fmt.Errorf("%w, or is about to be, by the tests of another process", ErrUp)
		}
		if err != nil {
			return nil, err
		}
	}
	turn.taken++
	return sync.OnceFunc(func() {
		turn.Lock()
		defer turn.Unlock()
		if turn.taken--; turn.taken == 0 {
			turn.free()
		}
	}), nil
}
