package agent

import (
	"bytes"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weft.dev/weft/internal/unit"
	"weft.dev/weft/internal/wire"
)

// TestStorm starts 300 processes at once.
func TestStorm(t *testing.T) { within(t, time.Second, storm) } // 10 ms where nothing else runs

// storm is how long 99 of 100 processes wait at most until they are known.
func storm(t *testing.T) time.Duration {
	t.Helper()
	r := start(t, Options{})
	job := r.job(Spec{})
	const processes = 300
	took := make([]time.Duration, processes)
	var all sync.WaitGroup
	for i := range took {
		all.Go(func() {
			began := time.Now()
			p := hello(t, job.Socket, wire.Hello{GPUs: 1})
			took[i] = time.Since(began)
			if p.welcome.Session == 0 {
				t.Error("no session")
			}
		})
	}
	all.Wait()
	slices.Sort(took)
	p99 := took[processes*99/100]
	t.Logf("registered: p50 %v, p99 %v, longest %v", took[processes/2], p99, took[processes-1])
	if n := len(r.stats().Jobs[0].PIDs); n != processes {
		t.Errorf("%d of %d are known", n, processes)
	}
	return p99
}

// TestSchedules runs jobs with random iterations through the sockets: nobody is out of memory, nobody waits for ever.
func TestSchedules(t *testing.T) {
	r := start(t, Options{Machine: newBox(1, 8*unit.GiB)})
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var jobs sync.WaitGroup
	for i := range 4 {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		peak := unit.Bytes(1+random.IntN(4)) * unit.GiB
		job := r.job(Spec{Reserved: unit.GiB, Peak: peak, Cooperates: true, Class: Class(i % 3)})
		p := hello(t, job.Socket, wire.Hello{GPUs: 1})
		jobs.Go(func() {
			handle := uint64(0)
			if m := p.allocate(1<<20, unit.GiB); m.Outcome != wire.OK {
				t.Errorf("%+v", m)
			}
			for range 20 {
				from := handle
				for left := peak; left > 0; {
					bytes := min(left, unit.Bytes(1+random.Int64N(int64(unit.GiB))))
					left -= bytes
					handle++
					if m := p.allocate(handle, bytes); m.Outcome != wire.OK {
						t.Errorf("%v: %+v", bytes, m)
					}
				}
				for h := from; h < handle; h++ {
					p.send(&wire.Free{Question: wire.Question{Handle: h + 1}})
				}
				p.send(&wire.Iteration{Count: 1})
			}
		})
	}
	jobs.Wait()
	eventually(t, "the pool is whole", func() bool { g := r.stats().GPUs[0]; return g.Waiting == 0 && g.Pool == g.PoolFree })
	r.audit()
}

// baton is what the holder of the token has, and nobody else.
type baton struct {
	sync.Mutex
	doubles atomic.Int32 // grants while another held it
}

// TestRestartUnderLoad restarts the agent again and again while jobs hand the token around. Nobody is granted while another
// holds, by what the processes themselves see.
func TestRestartUnderLoad(t *testing.T) {
	for range 5 {
		doubles, overruns := restartUnderLoad(t)
		switch {
		case doubles == 0:
			return
		case overruns == 0:
			t.Fatalf("%d times granted while another holds", doubles)
		}
		t.Logf("another try: the agent gave up %d holders, which had no processor for longer than it waits", overruns)
	}
	t.Error("in each of five tries a holder had no processor for longer than the agent waits")
}

