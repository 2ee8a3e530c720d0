package emugpu

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weft.dev/weft/internal/emugpu/model"
	"weft.dev/weft/internal/unit"
)

const ms = time.Millisecond

func TestVirtualTimeIsTheSumOfCosts(t *testing.T) {
	b := start(t, 1, Options{Clock: Virtual})
	d := attach(t, b.Socket(), "a")
	me, s := d.enter(), d.context(t, 0).null()
	for range 5 {
		s.launch(3 * ms)
	}
	d.sleep(me, 20*ms)
	n := s.launch(7 * ms)
	if e := s.wait(me, n); e != 0 {
		t.Fatalf("error %d", e)
	}
	if now := d.now(); now != uint64(27*ms) {
		t.Errorf("ends at %v, want 27ms", time.Duration(now))
	}
	stats := b.Stats()
	if g := stats.GPUs[0]; g.Busy != 22*ms || g.Launches != 6 || g.Switching != 0 {
		t.Errorf("gpu %+v", g)
	}
	want := ProcessGPUStats{Contexts: 1, Bytes: 256 * unit.MiB, Peak: 256 * unit.MiB, Busy: 22 * ms, Kernels: 6, Launches: 6}
	if p := stats.Processes[0]; len(p.GPUs) != 1 || p.GPUs[0] != want || p.Name != "a" || int(p.PID) != os.Getpid() {
		t.Errorf("process %+v, want %+v", p, want)
	}
}

// TestVirtualTimeIsDeterministic runs three threads of two processes that compete, ten times.
func TestVirtualTimeIsDeterministic(t *testing.T) {
	var first []unit.Time
	for range 10 {
		var ends [3]unit.Time
		b := start(t, 1, Options{Clock: Virtual, Slice: ms, Slowdown: map[model.Pair]float64{{Of: "x", Beside: "y"}: 1.3}})
		drivers := []*driver{attach(t, b.Socket(), "x"), attach(t, b.Socket(), "y")}
		contexts := []*driverContext{drivers[0].context(t, 0), drivers[1].context(t, 0)}
		threads, streams := make([]thread, 3), make([]*stream, 3)
		for i := range 3 { // all slots are taken before anybody may wait
			threads[i], streams[i] = drivers[i%2].enter(), contexts[i%2].stream(t)
		}
		ended := make(chan int)
		for i := range 3 {
			go func() {
				for k := range 20 {
					n := streams[i].launch(time.Duration(400+300*i+k) * time.Microsecond)
					streams[i].wait(threads[i], n)
					drivers[i%2].sleep(threads[i], time.Duration(100*(i+1))*time.Microsecond)
				}
				ends[i] = unit.Time(drivers[i%2].now())
				drivers[i%2].leave(threads[i])
				ended <- i
			}()
		}
		for range 3 {
			<-ended
		}
		if first == nil {
			first = ends[:]
		}
		if !slices.Equal(first, ends[:]) {
			t.Fatalf("ends %v, before %v", ends, first)
		}
	}
	if slices.Contains(first, 0) {
		t.Errorf("ends %v", first)
	}
}

func TestRealTime(t *testing.T) {
	b := start(t, 1, Options{})
	d := attach(t, b.Socket(), "a")
	me, s := d.enter(), d.context(t, 0).null()
	begin := time.Now()
	var n uint64
	for range 10 {
		n = s.launch(2 * ms)
	}
	s.wait(me, n)
	if took := time.Since(begin); took < 20*ms || took > patience {
		t.Errorf("20 ms of kernels took %v", took)
	}
	begin = time.Now()
	d.sleep(me, 10*ms)
	if took := time.Since(begin); took < 10*ms || took > patience {
		t.Errorf("a sleep of 10 ms took %v", took)
	}
}

func TestScaledTime(t *testing.T) {
	b := start(t, 1, Options{Scale: 5000})
	d := attach(t, b.Socket(), "a")
	me, s := d.enter(), d.context(t, 0).null()
	begin, model := time.Now(), d.now()
	s.wait(me, s.launch(500*time.Second))
	took, passed := time.Since(begin), time.Duration(d.now()-model)
	if took < 100*ms || took > patience || passed < 500*time.Second {
		t.Errorf("500 s at scale 5000 took %v, and %v of model time", took, passed)
	}
}

