package box

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/unit"
	"weft.dev/weft/test/suite"
)

// lowProfile is a configuration of the catalogue that is said to use little of its GPU, so that two of it are put together.
const lowProfile = "mobilenet:64"

// saturated is a job that always has work for its GPU, whatever its profile says, and keeps its iterations in a checkpoint.
func saturated(b *bed, name string, change ...func(*box.Spec)) box.Spec {
	return spec("", append([]func(*box.Spec){func(s *box.Spec) {
		s.Name, s.Profile, s.Memory, s.Floor, s.Migratable = name, lowProfile, 2*unit.GiB, 0.6, true
		s.Path = program("weft-train")
		s.Command = []string{"weft-train", "--name", name, "--kernels", "40", "--kernel-us", "200", "--gap-ms", "0", "--persistent", "512MiB", "--ephemeral", "0",
			"--checkpoint", filepath.Join(b.dir, name+".checkpoint"), "--resume"}
	}}, change...)...)
}

// TestWorsePair puts two jobs together that are said to use little of the GPU and use all of it. They are separated within three
// windows by a checkpoint, kept apart after, and hold their floors from then on.
func TestWorsePair(t *testing.T) {
	suite.Long(t)
	const (
		window = 4 * time.Second
		warmUp = 5 * time.Second // of a program, in which it is not observed
	)
	b := up(t, 2, "--window", window.String())
	first := b.submit(saturated(b, "first"))
	b.until(first, "running", runs)
	second := b.submit(saturated(b, "second"))
	j := b.until(second, "running", runs)
	if len(j.Beside) != 1 || j.Predicted == nil || j.Predicted.Rate < 0.75 {
		t.Fatalf("they are not put together on a good prediction: %+v %+v", j, j.Predicted)
	}
	together := time.Now()
	apart := func(j *box.Job) bool { return j.State == box.Running && len(j.Beside) == 0 && j.Attempt > 1 }
	var moved box.Job
	for moved.ID == 0 {
		for _, id := range []box.ID{first, second} {
			if j, err := b.Job(t.Context(), id); err == nil && apart(&j) {
				moved = j
			}
		}
		if time.Since(together) > patience {
			t.Fatalf("they are together after %v: %v", patience, b.run("events").out)
		}
		time.Sleep(20 * time.Millisecond)
	}
	took := time.Since(together)
	if took > warmUp+3*window {
		t.Errorf("it took %v to separate them, more than three windows of %v", took, window)
	}
	b.wantMove(&moved)
	b.wantFloors(first, second, window)
	third := b.submit(saturated(b, "third"))
	b.until(third, "kept apart", func(j *box.Job) bool { return j.State == box.Waiting && j.Reason != nil && j.Reason.Code != "Planning" })
	if text := b.run("explain", third.String()).out; !strings.Contains(text, "PairBanned") && !strings.Contains(text, "FloorResident") && !strings.Contains(text, "FloorSelf") {
		t.Errorf("a third one: %s", text)
	}
	t.Logf("separated %.1f s after both ran, %.1f windows of %v%s", took.Seconds(), took.Seconds()/window.Seconds(), window, busy())
}

// wantMove wants a move to be told, with both jobs, and to have gone on from the checkpoint.
func (b *bed) wantMove(j *box.Job) {
	b.t.Helper()
	types := map[box.EventType]int{}
	for e, err := range b.Events(b.t.Context(), 0, time.Hour, false) {
		if err != nil {
			b.t.Fatal(err)
		}
		types[e.Type]++
	}
	if types[box.EventMoved] != 1 || types[box.EventBanned] != 1 || types[box.EventResumed] != 1 || types[box.EventBelowFloor] == 0 {
		b.t.Errorf("events: %v", types)
	}
	if o := j.Operation; o == nil || o.Verb != box.Moved || !strings.Contains(o.Text, "was below its floor") {
		b.t.Errorf("operation: %+v", j.Operation)
	}
	var resumed, before int
	b.untilPrinted(j.ID, "its second start", func(stdout string) bool { return strings.Count(stdout, `"type": "start"`) == 2 })
	stdout, _ := b.output(j.ID)
	for line := range strings.Lines(stdout) {
		switch {
		case strings.Contains(line, `"type": "final"`):
			before = number(line, "iterations")
		case strings.Contains(line, `"type": "start"`):
			resumed = number(line, "resumed")
		}
	}
	if before == 0 || resumed != before {
		b.t.Errorf("it ended at iteration %d and went on from %d", before, resumed)
	}
}

// number is a member of an object of weft-train.
func number(line, name string) (n int) {
	if _, after, ok := strings.Cut(line, `"`+name+`": `); ok {
		_, _ = fmt.Sscan(strings.TrimRight(strings.SplitN(after, ",", 2)[0], "}\n"), &n) // 0 is noticed
	}
	return n
}