// restartUnderLoad is one try: how often two held, and how many holders the agent gave up as hung.
func restartUnderLoad(t *testing.T) (doubles, overruns int) {
	t.Helper()
	var log bytes.Buffer // an agent that is closed writes no more
	o := quick
	o.Settle, o.MaxDrain = 5*time.Second, 5*time.Second // a holder that is given up as too slow would see another hold
	r := start(t, Options{Arbiter: o, Log: slog.New(slog.NewTextHandler(&log, nil))})
	var holder baton
	stop := make(chan struct{})
	var jobs sync.WaitGroup
	turns := make([]atomic.Int32, 3)
	for i := range turns {
		job := r.job(Spec{})
		jobs.Go(func() { taker(t, job.Socket, &holder, &turns[i], stop) })
	}
	for range 4 {
		time.Sleep(100 * time.Millisecond)
		r.close()
		r.open()
	}
	time.Sleep(300 * time.Millisecond)
	for until := time.Now().Add(patient); time.Now().Before(until) && (turns[0].Load() < 5 || turns[1].Load() < 5 || turns[2].Load() < 5); {
		time.Sleep(2 * time.Millisecond)
	}
	close(stop)
	jobs.Wait()
	r.close()
	for i := range turns {
		if n := turns[i].Load(); n < 5 {
			t.Errorf("job %d had %d turns", i, n)
		}
		t.Logf("turns: %d", turns[i].Load())
	}
	return int(holder.doubles.Load()), strings.Count(log.String(), "type="+EventOverrun)
}

// taker takes the token, checks that it alone has it, and gives it back when told to; it connects again when it is cut off. It
// keeps its gate open without an agent, as a process does.
func taker(t *testing.T, socket string, holder *baton, turns *atomic.Int32, stop <-chan struct{}) {
	t.Helper()
	var session, epoch uint64
	give := func() {
		if epoch > 0 {
			epoch = 0
			holder.Unlock()
		}
	}
	defer func() { give() }()
	for {
		p, err := tryConnect(t, socket)
		if err == nil {
			session = turn(t, p, session, &epoch, turns, holder, give, stop)
			p.hangUp()
		}
		select {
		case <-stop:
			return
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// turn is one connection of a taker.
func turn(t *testing.T, p *process, session uint64, epoch *uint64, turns *atomic.Int32, holder *baton, give func(), stop <-chan struct{}) uint64 {
	t.Helper()
	if p.trySend(&wire.Hello{Session: session, Epoch: *epoch, GPUs: 1}) != nil {
		return session
	}
	for {
		select {
		case <-stop:
			give() // before it hangs up, and the agent takes the token from it
			return session
		default:
		}
		m, err := p.try(5 * time.Millisecond)
		if err != nil {
			return session
		}
		switch m := m.(type) {
		case *wire.Welcome:
			session = m.Session
			if m.Held == 0 {
				give()
				_ = p.trySend(&wire.Request{})
			}
		case *wire.Grant:
			if !holder.TryLock() {
				holder.doubles.Add(1)
				return session
			}
			*epoch = m.Epoch
			turns.Add(1)
		case *wire.Ping:
			_ = p.trySend(&wire.Pong{})
		case *wire.Drop, *wire.Yield:
			if e := *epoch; e > 0 {
				give()
				_ = p.trySend(&wire.Released{Epoch: e})
				_ = p.trySend(&wire.Request{})
			}
		}
	}
}

// BenchmarkHandover passes the token between two processes of this program: from the release of one to the grant of the other.
func BenchmarkHandover(b *testing.B) {
	r := start(b, Options{})
	one := hello(b, r.job(Spec{}).Socket, wire.Hello{GPUs: 1})
	two := hello(b, r.job(Spec{}).Socket, wire.Hello{GPUs: 1})
	var took []time.Duration
	g := one.request()
	for b.Loop() {
		two.send(&wire.Request{})
		expect[*wire.Drop](one)
		began := time.Now()
		one.release(g.Epoch)
		g = expect[*wire.Grant](two)
		took = append(took, time.Since(began))
		one, two = two, one
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
}

// BenchmarkMessages allocates and frees: two messages and an answer each time.
func BenchmarkMessages(b *testing.B) {
	r := start(b, Options{})
	p := hello(b, r.job(Spec{}).Socket, wire.Hello{GPUs: 1})
	n := uint64(0)
	for b.Loop() {
		n++
		p.allocate(n, unit.MiB)
		p.send(&wire.Free{Question: wire.Question{Handle: n}})
	}
	b.ReportMetric(3*float64(n)/b.Elapsed().Seconds(), "messages/s")
}

// BenchmarkRegister connects, says HELLO and hangs up.
func BenchmarkRegister(b *testing.B) {
	r := start(b, Options{})
	job := r.job(Spec{})
	for b.Loop() {
		p := hello(b, job.Socket, wire.Hello{Flags: wire.Observer})
		p.hangUp()
	}
}
