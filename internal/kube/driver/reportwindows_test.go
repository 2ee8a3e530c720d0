package driver

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weft.dev/weft/internal/agent"
	"weft.dev/weft/internal/unit"
)

// world is a node as the agent tells of it, with one worker on GPU 0 and whoever the test puts beside it.
type world struct {
	rapid.TB
	w     windows
	now   time.Time
	step  time.Duration // between looks
	own   agent.Job
	jobs  []agent.Job
	gpus  []agent.GPUState
	said  []due
	at    []time.Time
	taken func() bool // whether a window is taken; nil for always
}

const period = 20 * time.Second

func newWorld(t rapid.TB) *world {
	w := &world{TB: t, w: windows{period: period, of: map[string]*running{}}, now: time.Unix(1e9, 0), step: time.Second,
		own:  agent.Job{ID: 1, GPUs: []int{0}, PIDs: []int{10}, Container: &agent.Container{Claim: "own"}, Memory: []agent.JobMemory{{Peak: unit.GiB}}},
		gpus: []agent.GPUState{{GPU: 0, Utilisation: .5}, {GPU: 1}}}
	w.look()
	return w
}

// look looks once, without time passing.
func (w *world) look() {
	j := w.own
	stats := &agent.Stats{Jobs: append([]agent.Job{j}, w.jobs...), GPUs: append([]agent.GPUState(nil), w.gpus...)}
	for _, d := range w.w.look(w.now, stats, func(claim string) bool { return claim == "own" }) {
		taken := w.taken == nil || w.taken()
		if taken {
			w.said, w.at = append(w.said, d), append(w.at, w.now)
		}
		w.w.told(d.claim, taken)
	}
}

// pass lets a time pass with looks, in which the worker has so many iterations a second and loses a share of its time.
func (w *world) pass(d time.Duration, speed, lost float64) {
	for range int(d / w.step) {
		w.now = w.now.Add(w.step)
		before := w.now.Sub(time.Unix(1e9, 0)) - w.step
		w.own.Iterations += uint64(speed*(before+w.step).Seconds()) - uint64(speed*before.Seconds())
		w.own.Waited += lost * w.step.Seconds()
		w.own.Held += (1 - lost) * w.step.Seconds()
		w.own.Used += (1 - lost) / 2 * w.step.Seconds()
		w.look()
	}
}

func (w *world) lengths() (periods []int) {
	for _, d := range w.said {
		periods = append(periods, int(math.Round(d.window.Seconds/period.Seconds())))
	}
	return periods
}

func (w *world) want(what string, want ...int) {
	w.Helper()
	got := w.lengths()
	if len(got) != len(want) {
		w.Fatalf("%s: windows of %v periods, want %v", what, got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			w.Fatalf("%s: windows of %v periods, want %v", what, got, want)
		}
	}
	w.said, w.at = nil, nil
}

// TestWindowsBecomeRarer: six of a period, then ever longer ones, and short ones again when something changes.
func TestWindowsBecomeRarer(t *testing.T) {
	w := newWorld(t)
	w.pass(6*period, 5, .2)
	w.want("at first", 1, 1, 1, 1, 1, 1)
	w.pass((2+4+8+16+16)*period, 5, .2)
	w.want("while nothing changes", 2, 4, 8, 16, 16)
	w.pass(5*period, 5, .2)
	w.pass(period, 5, .5)
	w.want("it loses more", 6)
	w.pass(4*period, 5, .5)
	w.want("one that is not like the last, then longer ones again", 1, 1, 2)
	w.pass(2*period, 3, .5)
	w.want("it is slower", 1, 1)
}

// TestOneIterationIsNoChange: of slow iterations, one more or less falls into a period.
func TestOneIterationIsNoChange(t *testing.T) {
	w := newWorld(t)
	w.pass(6*period, .17, 0)
	w.want("three or four iterations in each", 1, 1, 1, 1, 1, 1)
	w.pass((2+4+8+16)*period, .17, 0)
	w.want("while nothing changes", 2, 4, 8, 16)
}

