package placement

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/interference"
	"weft.dev/weft/internal/plan"
	"weft.dev/weft/internal/profile"
	"weft.dev/weft/internal/unit"
)

// drawnTable is three configurations of which not all pairs are measured.
func drawnTable() *interference.Table {
	table := interference.NewTable()
	table.Add(config(0), config(0), 0.9, 0.95)
	table.Add(config(0), config(1), 0.8, 0.7)
	table.Add(config(2), config(2), 1, 1)
	return table
}

// TestNothing: no jobs, jobs that all are too large, and no table.
func TestNothing(t *testing.T) {
	large := []cluster.Job{{ID: "a", Model: "m0", Workers: 3, Floor: 0.5}}
	for _, c := range []struct {
		what string
		p    func() *Problem
		gpus int
	}{
		{"no jobs", func() *Problem { return NewProblem(nil, drawnTable(), nil, Options{MaxResidents: 4}) }, 0},
		{"no jobs, no table", func() *Problem { return NewProblem(nil, nil, nil, Options{MaxResidents: 1}) }, 0},
		{"all too large", func() *Problem {
			return NewProblem(large, drawnTable(), []profile.Profile{profile.Flat(17)}, Options{MaxResidents: 4, GPUMemory: 16})
		}, 0},
		{"no table", func() *Problem { return NewProblem(large, nil, nil, Options{MaxResidents: 4}) }, 3},
		{"one resident", func() *Problem { return NewProblem(large, drawnTable(), nil, Options{MaxResidents: 1}) }, 3},
	} {
		t.Run(c.what, func(t *testing.T) {
			for _, m := range Methods() {
				p := c.p()
				q, err := m.Pack(context.Background(), p)
				if err != nil || len(q.GPUs) != c.gpus {
					t.Errorf("%s: %v, error %v, want %d GPUs", m.Name, q, err, c.gpus)
					continue
				}
				checkWhole(t, p, q)
				p.Limits(q)
			}
			if b := LowerBound(c.p()); b.Whole() != c.gpus {
				t.Errorf("bound %+v, want %d", b, c.gpus)
			}
		})
	}
}

// TestWaiting: a job that fits no GPU is in no packing and waits in the plan, with the numbers.
func TestWaiting(t *testing.T) {
	jobs := []cluster.Job{{ID: "a", Model: "m0", Workers: 2, Floor: 0.5}, {ID: "b", Model: "m0", Workers: 1, Floor: 0.5}}
	p := NewProblem(jobs, drawnTable(), []profile.Profile{profile.Flat(17), profile.Flat(16)}, Options{MaxResidents: 4, GPUMemory: 16})
	for _, m := range Methods() {
		q, err := m.Pack(context.Background(), p)
		if err != nil {
			t.Fatal(err)
		}
		decided := p.Plan(q, cluster.Empty(1))
		want := plan.Wait{Job: 0, Reason: plan.Reason{Code: plan.TooLarge, Got: 17, Limit: 16}}
		if !slices.Equal(decided.Waiting, []plan.Wait{want}) || len(decided.Operations) != 1 {
			t.Errorf("%s: plan %+v", m.Name, decided)
		}
	}
}

// TestGangs: workers of one job never meet, not where the program would like to join them, nor when they are more than
// all the others.
func TestGangs(t *testing.T) {
	twins := interference.NewTable() // they like each other only
	twins.Add(config(0), config(0), 1, 1)
	twins.Add(config(1), config(1), 1, 1)
	gangs := func(sizes ...int) (jobs []cluster.Job) {
		for i, n := range sizes {
			jobs = append(jobs, cluster.Job{ID: fmt.Sprintf("%02d", i), Model: config(i % 2).Model, Workers: n, Floor: 0.9})
		}
		return jobs
	}
	for _, c := range []struct {
		what    string
		jobs    []cluster.Job
		optimum int
	}{
		{"one gang", gangs(9), 9},
		{"two gangs that may not meet", gangs(9, 7), 16},
		{"a gang and little else", gangs(20, 1, 2), 21},
		{"equal gangs", gangs(8, 8, 8, 8, 8, 8), 16},
		{"a large and many small", gangs(12, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1), 14},
		{"two of a kind", gangs(5, 3, 4, 3), 8},
	} {
		t.Run(c.what, func(t *testing.T) {
			for _, m := range Methods() {
				p := NewProblem(c.jobs, twins, nil, Options{MaxResidents: 4})
				q, err := m.Pack(context.Background(), p)
				if err != nil {
					t.Fatal(err)
				}
				checkWhole(t, p, q)
				if n := len(q.GPUs); n < c.optimum {
					t.Errorf("%s: %d GPUs, optimum %d", m.Name, n, c.optimum)
				} else if n > 2*c.optimum && m.Name != "dedicated" {
					t.Errorf("%s: %d GPUs, more than twice the optimum %d", m.Name, n, c.optimum)
				}
			}
			if b := LowerBound(NewProblem(c.jobs, twins, nil, Options{MaxResidents: 4})); b.Whole() > c.optimum {
				t.Errorf("bound %+v, optimum %d", b, c.optimum)
			}
		})
	}
}

