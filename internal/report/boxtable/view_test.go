package boxtable

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/plan"
	"weft.dev/weft/internal/report"
)

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{-s: "0s", 0: "0s", 59*s + 999*time.Millisecond: "59s", m: "1m", 52*m + 59*s: "52m", h: "1h00m",
		2*h + 14*m: "2h14m", 99*h + 59*m: "99h59m", 100 * h: "4d04h", math.MaxInt64: "106751d23h"} {
		if got := Span(d); got != want {
			t.Errorf("%d is %s, want %s", d, got, want)
		}
	}
	if secondsOf(1e300) < 0 || secondsOf(math.Inf(1)) < 0 || secondsOf(-3) != 0 {
		t.Error("seconds beyond what a span holds")
	}
}

func TestJobsBelowTheirFloorAndDone(t *testing.T) {
	jobs, _, _ := box1()
	jobs[2].Rate = ptr(0.78)
	done := func(outcome box.Outcome, exit *int) box.Job {
		j := jobs[3]
		j.State, j.Outcome, j.Exit = box.Done, outcome, exit
		return j
	}
	stopping, sweep, lost := jobs[1], jobs[4], done(box.Lost, nil)
	stopping.State, sweep.Index, sweep.Name = box.Stopping, ptr(3), "a name\nof more than a few letters"
	lost.Started = nil
	list := []box.Job{jobs[2], done(box.Succeeded, ptr(0)), done(box.Failed, ptr(137)), done(box.Failed, ptr(3)), done(box.TimedOut, ptr(143)), lost, stopping, sweep, jobs[6]}
	same(t, "ID  NAME          USER  STATE       GPU  RATE  FLOOR   TIME  REASON\n"+
		"43  bert-ft       ana   running     1    \x1b[31m78 %!\x1b[0m  85 %    52m\n"+
		"44  gnn-tune      carl  succeeded   -    89 %   80 %    47m\n"+
		"44  gnn-tune      carl  \x1b[31mfailed!\x1b[0m     -    89 %   80 %    47m  exit 137 (signal 9)\n"+
		"44  gnn-tune      carl  \x1b[31mfailed!\x1b[0m     -    89 %   80 %    47m  exit 3\n"+
		"44  gnn-tune      carl  \x1b[31mtimed out!\x1b[0m  -    89 %   80 %    47m\n"+
		"44  gnn-tune      carl  \x1b[31mlost!\x1b[0m       -    89 %   80 %    47m\n"+
		"42  lm-small      ben   stopping    0    41 %   20 %  1h50m\n"+
		"45  a name?of m~  dana  running     2,3  97 %   90 %  3h05m\n"+
		"47  vit-sweep     carl  \x1b[33mwaiting\x1b[0m     -       -   90 %    12m  MemoryOverflow gpu1\n", firstLines(t, list))
}

func firstLines(t *testing.T, list []box.Job) string {
	t.Helper()
	text := written(t, func(b *strings.Builder) error { return colour(80).Jobs(b, list) })
	return text
}

