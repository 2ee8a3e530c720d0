package policy_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/interference"
	"weft.dev/weft/internal/placement"
	"weft.dev/weft/internal/policy"
	"weft.dev/weft/internal/profile"
	"weft.dev/weft/internal/sim"
	"weft.dev/weft/internal/unit"
)

// tolerance is the rounding of a rate against its floor.
const tolerance = 1e-9

// world is a random cluster, its jobs, and the rules by which they may share.
type world struct {
	cluster  cluster.Cluster
	jobs     []cluster.Job
	table    *interference.Table
	profiles []profile.Profile
	options  placement.Options
	order    policy.Order
	restart  time.Duration
}

func drawWorld(t *rapid.T) *world {
	w := &world{table: interference.NewTable(), options: placement.Options{MaxResidents: rapid.IntRange(1, 4).Draw(t, "residents"),
		Epsilon: rapid.SampledFrom([]float64{0, 0.05, 0.3}).Draw(t, "epsilon")}}
	for range rapid.IntRange(1, 3).Draw(t, "nodes") {
		w.cluster.Nodes = append(w.cluster.Nodes, cluster.Node{GPUs: rapid.IntRange(0, 4).Draw(t, "GPUs")})
	}
	if rapid.Bool().Draw(t, "memory binds") {
		w.options.GPUMemory = 16
	}
	rate := rapid.Float64Range(0.4, 1.1)
	for i := range 4 {
		for l := range i + 1 {
			if rapid.IntRange(0, 7).Draw(t, "measured") > 0 {
				w.table.Add(model(i), model(l), rate.Draw(t, "a"), rate.Draw(t, "b"))
			}
		}
	}
	for range rapid.IntRange(0, 14).Draw(t, "jobs") {
		w.jobs = append(w.jobs, cluster.Job{ID: fmt.Sprint(len(w.jobs)), Model: model(rapid.IntRange(0, 4).Draw(t, "model")).Model,
			Workers: rapid.SampledFrom([]int{1, 1, 1, 2, 3, 6}).Draw(t, "workers"), Share: unit.WholeGPU,
			Floor:    rapid.SampledFrom([]float64{1e-12, 0.3, 0.5, 0.8, 1}).Draw(t, "floor"),
			Class:    cluster.Class(rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "class")),
			Submit:   unit.Seconds(float64(rapid.IntRange(0, 20).Draw(t, "submit"))),
			Duration: time.Duration(rapid.IntRange(0, 30).Draw(t, "duration")) * time.Second})
		shape, _ := profile.NamedShape(rapid.SampledFrom(profile.ShapeNames()).Draw(t, "shape"))
		persistent := unit.Bytes(rapid.IntRange(0, 8).Draw(t, "persistent"))
		w.profiles = append(w.profiles, profile.New(persistent, persistent+unit.Bytes(rapid.IntRange(0, 9).Draw(t, "ephemeral")), shape))
	}
	slices.SortStableFunc(w.jobs, func(a, b cluster.Job) int { return int(a.Submit - b.Submit) })
	w.order, _ = policy.OrderByName(rapid.SampledFrom(policy.OrderNames()).Draw(t, "order"))
	for i := range w.order.Limits {
		w.order.Limits[i] = time.Duration(5*(i+1)) * time.Second
	}
	w.restart = time.Duration(rapid.IntRange(0, 3).Draw(t, "restart")) * time.Second
	return w
}

func model(i int) interference.Config { return interference.Config{Model: fmt.Sprintf("m%d", i)} }

func (w *world) problem() *placement.Problem {
	return placement.NewProblem(w.jobs, w.table, w.profiles, w.options)
}

// rates is the rate of each of the jobs that share one GPU, by definition.
func (w *world) rates(residents []int) []float64 {
	rates := make([]float64, len(residents))
	for i, a := range residents {
		slowdown := 1.0
		for l, b := range residents {
			if i == l {
				continue
			}
			x, known := w.table.Lookup(interference.Config{Model: w.jobs[a].Model})
			y, also := w.table.Lookup(interference.Config{Model: w.jobs[b].Model})
			if !known || !also {
				slowdown = math.Inf(1)
				continue
			}
			slowdown += w.table.Added(x, y)
		}
		rates[i] = 1 / slowdown
	}
	return rates
}