// TestNeighboursEndWindows: whoever comes or goes ends the window with the look before.
func TestNeighboursEndWindows(t *testing.T) {
	beside := agent.Job{ID: 2, GPUs: []int{0, 1}, PIDs: []int{20}, Container: &agent.Container{Claim: "other"}}
	for name, come := range map[string]func(w *world) (others int){
		"a worker":                 func(w *world) int { w.jobs = append(w.jobs, beside); return 1 },
		"a whole GPU's":            func(w *world) int { b := beside; b.Whole = true; w.jobs = append(w.jobs, b); return 1 },
		"a foreign process":        func(w *world) int { w.gpus[0].Foreign = []agent.Escaped{{PID: 30, GPU: 0}}; return 1 },
		"another one on its claim": func(w *world) int { w.own.ID, w.own.Iterations = 5, 0; return 0 },
		"a counter that went down": func(w *world) int { w.own.Waited = 0; return 0 },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.pass(period+12*time.Second, 5, .1)
			w.want("before", 1)
			come(w)
			w.pass(time.Second, 5, .1)
			if len(w.said) != 1 || w.said[0].window.Seconds != 12 || w.said[0].window.Beside != 0 || !w.said[0].window.End.Time.Equal(w.now.Add(-time.Second)) {
				w.Fatalf("%+v", w.said)
			}
			w = newWorld(t)
			w.pass(8*time.Second, 5, .1)
			others := come(w)
			w.pass(7*period, 5, .1)
			if len(w.said) != 6 || w.said[0].window.Seconds != 20 || w.said[0].window.Beside != others || w.said[0].window.Iterations > 101 {
				w.Fatalf("%+v", w.said)
			}
		})
	}
	t.Run("a process of the other that takes no turns", func(t *testing.T) {
		w := newWorld(t)
		w.jobs = append(w.jobs, beside)
		w.look()
		w.pass(period, 5, .1)
		w.want("beside one", 1)
		w.jobs[0].Escaped = []agent.Escaped{{PID: 21, GPU: 0}}
		w.pass(period+time.Second, 5, .1)
		if len(w.said) != 1 || w.said[0].window.Beside != 1 {
			w.Fatalf("%+v", w.said)
		}
		w.said = nil
		w.jobs[0].Escaped = append(w.jobs[0].Escaped, agent.Escaped{PID: 22, GPU: 1})
		w.pass(period, 5, .1)
		w.want("one on another GPU", 1)
	})
}

// TestNothingToTell: without a process, and while nothing happens, nothing is told, and that time is of no window.
func TestNothingToTell(t *testing.T) {
	w := newWorld(t)
	w.own.PIDs = nil
	w.pass(10*period, 0, 0)
	w.want("no process")
	w.own.PIDs = []int{10}
	w.look()
	for range 10 * int(period/w.step) {
		w.now = w.now.Add(w.step)
		w.look()
	}
	w.want("nothing happens")
	w.pass(2*period, 5, .1)
	w.want("it works", 1, 1)
	w.pass(15*time.Second, 5, .1)
	w.own.PIDs = nil
	w.now = w.now.Add(w.step)
	w.look()
	if len(w.said) != 1 || w.said[0].window.Seconds != 15 {
		w.Fatalf("its last window: %+v", w.said)
	}
}

// TestUntoldIsCovered: what was not taken is in the next window.
func TestUntoldIsCovered(t *testing.T) {
	w := newWorld(t)
	w.pass(2*period, 5, .1)
	away := true
	w.taken = func() bool { return !away }
	w.pass(9*period, 5, .1)
	w.want("before", 1, 1)
	away = false
	w.pass(period, 5, .1)
	if len(w.said) != 1 || w.said[0].window.Seconds != 200 || w.said[0].window.Iterations != 1000 {
		w.Fatalf("%+v", w.said)
	}
}

// TestFigures: what a window says.
func TestFigures(t *testing.T) {
	w := newWorld(t)
	w.own.GPUs, w.own.PIDs, w.own.Oldest = []int{0, 1}, []int{10, 11}, 77
	w.own.Memory = []agent.JobMemory{{Peak: unit.GiB}, {Peak: 3 * unit.GiB}}
	w.own.Stall = 4
	w.pass(10*time.Second, 5, .2)
	w.gpus[0].Utilisation = 1
	w.pass(10*time.Second, 5, .2)
	got := w.said[0].window
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-6 }
	if got.Kind != "Window" || got.Seconds != 20 || got.Iterations != 100 || got.Age != 77 || got.Beside != 0 || got.Peak.String() != "3Gi" || !near(got.Wait, 2) || !near(got.Held, 8) ||
		!near(got.Used, 4) || got.Stall != 2 || !near(got.Utilisation, .75) || !got.End.Time.Equal(w.now) {
		w.Fatalf("%+v", got)
	}
}

