package agent

import (
	"testing"
	"time"

	"weft.dev/weft/internal/arbiter"
	"weft.dev/weft/internal/wire"
)

// TestTokenMoves lets two jobs ask for one GPU: the second one is granted when the first one released.
func TestTokenMoves(t *testing.T) {
	r := start(t, Options{Arbiter: unhurried})
	one := hello(t, r.job(Spec{Name: "one"}).Socket, wire.Hello{})
	two := hello(t, r.job(Spec{Name: "two"}).Socket, wire.Hello{})
	if w := one.welcome; w.Count != 1 || w.Session == 0 || w.Session == two.welcome.Session || w.GPUs[0].Limit != 1<<30 || w.GPUs[0].UUID[15] != 1 || w.Grace == 0 {
		t.Fatalf("%+v", w)
	}
	one.use(1)
	two.use(1)
	first := one.request()
	two.send(&wire.Request{})
	drop := expect[*wire.Drop](one)
	if drop.Epoch != first.Epoch || arbiter.Reason(drop.Reason) != arbiter.Quantum {
		t.Fatalf("%+v", drop)
	}
	two.silent(5 * time.Millisecond)
	one.release(drop.Epoch)
	second := expect[*wire.Grant](two)
	if second.Epoch <= first.Epoch || second.Window == 0 {
		t.Fatalf("%+v after %+v", second, first)
	}
	two.release(second.Epoch)
	one.silent(5 * time.Millisecond)
	s := r.stats()
	if j := s.Jobs[0]; j.Name != "one" || j.Launches != 1 || j.Wait.Count != 1 || j.Preemption.Count != 1 || j.Held <= 0 || len(j.PIDs) != 1 {
		t.Errorf("%+v", j)
	}
	if s.PerThousand == nil || s.Grants != 2 || s.TokenMessages == 0 {
		t.Error("messages for each launch are not counted")
	}
}

// TestUseMoves changes the GPUs of a process: with the token in its hands it has to give it back first.
func TestUseMoves(t *testing.T) {
	r := start(t, Options{Arbiter: unhurried})
	job := r.job(Spec{GPUs: []string{"0", "1"}})
	other := hello(t, r.job(Spec{GPUs: []string{"1"}}).Socket, wire.Hello{})
	p := hello(t, job.Socket, wire.Hello{})
	p.send(&wire.Request{}) // before it uses any GPU: it is granted when it does
	p.silent(10 * time.Millisecond)
	p.use(1)
	first := expect[*wire.Grant](p)
	other.use(1)
	g := other.request() // GPU 1 is free still
	other.release(g.Epoch)
	p.use(3)
	drop := expect[*wire.Drop](p)
	if drop.Epoch != first.Epoch || arbiter.Reason(drop.Reason) != arbiter.Regroup {
		t.Fatalf("%+v", drop)
	}
	p.release(first.Epoch)
	second := p.request()
	other.send(&wire.Request{})
	if d := expect[*wire.Drop](p); d.Epoch != second.Epoch {
		t.Fatalf("%+v", d)
	}
	p.use(0) // moving while it drains
	p.release(second.Epoch)
	expect[*wire.Grant](other)
	p.send(&wire.Request{})
	p.silent(20 * time.Millisecond)
	p.use(1)
	expect[*wire.Grant](p)
}

// TestStaleReleases says RELEASED and IDLE of other epochs: nothing changes.
func TestStaleReleases(t *testing.T) {
	r := start(t, Options{Arbiter: unhurried})
	one := hello(t, r.job(Spec{}).Socket, wire.Hello{GPUs: 1})
	two := hello(t, r.job(Spec{}).Socket, wire.Hello{GPUs: 1})
	g := one.request()
	for _, epoch := range []uint64{0, g.Epoch - 1, g.Epoch + 1, 1 << 63} {
		one.release(epoch)
		one.send(&wire.Idle{Epoch: wire.Epoch{Epoch: epoch}})
		two.release(g.Epoch)
	}
	two.send(&wire.Request{})
	two.silent(2 * time.Millisecond)
	one.release(g.Epoch)
	expect[*wire.Grant](two)
}

// TestHungHolder never releases: the next one runs within 100 ms of the drop, and the hung one is left alone until it speaks.
func TestHungHolder(t *testing.T) { within(t, 100*time.Millisecond, hangHolder) }

