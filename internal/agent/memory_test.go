package agent

import (
	"testing"
	"time"

	"weft.dev/weft/internal/unit"
	"weft.dev/weft/internal/wire"
)

// TestMemory charges, frees and refuses at the limit, exactly.
func TestMemory(t *testing.T) {
	r := start(t, Options{})
	job := r.job(Spec{Reserved: unit.GiB, Cooperates: true, GPUs: []string{"1"}})
	p := hello(t, job.Socket, wire.Hello{GPUs: 1})
	for i, c := range []struct {
		bytes   unit.Bytes
		outcome wire.Outcome
		used    unit.Bytes
	}{
		{unit.GiB - 1, wire.OK, unit.GiB - 1},
		{2, wire.OutOfMemory, unit.GiB - 1},
		{1, wire.OK, unit.GiB},
		{1, wire.OutOfMemory, unit.GiB},
		{1 << 62, wire.OutOfMemory, unit.GiB},
	} {
		if m := p.allocate(uint64(i+1), c.bytes); m.Outcome != c.outcome || unit.Bytes(m.Used) != c.used || m.Total != 1<<30 || m.Handle != uint64(i+1) {
			t.Errorf("%v: %+v", c, m)
		}
	}
	p.send(&wire.Free{Question: wire.Question{Handle: 3}})
	p.send(&wire.Free{Question: wire.Question{Handle: 3}})
	p.send(&wire.Free{Question: wire.Question{Handle: 99}})
	p.send(&wire.Alloc{Handle: 7, Bytes: 1 << 40, Family: 7}) // on the host: booked, never charged
	if m := expect[*wire.Memory](p); m.Outcome != wire.OK || m.Used != 1<<30-1 {
		t.Errorf("host memory: %+v", m)
	}
	p.send(&wire.Alloc{Handle: 8, Bytes: ^uint64(0)})
	if m := expect[*wire.Memory](p); m.Outcome != wire.OutOfMemory {
		t.Errorf("more than there is: %+v", m)
	}
	observer := hello(t, job.Socket, wire.Hello{Flags: wire.Observer})
	observer.send(&wire.View{Question: wire.Question{Handle: 5}})
	if m := expect[*wire.Memory](observer); m.Handle != 5 || m.Used != 1<<30-1 || m.Total != 1<<30 || m.Outcome != wire.OK {
		t.Errorf("%+v", m)
	}
	observer.send(&wire.View{Question: wire.Question{GPU: 1}})
	if m := expect[*wire.Memory](observer); m.Outcome != wire.Unknown {
		t.Errorf("a GPU that is not the allocation's: %+v", m)
	}
	r.audit()
	if j := r.stats().Jobs[0]; j.Refused != 4 {
		t.Errorf("%d allocations refused", j.Refused)
	}
}

// TestPool lets two cooperating jobs share a pool that holds one peak: the second waits until the first one's iteration
// ends, and the first is told that it is waited for.
func TestPool(t *testing.T) {
	r := start(t, Options{Machine: newBox(1, 4*unit.GiB)})
	spec := Spec{Reserved: unit.GiB / 2, Peak: 3 * unit.GiB, Cooperates: true}
	one := hello(t, r.job(spec).Socket, wire.Hello{GPUs: 1})
	two := hello(t, r.job(spec).Socket, wire.Hello{GPUs: 1})
	if m := one.allocate(1, 3*unit.GiB); m.Outcome != wire.OK {
		t.Fatalf("%+v", m)
	}
	two.send(&wire.Alloc{Handle: 1, Bytes: 2 << 30})
	if w := expectWanted(one); w.Wanted != 1 {
		t.Errorf("%+v", w)
	}
	two.silent(20 * time.Millisecond)
	if g := r.stats().GPUs[0]; g.Waiting != 1 {
		t.Errorf("%+v", g)
	}
	one.send(&wire.Iteration{Count: 1}) // with all in use still
	two.silent(5 * time.Millisecond)
	one.send(&wire.Free{Question: wire.Question{Handle: 1}})
	one.send(&wire.Iteration{Count: 1})
	if w := expectWanted(one); w.Wanted != 0 {
		t.Errorf("%+v", w)
	}
	if m := expect[*wire.Memory](two); m.Outcome != wire.OK || m.Waited < uint64(20*time.Millisecond) || m.Used != 2<<30 {
		t.Errorf("%+v", m)
	}
	r.audit()
	s := r.stats()
	if s.Jobs[1].Stall <= 0 || s.Jobs[0].Iterations != 2 || len(r.events(EventKept)) != 1 {
		t.Errorf("%+v", s.Jobs)
	}
}

func expectWanted(p *process) *wire.Wanted {
	p.Helper()
	m := p.receive()
	w, ok := m.(*wire.Wanted)
	if !ok {
		p.Fatalf("%T %+v, want WANTED", m, m)
	}
	return w
}