// wantFloors wants jobs to be at or above their floors for three windows from now.
func (b *bed) wantFloors(first, second box.ID, window time.Duration) {
	b.t.Helper()
	time.Sleep(2 * window) // the first one has some of before
	for _, id := range []box.ID{first, second} {
		b.until(id, "observed", func(j *box.Job) bool { return j.Rate != nil })
	}
	below := map[box.ID]float64{}
	for range 3 {
		for _, id := range []box.ID{first, second} {
			j, err := b.Job(b.t.Context(), id)
			if err != nil {
				b.t.Fatal(err)
			}
			if was, seen := below[id]; j.Rate == nil || *j.Rate < j.Floor || seen && j.Below > was {
				b.t.Errorf("job %d is below its floor after: %+v", id, j)
			}
			below[id] = j.Below
		}
		time.Sleep(window)
	}
}

// TestLostCheckpoint moves a job whose program dies of SIGTERM. What it lost is told, it begins anew, and is not moved again.
func TestLostCheckpoint(t *testing.T) {
	b := up(t, 2)
	for name, line := range map[string]string{
		"dies":   "echo began; exec sleep 1000",
		"fails":  "echo began; trap 'exit 3' TERM; while :; do sleep 0.1; done",
		"ignore": "echo began; trap '' TERM; while :; do sleep 0.1; done", // killed after the grace
	} {
		id := b.submit(spec(line, func(s *box.Spec) { s.Name, s.Migratable, s.Memory = name, true, 12*unit.GiB }))
		began := func(times int) {
			b.untilPrinted(id, "that it began", func(stdout string) bool { return strings.Count(stdout, "began") >= times })
		}
		on := b.until(id, "running", runs).On[0]
		began(1)
		b.drain(on, true)
		j := b.until(id, "resumed elsewhere", func(j *box.Job) bool { return j.State == box.Running && j.On[0] != on })
		if j.Attempt != 2 {
			t.Errorf("%s: %+v", name, j)
		}
		told := b.run("explain", id.String())
		if !strings.Contains(told.out, "checkpoint") {
			t.Errorf("%s: nothing is told of the checkpoint: %s", name, told.out)
		}
		b.drain(on, false)
		b.drain(j.On[0], true)
		time.Sleep(1500 * time.Millisecond) // a look at the GPUs
		again, err := b.Job(t.Context(), id)
		if err != nil || again.State != box.Running || again.Attempt != 2 {
			t.Errorf("%s: it is moved again: %v %+v", name, err, again)
		}
		b.drain(j.On[0], false)
		began(2)
		if stdout, _ := b.output(id); strings.Count(stdout, "began") != 2 {
			t.Errorf("%s: %q", name, stdout)
		}
		if _, err := b.Stop(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		b.done(id)
	}
}

func (b *bed) drain(gpu int, on bool) {
	b.t.Helper()
	if _, err := b.Drain(b.t.Context(), gpu, on); err != nil {
		b.t.Fatal(err)
	}
}

// TestMovesSurviveAKill kills the daemon between the wish to move a job and the move.
func TestMovesSurviveAKill(t *testing.T) {
	b := up(t, 2, "--grace", patience.String())
	checkpoint, back := filepath.Join(b.dir, "checkpoint"), filepath.Join(b.dir, "back")
	id := b.submit(spec(`trap 'until [ -e "$BACK" ]; do sleep 0.1; done; echo saved >"$CHECKPOINT"; exit 143' TERM; echo "attempt $WEFT_ATTEMPT $(cat "$CHECKPOINT" 2>/dev/null)"; while :; do sleep 0.1; done`,
		func(s *box.Spec) {
			s.Migratable = true
			s.Env = append(s.Env, "CHECKPOINT="+checkpoint, "BACK="+back)
		}))
	on := b.until(id, "running", runs).On[0]
	b.untilPrinted(id, "its first attempt", func(stdout string) bool { return stdout != "" })
	b.drain(on, true)
	b.until(id, "asked", func(j *box.Job) bool { return j.State == box.Stopping })
	b.kill()
	b.start()
	if err := os.WriteFile(back, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	j := b.until(id, "moved", func(j *box.Job) bool { return j.State == box.Running && j.On[0] != on })
	b.untilPrinted(id, "its second attempt", func(stdout string) bool { return strings.Count(stdout, "\n") == 2 })
	if stdout, _ := b.output(id); stdout != "attempt 1 \nattempt 2 saved\n" {
		t.Errorf("%q, %+v", stdout, j)
	}
	if _, err := os.Stat(checkpoint); err != nil {
		t.Error(err)
	}
}