func TestOneLine(t *testing.T) {
	jobs, _, _ := box1()
	j := jobs[3]
	j.Beside, j.Predicted = []box.ID{43}, &box.Prediction{Rate: 0.87, Low: 0.82, High: 0.91}
	if got, want := Placed(&j), "on gpu1 beside 43, predicted 87 % (82 to 91), floor 80 %"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := Placed(&jobs[4]), "on gpu2,3 alone, floor 90 %"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	j.State, j.Outcome, j.Run, j.Exit = box.Done, box.Succeeded, 58*60+12, ptr(0)
	for _, c := range []struct {
		change func(*box.Job)
		want   string
	}{
		{func(*box.Job) {}, "done in 58m12s: mean rate 89 %, floor held, exit 0"},
		{func(j *box.Job) { j.Below = 61 }, "done in 58m12s: mean rate 89 %, below its floor for 1m01s, exit 0"},
		{func(j *box.Job) { j.Rate = nil }, "done in 58m12s: exit 0"},
		{func(j *box.Job) { j.Outcome, j.Exit = box.Stopped, ptr(143) }, "stopped in 58m12s: mean rate 89 %, floor held, exit 143 (signal 15)"},
		{func(j *box.Job) { j.Outcome, j.Exit, j.Fault, j.Rate = box.Lost, nil, "the machine went down", nil }, "lost in 58m12s: the machine went down"},
		{func(j *box.Job) { j.Outcome, j.Started, j.Fault = box.Cancelled, nil, "43 failed" }, "cancelled: 43 failed"},
		{func(j *box.Job) { j.Outcome, j.Started = box.Cancelled, nil }, "cancelled before it began"},
	} {
		x := j
		c.change(&x)
		if got := Ended(&x); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
	for r, want := range map[*box.Reason]string{nil: "Planning", {Code: plan.Quota}: "Quota", {Code: plan.Quota, Text: "Quota 8 jobs"}: "Quota 8 jobs"} {
		if got := Waits(r); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestExplainWithoutTexts(t *testing.T) {
	jobs, _, _ := box1()
	e := box.Explanation{Job: jobs[7], Ahead: []box.ID{47}, Promised: ptr(now.Add(9 * m)), Refusals: []box.Refusal{
		{GPU: 0, Reason: box.Reason{Code: plan.Priority}, Nearest: true},
		{GPU: 1, Reason: box.Reason{Code: plan.MemoryOverflow, Got: 0.31, Limit: 0.05}},
		{GPU: 2, Reason: box.Reason{Code: plan.FloorSelf, Got: 0.82, Limit: 0.9, Text: "FloorSelf"}},
		{GPU: 3, Reason: box.Reason{Code: plan.MemoryReserved, Got: float64(gibs(24)), Limit: float64(gibs(22.5))}},
		{GPU: 4, Reason: box.Reason{Code: plan.MaxResidents, Got: 5, Limit: 4}}, {GPU: 5}}}
	e.Job.GPUs = 2
	e.Job.Operation = &box.Operation{Verb: box.Evicted, Time: now.Add(-m), Text: "43 was below its floor.\nmore"}
	same(t, `
Job 48 llm-eval (dana) waits 3m: Priority after 47. 2 of 6 GPUs hold all floors.
Evicted at 14:31:07: 43 was below its floor.
Asks 2 GPUs, burstable, floor 90 %, reserved 6.0 GiB, peak 9.0 GiB
GPU   BESIDE  REFUSED BY      NUMBERS
gpu0  -       Priority        nearest
gpu1  -       MemoryOverflow  P(over) 0.31, allowed 0.05
gpu2  -       FloorSelf       keeps at least 82 %, floor 90 %
gpu3  -       MemoryReserved  24.0 GiB, usable 22.5
gpu4  -       MaxResidents    5, allowed 4
gpu5  -       -               would take it
Ahead of it: 47
Starts at 14:41 at the latest
`, written(t, func(b *strings.Builder) error { return at(80).Explain(b, &e) }))
	below := box.Explanation{Job: jobs[2], Held: 30}
	below.Job.Rate, below.Job.Run, below.Job.Predicted = ptr(0.5), 100, nil
	same(t, "Job 43 bert-ft on gpu1 alone: \x1b[31m50 %!\x1b[0m, floor 85 %, held 30 of 100 s.\n",
		written(t, func(b *strings.Builder) error { return colour(80).Explain(b, &below) }))
	done := box.Explanation{Job: jobs[2]}
	done.Job.State, done.Job.Outcome, done.Job.Exit = box.Done, box.Failed, ptr(1)
	same(t, "Job 43 bert-ft: failed in 52m00s: mean rate 93 %, floor held, exit 1.\n", written(t, func(b *strings.Builder) error { return at(80).Explain(b, &done) }))
}

func TestEventsAndStatus(t *testing.T) {
	events := []box.Event{
		{Seq: 1, Time: now.Add(-25 * h), Type: box.EventSubmitted, Job: 44, Name: "gnn-tune", Text: "by carl"},
		{Seq: 2, Time: now, Type: box.EventBelowFloor, Job: 43, GPU: ptr(1), Text: "78 % < 85 %\x1b[2J"},
		{Seq: 3, Time: now, Type: box.EventClock, Text: "stepped by -3,600 s: ignored"},
	}
	same(t, "TIME      EVENT        JOB   GPU   WHAT\nOct 29 13:32:07  submitted    44    -     gnn-tune: by carl\n"+
		"14:32:07  \x1b[31mbelow_floor!\x1b[0m  43    gpu1  78 % < 85 %?[2J\n14:32:07  clock        -     -     stepped by -3,600 s: ignored\n",
		written(t, func(b *strings.Builder) error { return colour(80).Events(b, events, true) }))
	_, _, status := box1()
	same(t, `
box1: 4 GPUs, 4 in use; 6 jobs run (7 workers), 2 wait, 0 below floor
weft 0.5, pid 812, up 74h00m, state /var/lib/weft
page http://127.0.0.1:7070/
`, written(t, func(b *strings.Builder) error { return at(80).Status(b, &status) }))
	status.Degraded, status.Emulated, status.GPUs, status.Page = []string{"gpu2 XID 79 since 02:51; 2 moved, 0 lost"}, true, 1, ""
	same(t, `
DEGRADED: gpu2 XID 79 since 02:51; 2 moved, 0 lost
box1: 1 emulated GPU, 4 in use; 6 jobs run (7 workers), 2 wait, 0 below floor
weft 0.5, pid 812, up 74h00m, state /var/lib/weft
`, written(t, func(b *strings.Builder) error { return at(80).Status(b, &status) }))
}

func TestCommandOf(t *testing.T) {
	for command, want := range map[string]string{"": "", "/usr/bin/python3 -m train --lr 1": "python3 -m train --lr 1", "python3.12 a/b.py -x": "b.py -x", "bash": "bash",
		"./train": "train", "bash run.sh": "run.sh"} {
		if got := commandOf(strings.Fields(command)); got != want {
			t.Errorf("%s is shown as %s, want %s", command, got, want)
		}
	}
}

// Whatever is chosen, the screen of top has the lines and columns that there are, and the cursor is on it.
func TestTopFitsItsScreen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		jobs, gpus, status := box1()
		for i := range jobs {
			jobs[i].ID += box.ID(rapid.SampledFrom([]int{0, 100000}).Draw(t, "more"))
			jobs[i].Name = rapid.SampledFrom([]string{"a", "\x1b[31m", "a long name that goes on and on and on", "日本語の名前"}).Draw(t, "name")
			if rapid.Bool().Draw(t, "broken") && jobs[i].Rate != nil {
				jobs[i].Rate = ptr(rapid.Float64Range(-1, 3).Draw(t, "rate"))
			}
		}
		gpus[0].InUse = gibs(rapid.Float64Range(0, 99).Draw(t, "used"))
		gpus[1].Usable = 0
		v := at(rapid.SampledFrom([]int{80, 120, 200}).Draw(t, "width"))
		v.Screen.Color = rapid.Bool().Draw(t, "color")
		top := Top{View: v, Status: status, Jobs: jobs, GPUs: gpus, Height: rapid.IntRange(1, 40).Draw(t, "height"), Order: Order(rapid.IntRange(0, 3).Draw(t, "order")),
			Filter: rapid.SampledFrom([]string{"", "a", "none"}).Draw(t, "filter"), Typing: rapid.Bool().Draw(t, "typing")}
		for _, by := range rapid.SliceOfN(rapid.IntRange(-3, 3), 0, 9).Draw(t, "moves") {
			top.Move(by)
		}
		frame := colours.ReplaceAllString(top.Frame(), "")
		lines := strings.Split(strings.TrimSuffix(frame, "\n"), "\n")
		if len(lines) > top.Height || strings.Contains(frame, "\x1b") {
			t.Fatalf("%d lines on a screen of %d:\n%s", len(lines), top.Height, frame)
		}
		for _, line := range lines {
			if n := report.Columns(line); n > v.Screen.Columns() && !strings.Contains(line, "waits") {
				t.Fatalf("%d columns: %s", n, line)
			}
		}
		if top.Chosen != 0 && top.Height > 8 && !strings.Contains(frame, "\n> ") {
			t.Fatalf("the cursor is off the screen:\n%s", frame)
		}
	})
}

