package local

import (
	"context"
	"sync"

	"weft.dev/weft/internal/agent"
)

// asker asks the agent of this process over its control socket, one question at a time.
type asker struct {
	ctx context.Context
	dir string

	mu     sync.Mutex
	client *agent.Client // nil after a fault
}

func newAsker(ctx context.Context, dir string) (*asker, error) {
	client, err := agent.Dial(ctx, dir)
	return &asker{ctx: context.WithoutCancel(ctx), dir: dir, client: client}, err
}

// ask asks one question. After a fault of the connection the next question opens a new one.
func (a *asker) ask(r agent.Request) (agent.Response, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.client == nil {
		client, err := agent.Dial(a.ctx, a.dir)
		if err != nil {
			return agent.Response{}, err
		}
		a.client = client
	}
	answer, err := a.client.Ask(r)
	if err != nil && answer.Error == nil {
		_ = a.client.Close() // it is of no use any more
		a.client = nil
	}
	return answer, err
}

// allocate asks on a connection of its own, since the answer may take as long as memory needs to come free.
func (a *asker) allocate(ctx context.Context, s *agent.Spec) (agent.Response, error) {
	client, err := agent.Dial(ctx, a.dir)
	if err != nil {
		return agent.Response{}, err
	}
	defer context.AfterFunc(ctx, func() { _ = client.Close() })() // a question that is given up
	defer func() { _ = client.Close() }()                         // it was answered
	return client.Ask(agent.Request{Op: agent.OpAllocate, Spec: s})
}

func (a *asker) close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.client == nil {
		return nil
	}
	return a.client.Close()
}