// TestWindowLaws: windows never overlap, cover all time but what they may leave out, are bounded in length, and add up to what the
// counters say.
func TestWindowLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		began := w.now
		faults := rapid.Bool().Draw(t, "faults")
		if faults {
			w.taken = func() bool { return rapid.IntRange(0, 3).Draw(t, "taken") > 0 }
		}
		steady := true // nobody came or went
		for range rapid.IntRange(1, 40).Draw(t, "phases") {
			switch rapid.IntRange(0, 9).Draw(t, "event") {
			case 0:
				steady = false
				w.jobs = append(w.jobs, agent.Job{ID: uint64(2 + len(w.jobs)), GPUs: []int{rapid.IntRange(0, 1).Draw(t, "gpu")}})
			case 1:
				steady = false
				w.jobs = nil
			case 2:
				steady = false
				w.own.Iterations, w.own.Waited = 0, 0
			}
			w.pass(time.Duration(rapid.IntRange(1, 400).Draw(t, "seconds"))*time.Second, rapid.Float64Range(.01, 50).Draw(t, "speed"), rapid.Float64Range(0, 1).Draw(t, "lost"))
		}
		end, iterations, waited, told := began, int64(0), 0.0, 0.0
		for i, d := range w.said {
			x := d.window
			begin := x.End.Add(-time.Duration(x.Seconds * float64(time.Second)))
			if begin.Before(end.Add(-time.Microsecond)) || x.End.After(w.at[i]) {
				t.Fatalf("window %d from %v to %v, after one to %v, told at %v", i, begin, x.End, end, w.at[i])
			}
			if most := float64(mostPeriods); !faults && (x.Seconds > most*period.Seconds() || x.Seconds < period.Seconds()/2) {
				t.Fatalf("window %d of %v s", i, x.Seconds)
			}
			if x.Wait < 0 || x.Held < 0 || x.Iterations < 0 || x.Utilisation < 0 || x.Utilisation > 1 {
				t.Fatalf("%+v", x)
			}
			if steady && begin.After(end.Add(time.Microsecond)) {
				t.Fatalf("nothing tells of %v to %v", end, begin)
			}
			end = x.End.Time
			iterations += x.Iterations
			waited += x.Wait
			told += x.Seconds
		}
		r := w.w.of["own"]
		if steady && (iterations != int64(r.first.job.Iterations) || math.Abs(waited-r.first.job.Waited) > 1e-6 || math.Abs(told-r.first.at.Sub(began).Seconds()) > 1e-6) {
			t.Fatalf("%d iterations in %v s were told, and %d in %v s there were", iterations, told, r.first.job.Iterations, r.first.at.Sub(began))
		}
		if steady && !faults && w.now.Sub(r.first.at) > (mostPeriods)*period {
			t.Fatalf("nothing told since %v", r.first.at)
		}
	})
}

// TestQuietWorkersCostLittle: at most 12 writes an hour once they are known, whatever they do, while they do it evenly.
func TestQuietWorkersCostLittle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		w.step = 4 * time.Second
		speed, lost := rapid.Float64Range(0.001, 100).Draw(t, "speed"), rapid.Float64Range(0, 1).Draw(t, "lost")
		w.pass((6+2+4+8)*period, speed, lost)
		w.said = nil
		w.pass(time.Hour, speed, lost)
		if len(w.said) > 12 {
			t.Fatalf("%d windows in an hour: %v", len(w.said), w.lengths())
		}
	})
}

// TestOneOnItsWay: while a window is not answered for, there is no other of its claim, also when the claim is given out anew.
func TestOneOnItsWay(t *testing.T) {
	w := windows{period: period, of: map[string]*running{}}
	job := agent.Job{ID: 1, GPUs: []int{0}, PIDs: []int{10}, Container: &agent.Container{Claim: "own"}}
	now, told := time.Unix(1e9, 0), 0
	pass := func(d time.Duration, jobs ...agent.Job) {
		for range int(d / time.Second) {
			now = now.Add(time.Second)
			for i := range jobs {
				jobs[i].Iterations += 5
			}
			told += len(w.look(now, &agent.Stats{Jobs: append([]agent.Job(nil), jobs...)}, func(string) bool { return true }))
		}
	}
	pass(5*period, job)
	if told != 1 {
		t.Fatalf("%d windows", told)
	}
	pass(period)
	if len(w.of) != 1 {
		t.Fatal("forgotten while a write goes on")
	}
	job.ID = 2
	pass(5*period, job)
	if told != 1 {
		t.Fatalf("%d windows", told)
	}
	w.told("own", true)
	pass(2*period, job)
	if told != 2 {
		t.Fatalf("%d windows", told)
	}
	w.told("own", false)
	pass(2 * time.Second)
	if len(w.of) != 0 {
		t.Fatal("kept for ever")
	}
}