func TestMilliseconds(t *testing.T) {
	for ms, want := range map[float64]string{0: " 0.0 ms", 11.8: "11.8 ms", 99.96: " 100 ms", 999.4: " 999 ms", 999.6: "  1.0 s", 6442.5: "  6.4 s"} {
		if got := milliseconds(ms); got != want {
			t.Errorf("%v ms is %q, want %q", ms, got, want)
		}
	}
}

func TestTopMoves(t *testing.T) {
	jobs, gpus, status := box1()
	top := Top{View: at(80), Status: status, Jobs: jobs, GPUs: gpus}
	for _, c := range []struct {
		by   int
		want box.ID
	}{{1, 41}, {1, 42}, {-1, 41}, {-1, 41}, {5, 46}, {99, 48}, {-99, 41}} {
		if top.Move(c.by); top.Chosen != c.want {
			t.Fatalf("%+d: %d is chosen, want %d", c.by, top.Chosen, c.want)
		}
	}
	top.Mine = "ben"
	if top.Move(-1); top.Chosen != 42 {
		t.Errorf("of ben %d is chosen", top.Chosen)
	}
	top.Filter = "nothing"
	if top.Move(1); top.Chosen != 0 {
		t.Errorf("%d is chosen of none", top.Chosen)
	}
	top.Mine, top.Filter, top.Order = "", "", ByTime
	if list := top.Listed(); len(list) != 8 || list[0] != 41 || list[5] != 46 || ByTime.Next() != ByID {
		t.Errorf("listed %v", list)
	}
}