// TestManyKinds: every worker has memory of its own, so that the program must join kinds. What it finds holds
// the rules, its bound holds for every method, and both are worth something.
func TestManyKinds(t *testing.T) {
	for _, memory := range memories[1:] {
		t.Run(memory, func(t *testing.T) {
			if testing.Short() && memory == "binding" {
				t.Skip("SKIPPED in short mode: the program of many kinds takes seconds")
			}
			p := mixed(500, memory)
			up, joined, ok := p.classify(upward, everything)
			if !joined || !ok || len(up) > maxTypes {
				t.Fatalf("%d types, joined %t, ok %t", len(up), joined, ok)
			}
			p.checkTypes(t, up, upward)
			down, _, _ := p.classify(downward, everything)
			p.checkTypes(t, down, downward)
			bound := LowerBound(mixed(500, memory))
			best := p.Workers()
			for _, m := range Methods() {
				p := mixed(500, memory)
				q, err := m.Pack(context.Background(), p)
				if err != nil {
					t.Fatal(err)
				}
				checkWhole(t, p, q)
				if len(q.GPUs) < bound.Whole() {
					t.Errorf("%s needs %d GPUs, bound %+v", m.Name, len(q.GPUs), bound)
				}
				best = min(best, len(q.GPUs))
				t.Logf("%s: %d GPUs, bound %.2f", m.Name, len(q.GPUs), bound.GPUs)
			}
			if float64(best) > 1.25*bound.GPUs {
				t.Errorf("the best method needs %d GPUs, the bound says %.1f", best, bound.GPUs)
			}
		})
	}
}

// checkTypes: every worker that may share is in one type of its group, whose profile errs on the side it should.
func (p *Problem) checkTypes(t *testing.T, types []itemType, r rounding) {
	t.Helper()
	workers := 0
	for _, x := range types {
		workers += len(x.workers)
		for _, w := range x.workers {
			k := p.kindOf(w)
			if k.group != x.group {
				t.Fatalf("worker %d of group %d in a type of group %d", w, k.group, x.group)
			}
			for _, limit := range []unit.Bytes{x.profile.Persistent, x.profile.Peak(), k.profile.Persistent, k.profile.Peak() - 1, unit.GiB, 4 * unit.GiB} {
				own, of := profile.Overflow([]profile.Profile{k.profile}, limit), profile.Overflow([]profile.Profile{x.profile}, limit)
				if r == upward && of < own-1e-9 || r == downward && of > own+1e-9 {
					t.Fatalf("worker %d exceeds %v with probability %g, its type with %g", w, limit, own, of)
				}
			}
		}
	}
	if workers != p.Workers() {
		t.Fatalf("%d workers in types, want %d", workers, p.Workers())
	}
}

// TestKindsByUtilisation: without memory, kinds that differ in utilisation only are one type.
func TestKindsByUtilisation(t *testing.T) {
	jobs := copies(drawnTable(), 80, 0.7)
	for i := range jobs {
		jobs[i].GPUUtil = float64(i) / float64(len(jobs))
	}
	p := NewProblem(jobs, drawnTable(), nil, Options{MaxResidents: 2})
	types, _, ok := p.classify(upward, everything)
	if !ok || len(types) != 3 {
		t.Errorf("%d types, ok %t", len(types), ok)
	}
	for _, m := range Methods() {
		q, err := m.Pack(context.Background(), p)
		if err != nil {
			t.Fatal(err)
		}
		checkWhole(t, p, q)
	}
}

// wide is a problem of many groups, each of two kinds: workers that fill a GPU, and workers that fill half of one.
func wide(groups int) *Problem {
	table := interference.NewTable()
	var profiles []profile.Profile
	for i := range groups {
		table.Add(config(i), config(i), 1, 1)
		profiles = append(profiles, profile.Flat(16), profile.Flat(8))
	}
	return NewProblem(copies(table, 2, 0.9), table, profiles, Options{MaxResidents: 2, GPUMemory: 16})
}

