package agent

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/arbiter"
	"weft.dev/weft/internal/wire"
)

// obey takes each grant until it is asked back, and asks again, until the connection ends.
func (p *process) obey() {
	var epoch uint64
	for err := p.trySend(&wire.Request{}); err == nil; {
		var m wire.Message
		if m, err = p.try(patient); m == nil {
			return
		}
		switch m := m.(type) {
		case *wire.Grant:
			epoch = m.Epoch
		case *wire.Drop:
			if p.trySend(&wire.Released{Epoch: epoch, Launches: 1}) != nil {
				return
			}
			err = p.trySend(&wire.Request{})
		}
	}
}

// obeys has the process obey beside the test, until the test ends.
func (p *process) obeys() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.obey()
	}()
	p.Cleanup(func() {
		_ = unix.Shutdown(p.fd, unix.SHUT_RDWR) // closing it would not wake who waits
		<-done
	})
}

// TestCrossing: a job that asks for what was granted to it ahead at that moment has waited, and what it lost by that is booked.
func TestCrossing(t *testing.T) {
	r := start(t, Options{Arbiter: arbiter.Options{Loss: 0.9}})
	high := hello(t, r.job(Spec{Name: "high"}).Socket, wire.Hello{GPUs: 1})
	low := hello(t, r.job(Spec{Name: "low", Class: Class(arbiter.BestEffort)}).Socket, wire.Hello{GPUs: 1})
	held := high.request()
	low.obeys()
	for range 100 {
		before := r.stats().Jobs[0].Lost // and not once it is granted: it would be silent beside who waits
		expect[*wire.Yield](high)
		time.Sleep(2 * time.Millisecond) // a job that returns the token as soon as it is asked was in a gap already
		high.release(held.Epoch)
		m, err := high.try(10 * time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		if grant, is := m.(*wire.Grant); is && grant.Ahead == 1 {
			high.send(&wire.Request{})
			eventually(t, "the loss is booked", func() bool { return r.stats().Jobs[0].Lost > before })
			return
		}
		held = high.request()
	}
	t.Fatal("nothing was granted ahead")
}
