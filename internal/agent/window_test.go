package agent

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weft.dev/weft/internal/unit"
	"weft.dev/weft/internal/wire"
)

// TestSince: a difference of two looks is of one session on one GPU, and never below 0.
func TestSince(t *testing.T) {
	before := Job{ID: 1, GPUs: []int{0, 1}, PIDs: []int{7}, Waited: 1, Stall: 2, Held: 10, Used: 8, Iterations: 100}
	after := Job{ID: 1, GPUs: []int{0, 1}, PIDs: []int{7, 8}, Waited: 3, Stall: 6, Held: 30, Used: 18, Iterations: 150}
	want := Window{Length: 20 * time.Second, Wait: time.Second, Stall: 2 * time.Second, Held: 10 * time.Second, Used: 5 * time.Second, Iterations: 50}
	if d := cmp.Diff(want, after.Since(&before, 20*time.Second)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(Window{Length: time.Second}, before.Since(&after, time.Second)); d != "" {
		t.Error("what went down: " + d)
	}
	if d := cmp.Diff(Window{Held: time.Second}, (&Job{Held: 1}).Since(&Job{}, 0)); d != "" {
		t.Error("without a session: " + d)
	}
}

// TestContinues: a figure that went down, or another allocation, is no continuation.
func TestContinues(t *testing.T) {
	j := Job{ID: 1, Waited: 1, Stall: 1, Held: 1, Used: 1, Iterations: 1}
	less := j
	less.Held = 0.9
	if !j.Continues(&j) || !less.Continues(&j) {
		t.Error("it does not continue itself")
	}
	for i, change := range []func(*Job){func(j *Job) { j.ID = 2 }, func(j *Job) { j.Waited = 0 }, func(j *Job) { j.Stall = 0 },
		func(j *Job) { j.Used = 0 }, func(j *Job) { j.Iterations = 0 }} {
		other := j
		change(&other)
		if other.Continues(&j) {
			t.Errorf("change %d: %+v continues %+v", i, other, j)
		}
	}
}

// TestPeakIsKept: the most that a job ever held is told after it was freed, and by the next agent.
func TestPeakIsKept(t *testing.T) {
	for name, end := range map[string]func(*rig){"in order": (*rig).close, "killed": (*rig).crash} {
		t.Run(name, func(t *testing.T) {
			r := start(t, Options{Arbiter: quick})
			job := r.job(Spec{Reserved: unit.GiB, GPUs: []string{"1"}})
			p := hello(t, job.Socket, wire.Hello{GPUs: 1})
			p.allocate(1, 700*unit.MiB)
			p.allocate(2, 200*unit.MiB)
			p.send(&wire.Free{Question: wire.Question{Handle: 1}})
			p.allocate(3, 300*unit.MiB)
			p.allocate(4, unit.GiB) // refused
			check := func() {
				t.Helper()
				m := r.stats().Jobs[0].Memory
				if len(m) != 1 || m[0].Peak != 900*unit.MiB || m[0].Used != 500*unit.MiB {
					t.Errorf("%+v", m)
				}
			}
			check()
			r.keeps()
			end(r)
			r.open()
			check()
		})
	}
}

// TestOldestProcess: a job is as old as its oldest process with a context, also one from before the agent.
func TestOldestProcess(t *testing.T) {
	r := start(t, Options{Arbiter: quick})
	job := r.job(Spec{Reserved: unit.GiB, GPUs: []string{"1"}})
	oldest := func() float64 { return r.stats().Jobs[0].Oldest }
	if age := oldest(); age != 0 {
		t.Errorf("without a process: %v", age)
	}
	hello(t, job.Socket, wire.Hello{Flags: wire.Observer})
	p := hello(t, job.Socket, wire.Hello{})
	if age := oldest(); age != 0 {
		t.Errorf("without a context: %v", age)
	}
	p.use(1)
	p.allocate(1, unit.MiB) // it is answered after what came before
	before := oldest()
	if before <= 0 || before > time.Hour.Seconds() { // this test's own process
		t.Errorf("%v", before)
	}
	r.close()
	r.open()
	r.again(job.Socket, p, 0).allocate(2, unit.MiB)
	if age := oldest(); age < before || age > before+60 {
		t.Errorf("%v, and %v before", age, before)
	}
}