func TestLimitError(t *testing.T) {
	var limit *LimitError
	_, err := LP(context.Background(), wide(maxTypes+1))
	if !errors.As(err, &limit) || *limit != (LimitError{"lp", "groups of jobs", maxTypes + 1, maxTypes}) ||
		err.Error() != "lp: 401 groups of jobs, at most 400" {
		t.Errorf("LP of %d groups: %v", maxTypes+1, err)
	}
	for _, groups := range []int{maxTypes/2 + 1, maxTypes} { // few enough, though their kinds are too many
		p := wide(groups)
		q, err := LP(context.Background(), p)
		if err != nil {
			t.Errorf("LP of %d groups: %v", groups, err)
			continue
		}
		checkWhole(t, p, q)
	}
	if b := LowerBound(wide(maxTypes + 1)); b.Whole() > 2*(maxTypes+1) || b.GPUs < maxTypes+1 {
		t.Errorf("bound of too many groups: %+v", b)
	}
	jobs := copies(drawnTable(), 1, 0.7)
	jobs[0].Workers = exactWorkers
	_, err = Exact(context.Background(), NewProblem(jobs, drawnTable(), nil, Options{MaxResidents: 2}))
	if !errors.As(err, &limit) || limit.Method != "exact" || limit.Got != exactWorkers+2 || limit.Limit != exactWorkers {
		t.Errorf("exact of too many workers: %v", err)
	}
	jobs[0].Model = "unknown" // counts no longer
	if _, err := Exact(context.Background(), NewProblem(jobs, drawnTable(), nil, Options{MaxResidents: 2})); err != nil {
		t.Errorf("exact of few workers that may share: %v", err)
	}
}

// TestCancelled: a method whose context has ended says so, and what it returns holds the rules.
func TestCancelled(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for _, m := range Methods()[1:] { // dedicated GPUs take no time
		p := mixed(100, "slack")
		q, err := m.Pack(ended, p)
		if !errors.Is(err, context.Canceled) || q == nil {
			t.Errorf("%s: %v, error %v", m.Name, q, err)
			continue
		}
		if broken := p.Validate(p.overlayOf(q).Snapshot()); len(broken) > 0 {
			t.Errorf("%s: %v", m.Name, broken)
		}
	}
}

// counted is a context that ends when it has been asked a number of times.
type counted struct {
	context.Context
	left int
}

func (c *counted) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestCancelledOnTheWay ends the context at every point at which a method looks.
func TestCancelledOnTheWay(t *testing.T) {
	for _, m := range Methods()[1:] {
		for _, looks := range []int{0, 1, 2, 3, 5, 20, 100, 400} {
			p := mixed(400, "none")
			q, err := m.Pack(&counted{context.Background(), looks}, p)
			if err != nil && !errors.Is(err, context.Canceled) || q == nil {
				t.Errorf("%s after %d looks: %v, error %v", m.Name, looks, q, err)
				continue
			}
			if err == nil {
				checkWhole(t, p, q)
				continue
			}
			if broken := p.Validate(p.overlayOf(q).Snapshot()); len(broken) > 0 {
				t.Errorf("%s after %d looks: %v", m.Name, looks, broken[0])
			}
			if m.Name == "heuristic" && looks > 3 {
				checkWhole(t, p, q) // greedy had ended by then
			}
		}
	}
}

// TestManyFloors: jobs that state many different floors make many groups, of which only those in use may cost time.
func TestManyFloors(t *testing.T) {
	table := interference.Catalogue("p100")
	jobs := copies(table, 20, 0.8)
	for i := range jobs {
		jobs[i].Floor = 0.8 + 0.01*float64(i*7%10)
	}
	for _, m := range Methods()[2:4] {
		p := NewProblem(jobs, table, nil, Options{MaxResidents: 4})
		q, err := m.Pack(context.Background(), p)
		if err != nil {
			t.Fatal(err)
		}
		checkWhole(t, p, q)
		// There are 380,000 sets of up to 4 that keep their floors.
		if n := len(p.sets.all); len(p.sets.groups) != 261 || n > 30_000 {
			t.Errorf("%s looked at %d sets of %d groups", m.Name, n, len(p.sets.groups))
		}
	}
}