// TestWaiterDies ends a process that waits for the pool: nothing of what it asked for stays taken.
func TestWaiterDies(t *testing.T) {
	r := start(t, Options{Machine: newBox(1, 4*unit.GiB)})
	spec := Spec{Reserved: unit.GiB / 2, Peak: 3 * unit.GiB, Cooperates: true}
	one := hello(t, r.job(spec).Socket, wire.Hello{GPUs: 1})
	two := hello(t, r.job(spec).Socket, wire.Hello{GPUs: 1})
	one.allocate(1, 3*unit.GiB)
	two.send(&wire.Alloc{Handle: 1, Bytes: 2 << 30})
	expectWanted(one)
	two.hangUp() // it is away, and its request stays in the ledger
	one.send(&wire.Free{Question: wire.Question{Handle: 1}})
	one.send(&wire.Iteration{Count: 1})
	eventually(t, "the pool is whole", func() bool { g := r.stats().GPUs[0]; return g.Waiting == 0 && g.Pool == g.PoolFree })
	r.audit()
}

// TestCooperates opens a job that is not known to hand memory over: it is counted at its peak until its first iteration.
func TestCooperates(t *testing.T) {
	r := start(t, Options{Machine: newBox(1, 4*unit.GiB)})
	spec := Spec{Reserved: unit.GiB / 2, Peak: 3 * unit.GiB}
	p := hello(t, r.job(spec).Socket, wire.Hello{GPUs: 1})
	second := spec
	second.UID, second.GPUs = 0, []string{"0"}
	if _, err := r.ask(Request{Op: OpAllocate, Spec: &second}); err == nil {
		t.Fatal("two peaks of 3 GiB beside each other on 4 GiB")
	}
	p.send(&wire.Iteration{Count: 1})
	eventually(t, "it cooperates", func() bool { return r.stats().Jobs[0].Cooperates })
	if _, err := r.ask(Request{Op: OpAllocate, Spec: &Spec{Reserved: unit.GiB / 2, Peak: 3 * unit.GiB, Cooperates: true, GPUs: []string{"0"}}}); err != nil {
		t.Error(err)
	}
	r.audit()
}

// TestShared imports memory that another process of the job exported: charged once, until its last name is freed.
func TestShared(t *testing.T) {
	r := start(t, Options{})
	job := r.job(Spec{Reserved: unit.GiB})
	one, two := hello(t, job.Socket, wire.Hello{GPUs: 1}), hello(t, job.Socket, wire.Hello{GPUs: 1})
	stranger := hello(t, r.job(Spec{}).Socket, wire.Hello{GPUs: 1})
	key := [wire.KeySize]byte{1, 2, 3}
	one.allocate(1, 100)
	one.send(&wire.Export{Shared: wire.Shared{Handle: 1, Key: key}})
	one.allocate(2, 1) // the export has been taken
	importing := func(p *process, handle uint64, key [wire.KeySize]byte) *wire.Memory {
		p.send(&wire.Import{Shared: wire.Shared{Handle: handle, Key: key}})
		return expect[*wire.Memory](p)
	}
	if m := importing(two, 1, key); m.Outcome != wire.OK || m.Used != 101 {
		t.Errorf("%+v", m)
	}
	if m := importing(two, 2, [wire.KeySize]byte{9}); m.Outcome != wire.Unknown {
		t.Errorf("a key that nobody exported: %+v", m)
	}
	if m := importing(stranger, 1, key); m.Outcome != wire.Unknown {
		t.Errorf("another job's memory: %+v", m)
	}
	one.send(&wire.Free{Question: wire.Question{Handle: 1}})
	if m := one.allocate(3, 1); m.Used != 102 {
		t.Errorf("freed while another has it: %+v", m)
	}
	two.send(&wire.Free{Question: wire.Question{Handle: 1}})
	if m := two.allocate(4, 1); m.Used != 3 {
		t.Errorf("after its last name: %+v", m)
	}
	r.audit()
}

// TestProcesses lists the processes of the own job alone, by GPU.
func TestProcesses(t *testing.T) {
	r := start(t, Options{})
	job := r.job(Spec{GPUs: []string{"0", "1"}})
	one := hello(t, job.Socket, wire.Hello{GPUs: 2})
	hello(t, r.job(Spec{GPUs: []string{"1"}}).Socket, wire.Hello{GPUs: 1})
	hello(t, job.Socket, wire.Hello{GPUs: 1})
	one.send(&wire.Alloc{Handle: 1, Bytes: 77, GPU: 1})
	expect[*wire.Memory](one)
	observer := hello(t, job.Socket, wire.Hello{Flags: wire.Observer})
	for gpu, want := range map[uint32]int{0: 1, 1: 1, 2: 0} {
		observer.send(&wire.ProcessesOf{Question: wire.Question{Handle: 3, GPU: gpu}})
		l := expect[*wire.List](observer)
		if l.Handle != 3 || len(l.Processes) != want {
			t.Errorf("GPU %d: %+v", gpu, l)
		}
		if gpu == 1 && (l.Processes[0].Bytes != 77 || l.Processes[0].PID <= 0) {
			t.Errorf("%+v", l)
		}
	}
}