// may says whether the jobs may share a GPU, from the definitions of C1..C5 and the classes. slack widens what memory
// may overflow.
func (w *world) may(residents []int, slack float64) error {
	var classes [3]int
	var profiles []profile.Profile
	for i, j := range residents {
		if slices.Contains(residents[:i], j) {
			return fmt.Errorf("two workers of job %d", j)
		}
		classes[w.jobs[j].Class]++
		profiles = append(profiles, w.profiles[j])
	}
	for i, rate := range w.rates(residents) {
		if floor := w.jobs[residents[i]].Floor; rate <= 0 || rate < floor-tolerance {
			return fmt.Errorf("job %d runs at %g, its floor is %g", residents[i], rate, floor)
		}
	}
	switch limit := w.options.GPUMemory; {
	case len(residents) > w.options.MaxResidents:
		return fmt.Errorf("%d residents, at most %d", len(residents), w.options.MaxResidents)
	case classes[cluster.Guaranteed] > 0 && len(residents) > 1 && (len(residents) > 2 || classes[cluster.BestEffort] != 1),
		classes[cluster.BestEffort] > 2:
		return fmt.Errorf("classes %v", classes)
	case limit > 0 && profile.Overflow(profiles, limit) > w.options.Epsilon+slack:
		return fmt.Errorf("overflow %g", profile.Overflow(profiles, limit))
	}
	return nil
}

// watched is a placer that checks the contract of every interface the simulator uses, at every call.
type watched struct {
	*policy.Sharing
	drain *policy.Draining // nil: plain sharing
	w     *world
	t     *rapid.T
	pause time.Duration
	held  map[int][]policy.Slot
	told  map[int]float64
}

// adjusted shows Adjust only where there is one.
type adjusted struct{ *watched }

func watch(t *rapid.T, w *world, draining bool, pause time.Duration) policy.Placer {
	x := &watched{w: w, t: t, pause: pause, held: map[int][]policy.Slot{}, told: map[int]float64{}}
	if !draining {
		x.Sharing = policy.NewSharing(w.problem(), w.cluster)
		return x
	}
	x.drain = policy.NewDraining(w.problem(), w.cluster, pause)
	x.Sharing = x.drain.Sharing
	return adjusted{x}
}

func (x *watched) residents() map[policy.Slot][]int {
	on := map[policy.Slot][]int{}
	for job := range x.w.jobs {
		for _, s := range x.held[job] {
			on[s] = append(on[s], job)
		}
	}
	return on
}

func (x *watched) check() {
	for slot, residents := range x.residents() {
		if slot.GPU < 0 || int(slot.Node) >= len(x.w.cluster.Nodes) || int(slot.GPU) >= x.w.cluster.Nodes[slot.Node].GPUs {
			x.t.Fatalf("no GPU %v", slot)
		}
		if err := x.w.may(residents, tolerance); err != nil {
			x.t.Fatalf("GPU %v with jobs %v: %v", slot, residents, err)
		}
	}
}

func (x *watched) took(job int, slots []policy.Slot) {
	if len(slots) != x.w.jobs[job].Workers {
		x.t.Fatalf("%d GPUs for job %d of %d workers", len(slots), job, x.w.jobs[job].Workers)
	}
	x.held[job], x.told[job] = slices.Clone(slots), 1
	x.check()
}

func (x *watched) Place(job int) ([]policy.Slot, bool) {
	place := x.Sharing.Place
	if x.drain != nil {
		place = x.drain.Place
	}
	slots, ok := place(job)
	if ok {
		x.took(job, slots)
	} else if x.w.options.GPUMemory == 0 && x.couldPlace(job) {
		x.t.Fatalf("job %d finds no room beside %v", job, x.residents())
	}
	return slots, ok
}

// couldPlace says whether enough GPUs would take a worker of the job, each by itself, which is all that a gang needs.
func (x *watched) couldPlace(job int) bool {
	on, n := x.residents(), 0
	for node, m := range x.w.cluster.Nodes {
		for g := range m.GPUs {
			if x.w.may(append(slices.Clone(on[policy.Slot{Node: int32(node), GPU: int32(g)}]), job), 0) == nil {
				n++
			}
		}
	}
	return n >= x.w.jobs[job].Workers
}

func (x *watched) Retake(job int, slots []policy.Slot) bool {
	fits := true
	on := x.residents()
	for _, s := range slots {
		fits = fits && x.w.may(append(slices.Clone(on[s]), job), 0) == nil
	}
	ok := x.Sharing.Retake(job, slots)
	if !ok && fits && x.w.options.GPUMemory == 0 {
		x.t.Fatalf("job %d may not return to %v beside %v", job, slots, on)
	}
	if ok {
		x.took(job, slots)
	}
	return ok
}