// TestPolling ends without any thread waiting: the first poll tells the broker what to look out for.
func TestPolling(t *testing.T) {
	b := start(t, 1, Options{})
	d := attach(t, b.Socket(), "a")
	s := d.context(t, 0).null()
	n := s.launch(5 * ms)
	want := s.c.page.u64(s.base + ringWant)
	for begin := time.Now(); s.done() < n; time.Sleep(ms) {
		if want.Load() != n {
			want.Store(n)
			d.ring()
		}
		if time.Since(begin) > patience {
			t.Fatal("the poll never succeeds")
		}
	}
}

func TestEventsHaveComputedTimes(t *testing.T) {
	b := start(t, 2, Options{Clock: Virtual})
	d := attach(t, b.Socket(), "a")
	me, x, y := d.enter(), d.context(t, 0), d.context(t, 1)
	s, other := x.stream(t), y.stream(t)
	s.launch(3 * ms)
	n := s.push(arrival{kind: uint16(model.RecordEvent), number: 7, cost: 1})
	other.push(arrival{kind: uint16(model.Wait), epoch: uint64(x.id), number: uint32(s.ring), cost: n})
	other.push(arrival{kind: uint16(model.Wait), epoch: uint64(x.id) | 1<<32, number: uint32(s.ring), cost: 1000}) // no such context
	other.launch(2 * ms)
	m := other.push(arrival{kind: uint16(model.RecordEvent), number: 8, cost: 5})
	other.wait(me, m)
	for _, c := range []struct {
		x          *driverContext
		event      int
		generation uint64
		want       time.Duration
	}{{x, 7, 1, 3 * ms}, {y, 8, 5, 5 * ms}} {
		at := contextEvents + c.event*eventSize
		if g, at := c.x.page.u64(at+eventGeneration).Load(), c.x.page.u64(at+eventTime).Load(); g != c.generation || at != uint64(c.want) {
			t.Errorf("event %d: generation %d at %v", c.event, g, time.Duration(at))
		}
	}
}

func TestHostFunctions(t *testing.T) {
	b := start(t, 1, Options{})
	d := attach(t, b.Socket(), "a")
	me, s := d.enter(), d.context(t, 0).null()
	n := s.push(arrival{kind: uint16(model.Host)})
	last := s.launch(ms)
	d.sleep(me, 5*ms)
	if s.done() != 0 {
		t.Fatal("the stream did not stop for the host function")
	}
	s.c.page.u64(s.base + ringHostDone).Store(n)
	d.ring()
	s.wait(me, last)
}

// TestFullRing keeps a ring full from several threads.
func TestFullRing(t *testing.T) {
	b := start(t, 1, Options{})
	d := attach(t, b.Socket(), "a")
	s := d.context(t, 0).null()
	const threads, each = 4, 5000
	ended := make(chan bool)
	for range threads {
		go func() {
			me := d.enter()
			for range each {
				for {
					s.mu.Lock()
					head := s.c.page.u64(s.base + ringHead).Load()
					if head-s.done() < ringEntries {
						s.write(arrival{submit: d.now(), kind: uint16(model.Kernel), cost: 1000})
						s.mu.Unlock()
						break
					}
					s.mu.Unlock()
					s.wait(me, head-ringEntries*3/4)
				}
			}
			d.leave(me)
			ended <- true
		}()
	}
	for range threads {
		<-ended
	}
	me := d.enter()
	s.wait(me, threads*each)
	if g := b.Stats().GPUs[0]; g.Launches != threads*each || g.Busy != threads*each*time.Microsecond {
		t.Errorf("%+v", g)
	}
}