func hangHolder(t *testing.T) time.Duration {
	t.Helper()
	r := start(t, Options{})
	hung := hello(t, r.job(Spec{Name: "hung"}).Socket, wire.Hello{GPUs: 1})
	next := hello(t, r.job(Spec{Name: "next"}).Socket, wire.Hello{GPUs: 1})
	old := hung.request()
	next.send(&wire.Request{})
	expect[*wire.Drop](hung)
	dropped := time.Now()
	g := expect[*wire.Grant](next)
	took := time.Since(dropped)
	if e := r.events(EventOverrun); len(e) != 1 || e[0].Job != "hung" || *e[0].GPU != 0 {
		t.Errorf("%+v", e)
	}
	hung.release(old.Epoch)
	hung.send(&wire.Request{})
	expect[*wire.Drop](next)
	next.release(g.Epoch)
	if again := expect[*wire.Grant](hung); again.Epoch <= g.Epoch {
		t.Errorf("%+v after %+v", again, g)
	}
	s := r.stats()
	if s.Jobs[0].Overruns != 1 {
		t.Errorf("%+v", s.Jobs)
	}
	if s.Jobs[1].Overruns > 0 {
		t.Log("another try: the next one had no processor for longer than the agent waits")
		return time.Hour
	}
	return took
}

// TestHungRank hangs one process of a job: the job loses the time once, not in each turn.
func TestHungRank(t *testing.T) {
	r := start(t, Options{Arbiter: unhurried})
	gang := r.job(Spec{Name: "gang"})
	stuck, rank := hello(t, gang.Socket, wire.Hello{GPUs: 1}), hello(t, gang.Socket, wire.Hello{GPUs: 1})
	other := hello(t, r.job(Spec{Name: "other"}).Socket, wire.Hello{GPUs: 1})
	g := rank.request()
	expect[*wire.Grant](stuck) // all of a gang are granted
	other.send(&wire.Request{})
	for range 4 {
		expect[*wire.Drop](rank)
		rank.release(g.Epoch)
		o := expect[*wire.Grant](other)
		rank.send(&wire.Request{})
		expect[*wire.Drop](other)
		other.send(&wire.Released{Epoch: o.Epoch})
		other.send(&wire.Request{})
		g = expect[*wire.Grant](rank)
	}
	if n := len(r.events(EventOverrun)); n != 1 {
		t.Errorf("%d overruns, want 1", n)
	}
	for m, _ := stuck.try(10 * time.Millisecond); m != nil; m, _ = stuck.try(10 * time.Millisecond) {
		if _, granted := m.(*wire.Grant); granted {
			t.Error("a process that hangs is granted")
		}
	}
}

// auditor notes what an agent says of who may launch.
type auditor struct {
	allow, revoke, overrun func(pid, gpu int)
	close                  func()
}

func (a auditor) Enter(int)                    {}
func (a auditor) Allow(pid, gpu int, _ uint64) { a.allow(pid, gpu) }
func (a auditor) Revoke(pid, gpu int)          { a.revoke(pid, gpu) }
func (a auditor) Overrun(pid, gpu int)         { a.overrun(pid, gpu) }
func (a auditor) Close()                       { a.close() }

// TestAudit holds the order of what is said: allowed before the grant, revoked after the release, overrun in between.
func TestAudit(t *testing.T) {
	said := make(chan string, 100)
	say := func(what string) func(pid, gpu int) { return func(_, _ int) { said <- what } }
	r := start(t, Options{Arbiter: unhurried, Audit: auditor{say("allow"), say("revoke"), say("overrun"), func() { said <- "close" }}})
	one := hello(t, r.job(Spec{}).Socket, wire.Hello{GPUs: 1})
	two := hello(t, r.job(Spec{}).Socket, wire.Hello{GPUs: 1})
	heard := func(want ...string) {
		t.Helper()
		for _, w := range want {
			select {
			case got := <-said:
				if got != w {
					t.Fatalf("%s, want %s", got, w)
				}
			case <-time.After(patient):
				t.Fatalf("nothing, want %s", w)
			}
		}
		if len(said) > 0 {
			t.Fatalf("%s, and nothing is to come", <-said)
		}
	}
	g := one.request()
	heard("allow")
	two.send(&wire.Request{})
	expect[*wire.Drop](one)
	heard()
	h := expect[*wire.Grant](two) // one did not release
	heard("overrun", "allow")
	one.release(g.Epoch)
	heard("revoke")
	two.release(h.Epoch)
	heard("revoke")
	two.request()
	heard("allow")
	two.hangUp()
	heard("revoke")
}

// TestAuditEndsFirst: an agent that ends is not judged any more when its programs learn of it. They launch freely soon after.
func TestAuditEndsFirst(t *testing.T) {
	nothing := func(_, _ int) {}
	var one *process
	alone := func(wait time.Duration) bool {
		for {
			if m, err := one.try(wait); m == nil || err != nil {
				return err != nil
			}
		}
	}
	var told []bool
	r := start(t, Options{Arbiter: quick, Audit: auditor{nothing, nothing, nothing, func() { told = append(told, alone(20*time.Millisecond)) }}})
	one = hello(t, r.job(Spec{}).Socket, wire.Hello{GPUs: 1})
	one.request()
	r.close()
	if len(told) != 1 || told[0] {
		t.Errorf("the audit ended %d times, when the program was told: %v", len(told), told)
	}
	if !alone(patient) {
		t.Error("the program is not told at all")
	}
}