func (x *watched) Release(job int, slots []policy.Slot) {
	if !slices.Equal(slots, x.held[job]) {
		x.t.Fatalf("job %d releases %v, holds %v", job, slots, x.held[job])
	}
	delete(x.held, job)
	delete(x.told, job)
	if x.drain != nil {
		x.drain.Release(job, slots)
	} else {
		x.Sharing.Release(job, slots)
	}
}

func (x *watched) Rates(yield func(job int, rate float64)) {
	last := -1
	rates := x.Sharing.Rates
	if x.drain != nil {
		rates = x.drain.Rates
	}
	rates(func(job int, rate float64) {
		if job <= last {
			x.t.Fatalf("rate of job %d after that of %d", job, last)
		}
		last = job
		x.told[job] = rate
		yield(job, rate)
	})
	on := x.residents()
	for job, slots := range x.held {
		want := 1.0
		for _, s := range slots {
			want = min(want, x.w.rates(on[s])[slices.Index(on[s], job)])
		}
		if math.Abs(x.told[job]-want) > tolerance {
			x.t.Fatalf("job %d was told the rate %g, by definition %g", job, x.told[job], want)
		}
	}
}

// Adjust checks that draining uses no more GPUs than before, one less for each time that jobs moved, and tells the
// truth about every move.
func (x adjusted) Adjust(now unit.Time, moved func(int, []policy.Slot, time.Duration)) unit.Time {
	before := len(x.residents())
	moves := map[int]bool{}
	due := x.drain.Adjust(now, func(job int, slots []policy.Slot, pause time.Duration) {
		if slices.Equal(slots, x.held[job]) && !moves[job] || pause != x.pause {
			x.t.Fatalf("job %d moved from %v to %v for %v", job, x.held[job], slots, pause)
		}
		moves[job] = true
		x.held[job], x.told[job] = slices.Clone(slots), 1
		moved(job, slots, pause)
	})
	x.check()
	if after := len(x.residents()); after > before || len(moves) > 0 && after == before {
		x.t.Fatalf("%d GPUs in use after moves of %v, %d before", after, moves, before)
	}
	return due
}

// TestSharing replays random jobs with sharing and with draining, under every order, and compares what happened with
// the definitions.
func TestSharing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		draining := rapid.Bool().Draw(t, "draining")
		pause := time.Duration(rapid.IntRange(0, 2).Draw(t, "pause")) * time.Second
		run := func() *sim.Result {
			r, err := sim.Run(context.Background(), sim.Config{Cluster: w.cluster, Jobs: w.jobs, Order: w.order,
				Placer: watch(t, w, draining, pause), RestartCost: w.restart, Spans: true})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		r := run()
		if diff := cmp.Diff(r, run()); diff != "" {
			t.Fatalf("same input, another result (-first +second)\n%s", diff)
		}
		w.checkRefusals(t, r)
		work := w.replaySpans(t, r.Spans)
		for i, o := range r.Outcomes {
			if !o.Ended {
				continue
			}
			w.checkOutcome(t, &r.Outcomes[i], work[i], max(pause, w.restart))
		}
		if r.BrokenFloors != 0 {
			t.Errorf("%d broken floors", r.BrokenFloors)
		}
	})
}

// TestDrainingMoves is worked out by hand: a and b share a GPU, c and d the next, each at rate 0.8. When b and d have
// ended, one of a and c moves to the other, unless the move costs too much or would break its floor.
func TestDrainingMoves(t *testing.T) {
	for _, c := range []struct {
		what       string
		floor      float64
		pause      time.Duration
		migrations int
	}{
		{"worth it", 0.5, 2 * time.Second, 1},
		{"half of the 10 s that it ran", 0.5, 5 * time.Second, 1},
		{"costs more than it saves", 0.5, 5*time.Second + 1, 0},
		{"no credit", 0.8, 2 * time.Second, 0},
		{"free", 0.8, 0, 1},
		{"may not share so", 0.81, 0, 0},
	} {
		t.Run(c.what, func(t *testing.T) {
			w := &world{cluster: cluster.Uniform(1, 4), table: interference.NewTable(), options: placement.Options{MaxResidents: 2}}
			w.table.Add(model(0), model(0), 0.8, 0.8)
			for i, seconds := range []int{100, 8, 100, 8} {
				w.jobs = append(w.jobs, cluster.Job{ID: fmt.Sprint(i), Model: model(0).Model, Workers: 1, Share: unit.WholeGPU,
					Floor: c.floor, Duration: time.Duration(seconds) * time.Second})
			}
			w.profiles = make([]profile.Profile, len(w.jobs))
			r, err := sim.Run(context.Background(), sim.Config{Cluster: w.cluster, Jobs: w.jobs, Order: policy.FIFO(),
				Placer: policy.NewDraining(w.problem(), w.cluster, c.pause), Spans: true})
			if err != nil {
				t.Fatal(err)
			}
			if r.Migrations != c.migrations || r.BrokenFloors != 0 {
				t.Errorf("%d migrations, want %d; %d broken floors; usage %v", r.Migrations, c.migrations, r.BrokenFloors, r.Usage)
			}
			w.replaySpans(t, r.Spans)
		})
	}
}

