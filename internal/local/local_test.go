package local

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weft.dev/weft/internal/agent"
	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/device"
	"weft.dev/weft/internal/unit"
)

func TestRunsAndTellsTheEnd(t *testing.T) {
	b := open(t, 1)
	for line, want := range map[string]box.Job{
		"echo hi":       {Outcome: box.Succeeded, Exit: exitOf(0)},
		"exit 7":        {Outcome: box.Failed, Exit: exitOf(7)},
		"kill -9 $$":    {Outcome: box.Failed, Exit: exitOf(137)},
		"sleep 100":     {Outcome: box.TimedOut, Exit: exitOf(124)},
		"no_such_thing": {Outcome: box.Failed, Exit: exitOf(127)},
	} {
		id := b.submit(line, func(s *box.Spec) {
			if strings.HasPrefix(line, "sleep") {
				s.MaxTime = time.Second
			}
		})
		if j := b.done(id); j.Outcome != want.Outcome || *j.Exit != *want.Exit {
			t.Errorf("%s: %s, exit %d, want %s, %d", line, j.Outcome, *j.Exit, want.Outcome, *want.Exit)
		}
	}
}

func exitOf(n int) *int { return &n }

func TestJobSeesWhatItWasGiven(t *testing.T) {
	b := open(t, 2)
	id := b.submit(`echo "$WEFT_ARRAY_INDEX|$CUDA_VISIBLE_DEVICES|$OWN|$PWD|$WEFT_JOB_ID"; cat`, func(s *box.Spec) {
		s.Env = append(s.Env, "CUDA_VISIBLE_DEVICES=3", "OWN=kept", "WEFT_ARRAY_INDEX=9")
		s.Dir, s.Stdin = "/tmp", true
	})
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Stdin(me, id, r); err != nil {
		t.Fatal(err)
	}
	_, _ = fmt.Fprint(w, "through")
	_ = w.Close()
	b.done(id)
	if got, want := b.log(id), fmt.Sprintf("||kept|/tmp|%d\nthrough", id); !strings.Contains(got, want) {
		t.Errorf("log %q, want %q", got, want)
	}
}

// TestInputNeverComes: who promised an input is gone, and nothing else happens. The job runs without one.
func TestInputNeverComes(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED with -short: it waits as long as a job does for its input")
	}
	b := open(t, 1)
	id := b.submit("cat; exit 7", func(s *box.Spec) { s.Stdin = true })
	if j := b.done(id); *j.Exit != 7 {
		t.Errorf("%+v", j)
	}
}

func TestArraysAndDependencies(t *testing.T) {
	b := open(t, 2)
	filed := newGo(t) // all of them: what comes after a job that has failed is refused
	ids, err := b.Submit(me, spec("echo $WEFT_ARRAY_INDEX", func(s *box.Spec) { s.Array = &box.Array{First: 3, Last: 6} }))
	if err != nil || len(ids) != 4 {
		t.Fatalf("%v, %v", ids, err)
	}
	after := b.submit("echo after", func(s *box.Spec) { s.After = ids })
	fails := b.submit(filed.awaited() + "exit 1")
	never := b.submit("echo never", func(s *box.Spec) { s.After = []box.ID{fails} })
	chain := b.submit("echo never", func(s *box.Spec) { s.After = []box.ID{never} })
	filed.say()
	for i, id := range ids {
		j := b.done(id)
		if *j.Index != i+3 || j.Array != ids[0] || !strings.Contains(b.log(id), fmt.Sprint(i+3)) {
			t.Errorf("element %d: %+v, %q", i, j, b.log(id))
		}
	}
	last := b.done(ids[3])
	if j := b.done(after); j.Outcome != box.Succeeded || j.Started.Before(*last.Ended) {
		t.Errorf("it began at %v, before the array's end at %v", j.Started, last.Ended)
	}
	for _, id := range []box.ID{never, chain} {
		if j := b.done(id); j.Outcome != box.Cancelled || j.Attempt != 0 {
			t.Errorf("job %d after a failed one: %s", id, j.Outcome)
		}
	}
}