func TestStreamsAreHandedOutAgain(t *testing.T) {
	b := start(t, 1, Options{Clock: Virtual})
	d := attach(t, b.Socket(), "a")
	me, c := d.enter(), d.context(t, 0)
	s := c.stream(t)
	n := s.launch(ms)
	d.do(t, request{Op: uint32(opStreamDestroy), Context: c.id, A: uint64(s.ring)})
	if fresh := c.stream(t); fresh.ring == s.ring {
		t.Fatal("a ring with work is handed out")
	}
	waits := c.stream(t)
	waits.push(arrival{kind: uint16(model.Wait), epoch: uint64(c.id), number: uint32(s.ring), cost: n + 5}) // never submitted
	s.wait(me, n)
	if waits.wait(me, 1) != 0 {
		t.Error("a destroyed stream holds up another")
	}
	again := c.stream(t)
	if again.ring != s.ring {
		t.Fatalf("ring %d, want %d", again.ring, s.ring)
	}
	if n := again.launch(ms); n != 2 || again.wait(me, n) != 0 {
		t.Errorf("entry %d of a ring that was used", n)
	}
	if g := b.Stats().GPUs[0]; g.Busy != 2*ms || g.Launches != 2 {
		t.Errorf("%+v", g)
	}
	for range maxStreams - 4 {
		c.stream(t)
	}
	if _, _, err := d.ask(request{Op: uint32(opStreamCreate), Context: c.id}); statusOf(err) != statusOOM {
		t.Errorf("one stream too many: %v", err)
	}
	for _, ring := range []uint64{0, maxStreams, 1 << 40} {
		if _, _, err := d.ask(request{Op: uint32(opStreamDestroy), Context: c.id, A: ring}); statusOf(err) != statusNoHandle {
			t.Errorf("ring %d is destroyed: %v", ring, err)
		}
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	before := descriptorsOpen(t)
	folder := t.TempDir()
	for range 3 {
		b := start(t, 2, Options{Socket: filepath.Join(folder, "gpus.sock")})
		d, err := tryAttach(b.Socket(), "a")
		if err != nil {
			t.Fatal(err)
		}
		me, c := d.enter(), d.context(t, 1)
		n := c.null().launch(time.Hour)
		ended := make(chan status)
		go func() { ended <- c.null().wait(me, n) }()
		time.Sleep(ms)
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if e := <-ended; e != statusUnavailable {
			t.Errorf("who waited is told %d", e)
		}
		d.close()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	if files, _ := os.ReadDir(folder); len(files) > 0 {
		t.Errorf("left %v", files)
	}
	if after := descriptorsOpen(t); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func descriptorsOpen(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(files)
}

func TestSocketPaths(t *testing.T) {
	a10, _ := Model("a10")
	folder := t.TempDir()
	path := filepath.Join(folder, "s")
	b := start(t, 1, Options{Socket: path})
	refused := func(o Options, want string) {
		t.Helper()
		if c, err := Start(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
			if c != nil {
				_ = c.Close()
			}
		}
	}
	refused(Options{Socket: path, GPUs: []GPU{a10}}, "served there already")
	file := filepath.Join(folder, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	refused(Options{Socket: file, GPUs: []GPU{a10}}, "no socket is in its place")
	refused(Options{Socket: filepath.Join(folder, "none", "s"), GPUs: []GPU{a10}}, "make it first")
	refused(Options{Socket: "/" + strings.Repeat("x", 120), GPUs: []GPU{a10}}, "unix socket has room")
	refused(Options{}, "outside [1, 16]")
	refused(Options{GPUs: []GPU{a10}, Scale: 1e9}, "scale")
	refused(Options{GPUs: []GPU{a10}, Scale: 2, Clock: Virtual}, "virtual clock")
	refused(Options{GPUs: []GPU{a10}, Slice: 1}, "slice")
	refused(Options{GPUs: []GPU{{}}}, "gpu0: name")
	refused(Options{GPUs: []GPU{a10}, Slowdown: map[model.Pair]float64{{Of: "a", Beside: "b"}: 0.5}}, "interference a:b=0.5")
	_ = b.Close()
	_, err := Dial(path)
	if err == nil || !strings.Contains(err.Error(), "there is no such socket") {
		t.Errorf("dial a closed broker: %v", err)
	}
}