// fataler is a test or a check of one.
type fataler interface {
	Fatalf(format string, args ...any)
}

func (w *world) checkRefusals(t *rapid.T, r *sim.Result) {
	refused := map[int]bool{}
	for _, x := range r.Refused {
		refused[x.Job] = true
		limit := w.options.GPUMemory
		if w.jobs[x.Job].Workers <= w.cluster.GPUs() && (limit == 0 || w.profiles[x.Job].Peak() <= limit) {
			t.Errorf("job %d was refused: %s", x.Job, x.Reason)
		}
	}
	for i, o := range r.Outcomes {
		if o.Ended == refused[i] {
			t.Errorf("job %d: ended %t, refused %t", i, o.Ended, refused[i])
		}
	}
}

// replaySpans checks who shared each GPU with whom between any two changes, and adds up the work that each job could do
// at the rates that follow.
func (w *world) replaySpans(t fataler, spans []sim.Span) []time.Duration {
	var times []unit.Time
	for _, s := range spans {
		times = append(times, s.Start, s.End)
	}
	slices.Sort(times)
	times = slices.Compact(times)
	work := make([]time.Duration, len(w.jobs))
	for i := 1; i < len(times); i++ {
		on := map[int32][]int{}
		for _, s := range spans {
			if s.Start <= times[i-1] && times[i] <= s.End {
				on[s.GPU] = append(on[s.GPU], int(s.Job))
			}
		}
		rates, workers := map[int]float64{}, map[int]int{}
		for gpu, residents := range on {
			if err := w.may(residents, tolerance); err != nil {
				t.Fatalf("GPU %d with jobs %v at %v: %v", gpu, residents, times[i-1], err)
			}
			for k, rate := range w.rates(residents) {
				job := residents[k]
				if workers[job]++; workers[job] == 1 || rate < rates[job] {
					rates[job] = rate
				}
			}
		}
		for job, rate := range rates {
			if workers[job] != w.jobs[job].Workers {
				t.Fatalf("%d workers of job %d at %v, of %d", workers[job], job, times[i-1], w.jobs[job].Workers)
			}
			work[job] += time.Duration(float64(times[i].Sub(times[i-1])) * rate)
		}
	}
	return work
}

// checkOutcome compares a job's end with the work that it could do: all of its own, and what its pauses cost.
func (w *world) checkOutcome(t *rapid.T, o *sim.Outcome, work, pause time.Duration) {
	const rounding = time.Microsecond // of some hundred changes of rate
	j := &w.jobs[o.Job]
	pauses := pause * time.Duration(o.Preemptions+o.Migrations)
	if work < j.Duration-rounding || work > j.Duration+pauses+rounding {
		t.Errorf("job %d of %v did %v of work, with pauses of up to %v", o.Job, j.Duration, work, pauses)
	}
	if most := j.Duration.Seconds()/j.Floor + pauses.Seconds() + rounding.Seconds()/j.Floor; o.Slowdown < 1 || o.Run < j.Duration || o.Run.Seconds() > most {
		t.Errorf("job %d of %v at floor %g ran for %v, at most %g s: slowdown %g", o.Job, j.Duration, j.Floor, o.Run, most, o.Slowdown)
	}
	if !w.order.Preemptive && o.Run.Seconds()*j.Floor > (j.Duration+rounding).Seconds() {
		t.Errorf("job %d of %v ran for %v with %d moves, which brings it below its floor %g", o.Job, j.Duration, o.Run, o.Migrations, j.Floor)
	}
	if o.Broken {
		t.Errorf("job %d: its floor counts as broken", o.Job)
	}
}