func TestJobsOfOneGPUWaitInTurn(t *testing.T) {
	b := open(t, 1)
	told := newGo(t)
	first := b.submit(told.awaited(), func(s *box.Spec) { s.Memory = 15 * unit.GiB })
	b.until(first, "running", running)
	second := b.submit("true", func(s *box.Spec) { s.Memory = 15 * unit.GiB })
	j := b.until(second, "told why it waits", func(j box.Job) bool { return j.Reason != nil && j.Reason.Code != "Planning" || j.State != box.Waiting })
	if j.State != box.Waiting {
		t.Fatalf("15 + 15 GiB run on 16 GiB: %+v", j)
	}
	e, err := b.Explain(me, second)
	if err != nil || len(e.Refusals) != 1 || !e.Refusals[0].Nearest || e.Refusals[0].Reason.Text == "" || !strings.Contains(e.Opens, first.String()) {
		t.Errorf("explanation: %+v, %v", e, err)
	}
	told.say()
	b.done(second)
}

func TestStopEndsTheWholeTree(t *testing.T) {
	b := open(t, 1)
	id := b.submit(`sleep 1000 & setsid sleep 1001 & sh -c 'sleep 1002; echo next'; echo last`)
	b.until(id, "running", running)
	waits := b.submit("true", func(s *box.Spec) { s.Memory = 16 * unit.GiB })
	if j, err := b.Stop(me, waits); err != nil || j.Outcome != box.Cancelled {
		t.Errorf("a waiting job: %+v, %v", j, err)
	}
	if _, err := b.Stop(me, id); err != nil {
		t.Fatal(err)
	}
	if j := b.done(id); j.Outcome != box.Stopped {
		t.Errorf("%+v", j)
	}
	if text := b.log(id); strings.Contains(text, "next") || strings.Contains(text, "last") {
		t.Errorf("the script went on: %q", text)
	}
	if j, err := b.Stop(me, id); err != nil || j.State != box.Done {
		t.Errorf("a second stop: %v", err)
	}
}

func TestRestartTakesOver(t *testing.T) {
	b := open(t, 2)
	away, back := newGo(t), newGo(t)
	runs := b.submit("echo 1; " + back.awaited() + "for i in 2 3 4 5 6; do echo $i; done; exit 3")
	ends := b.submit(away.awaited() + "exit 4")
	waits := b.submit("echo waited", func(s *box.Spec) { s.After = nil; s.GPUs = 2; s.Memory = 16 * unit.GiB })
	pid := b.until(runs, "running", running).PID
	other := b.until(ends, "running", running).PID
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	away.say()
	eventually(t, "the end of a program meanwhile", func() bool { return !alive(other) })
	if !alive(pid) {
		t.Fatal("the program ended with the daemon")
	}
	b.reopen()
	back.say()
	if j := b.done(runs); *j.Exit != 3 || j.PID != 0 || j.Attempt != 1 || strings.Count(b.log(runs), "\n") < 6 {
		t.Errorf("%+v %q", j, b.log(runs))
	}
	if j := b.done(ends); *j.Exit != 4 || j.Attempt != 1 {
		t.Errorf("the one that ended meanwhile: %+v", j)
	}
	if j := b.done(waits); j.Outcome != box.Succeeded {
		t.Errorf("%+v", j)
	}
	var seqs []uint64
	for _, e := range b.Events(0, time.Time{}) {
		seqs = append(seqs, e.Seq)
	}
	if !slices.IsSorted(seqs) || seqs[0] != 1 {
		t.Errorf("events are numbered %v", seqs)
	}
}

func TestCorruptDatabaseIsKeptAndJobsGoOn(t *testing.T) {
	for name, spoil := range map[string]func([]byte) []byte{
		"nonsense": func([]byte) []byte { return []byte(strings.Repeat("nonsense", 4096)) },
		"empty":    func([]byte) []byte { return nil },
		"half":     func(b []byte) []byte { return b[:len(b)/2] },
		"pages":    func(b []byte) []byte { clear(b[8192:]); return b },
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t, 1)
			back := newGo(t)
			id := b.submit(back.awaited()+"exit 5", func(s *box.Spec) { s.Memory = 16 * unit.GiB })
			b.until(id, "running", running)
			waits := b.submit("exit 6")
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(b.o.State, "state.db")
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, spoil(text), 0o600); err != nil {
				t.Fatal(err)
			}
			b.reopen()
			if kept, _ := filepath.Glob(path + ".*.bad"); len(kept) != 1 && name != "empty" {
				t.Errorf("kept as %v", kept)
			}
			if s := b.Status(); len(s.Degraded) != 1 {
				t.Errorf("status: %v", s.Degraded)
			}
			back.say()
			if j := b.done(id); *j.Exit != 5 || j.Attempt != 1 {
				t.Errorf("%+v", j)
			}
			if j := b.done(waits); *j.Exit != 6 {
				t.Errorf("%+v", j)
			}
		})
	}
}

func TestUnusableStateIsRefused(t *testing.T) {
	b := open(t, 1)
	if _, err := Open(t.Context(), b.o); err == nil {
		t.Error("a second daemon has the same state folder")
	} else if locked := (*LockedError)(nil); !errorAs(err, &locked) || locked.PID != os.Getpid() {
		t.Errorf("%v", err)
	}
}

func TestUnhealthyAndDrainedGPUs(t *testing.T) {
	b := open(t, 2)
	if _, err := b.Drain(me, 0, true); err != nil {
		t.Fatal(err)
	}
	id := b.submit("sleep 60")
	if j := b.until(id, "running", running); !slices.Equal(j.On, []int{1}) {
		t.Errorf("it runs on %v", j.On)
	}
	b.machine.faults <- device.Fault{GPU: 1, XID: 79}
	b.untilGPU(1, "unhealthy")
	waits := b.submit("true")
	b.until(waits, "told why it waits", func(j box.Job) bool { return j.Reason != nil && j.Reason.Code != "Planning" || j.State != box.Waiting })
	e, err := b.Explain(me, waits)
	if err != nil || e.Job.State != box.Waiting || len(e.Refusals) != 2 {
		t.Fatalf("%+v, %v", e, err)
	}
	if d := b.Status().Degraded; len(d) != 1 || d[0] != "gpu1 XID 79" {
		t.Errorf("degraded: %v", d)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b.reopen()
	if g := b.GPUs()[0]; g.Health != "drained" {
		t.Errorf("after a restart gpu0 is %s", g.Health)
	}
	if _, err := b.Drain(me, 0, false); err != nil {
		t.Fatal(err)
	}
	if j := b.done(waits); j.Outcome != box.Succeeded {
		t.Errorf("%+v", j)
	}
}

func (b *bench) untilGPU(gpu int, health string) {
	b.t.Helper()
	eventually(b.t, fmt.Sprintf("gpu%d %s", gpu, health), func() bool { return b.GPUs()[gpu].Health == health })
}

// TestAgentHasNoRoom: what the agent refuses for the moment waits, and leaves nothing behind when it is stopped.
func TestAgentHasNoRoom(t *testing.T) {
	b := open(t, 1)
	hog, err := b.agent.Ask(b.ctx, agent.Request{Op: agent.OpAllocate, Spec: &agent.Spec{Name: "hog", GPUs: []string{"0"}, Reserved: 16 * unit.GiB, UID: os.Getuid()}})
	if err != nil {
		t.Fatal(err)
	}
	id, stopped := b.submit("true"), b.submit("true")
	b.untilEvent(box.EventTrouble, id)
	b.untilEvent(box.EventTrouble, stopped)
	if _, err := b.Stop(me, stopped); err != nil {
		t.Fatal(err)
	}
	if j := b.done(stopped); j.Outcome != box.Cancelled {
		t.Errorf("%+v", j)
	}
	if err := b.free(hog.ID); err != nil {
		t.Fatal(err)
	}
	if j := b.done(id); j.Outcome != box.Succeeded {
		t.Errorf("%+v", j)
	}
	eventually(t, "no allocation", func() bool {
		list, err := b.agent.Ask(b.ctx, agent.Request{Op: agent.OpList})
		return err == nil && len(list.Jobs) == 0
	})
}

func (b *bench) untilEvent(is box.EventType, job box.ID) {
	b.t.Helper()
	eventually(b.t, fmt.Sprintf("event %s of job %d", is, job), func() bool {
		return slices.ContainsFunc(b.Events(0, time.Time{}), func(e box.Event) bool { return e.Type == is && e.Job == job })
	})
}
