package placement

import (
	"context"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/interference"
	"weft.dev/weft/internal/plan"
)

// drawRuled is a scene under a rule that admits configurations up to a sum of weights, and no two of some pairs.
func drawRuled(t *rapid.T, workers, gang int) *scene {
	s := drawScene(t, workers, gang)
	n := s.table.Len()
	weight, apart := make([]int, n), map[[2]int]bool{}
	for i := range weight {
		weight[i] = rapid.IntRange(0, 5).Draw(t, "weight")
		for l := range i + 1 {
			apart[[2]int{l, i}] = rapid.IntRange(0, 5).Draw(t, "apart") == 0
		}
	}
	s.options.Admit = func(configs []int) bool {
		sum := 0
		for k, i := range configs {
			sum += weight[i]
			for _, l := range configs[:k] {
				if apart[[2]int{l, i}] {
					return false
				}
			}
		}
		if !slices.IsSorted(configs) || len(configs) < 2 || len(configs) > s.options.MaxResidents {
			t.Fatalf("asked about %v", configs)
		}
		return sum <= 10
	}
	return s
}

// admitted says whether a rule admits the jobs of one GPU, C1, C2, C4, C5 and the classes hold, and all pairs are measured.
func (s *scene) admitted(jobs []int) bool {
	free := *s
	free.jobs = slices.Clone(s.jobs)
	for j := range free.jobs {
		free.jobs[j].Floor = 1e-6 // no measured rate is as low
	}
	if len(jobs) > s.options.MaxResidents || !free.judge(jobs) {
		return false
	}
	var configs []int
	for _, j := range jobs {
		if i, ok := s.table.Lookup(interference.Config{Model: s.jobs[j].Model, Batch: s.jobs[j].Batch}); ok {
			configs = append(configs, i)
		}
	}
	slices.Sort(configs)
	return len(jobs) < 2 || s.options.Admit(configs)
}

// TestPackingsHoldARule: every method keeps the rule that stands in for C3, and no bound is above what a method needs.
func TestPackingsHoldARule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawRuled(t, rapid.IntRange(1, 40).Draw(t, "workers"), 4)
		bound := LowerBound(s.problem())
		for name, pack := range algorithms {
			p := s.problem()
			q, err := pack(context.Background(), p)
			if err != nil {
				t.Fatal(err)
			}
			placed := 0
			for g, residents := range q.GPUs {
				placed += len(residents)
				if jobs := jobsOf(p, residents); !s.admitted(jobs) {
					t.Fatalf("%s: GPU %d holds jobs %v against the rule", name, g, jobs)
				}
			}
			for j := range s.jobs {
				if p.TooLarge(j) {
					placed += s.jobs[j].Workers
				}
			}
			if placed != p.Workers() || len(q.GPUs) < bound.Whole() {
				t.Fatalf("%s: %d of %d workers on %d GPUs, bound %v", name, placed, p.Workers(), len(q.GPUs), bound)
			}
		}
	})
}

func jobsOf(p *Problem, residents []cluster.Worker) []int {
	jobs := make([]int, len(residents))
	for i, w := range residents {
		jobs[i] = p.Job(w)
	}
	return jobs
}

// TestRulesThatExist: a rule that says what the floors say gives the plans of the floors, and one that admits everything
// those without floors.
func TestRulesThatExist(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScene(t, rapid.IntRange(1, 40).Draw(t, "workers"), 4)
		floor := rapid.SampledFrom([]float64{0.5, 0.7, 0.8, 0.9, 1}).Draw(t, "floor of all")
		for j := range s.jobs {
			s.jobs[j].Floor = floor
		}
		floors, everything := s.clone(), s.clone()
		floors.options.Admit = func(configs []int) bool {
			for i, a := range configs {
				slowdown := 1.0
				for k, b := range configs {
					if k != i {
						slowdown += s.table.Added(a, b)
					}
				}
				if 1/slowdown < floor-floorTolerance {
					return false
				}
			}
			return true
		}
		everything.options.Admit = func([]int) bool { return true }
		none := s.clone()
		none.options.NoFloors = true
		for name, pack := range algorithms {
			same := func(what string, a, b *scene) {
				p, p2 := a.problem(), b.problem()
				q, err := pack(context.Background(), p)
				q2, err2 := pack(context.Background(), p2)
				if err != nil || err2 != nil || !slices.Equal(described(p, q), described(p2, q2)) {
					t.Fatalf("%s, %s: %v, as a rule %v", name, what, described(p, q), described(p2, q2))
				}
			}
			same("floors", s, floors)
			same("no floors", none, everything)
		}
	})
}

// TestPackerHoldsARule adds, removes and moves jobs at random: after every step each GPU holds the rule, Takes agrees with
// the definitions, and what is refused changes nothing.
func TestPackerHoldsARule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawRuled(t, rapid.IntRange(2, 30).Draw(t, "workers"), 4)
		p := s.problem()
		k := NewPacker(p, rapid.IntRange(1, 10).Draw(t, "GPUs"))
		running := map[int]bool{}
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			j := rapid.IntRange(0, len(s.jobs)-1).Draw(t, "job")
			g := cluster.GPU(rapid.IntRange(0, k.overlay.GPUs()-1).Draw(t, "GPU"))
			before := k.overlay.Snapshot()
			takes := s.admitted(append(jobsOf(p, k.Residents(g)), j))
			if got := k.Takes(j, g); got != takes {
				t.Fatalf("GPU %d with jobs %v takes job %d: %t, by definition %t", g, jobsOf(p, k.Residents(g)), j, got, takes)
			}
			w, _ := p.WorkersOf(j)
			switch {
			case running[j] && rapid.Bool().Draw(t, "move"):
				moved := k.MoveTo(w, g)
				if moved != takes || moved && k.overlay.Place(w) != g {
					t.Fatalf("job %d moved to GPU %d: %t, taken there: %t", j, g, moved, takes)
				}
				if !moved && !sameResidents(before, k.overlay.Snapshot()) {
					t.Fatalf("job %d stays, yet something moved", j)
				}
			case running[j]:
				k.Remove(j)
				delete(running, j)
			default:
				if _, r := k.Add(j); !r.Refused() {
					running[j] = true
				}
			}
			for g := range k.overlay.GPUs() {
				if jobs := jobsOf(p, k.overlay.Residents(cluster.GPU(g))); len(jobs) > 0 && !s.admitted(jobs) {
					t.Fatalf("GPU %d holds jobs %v against the rule", g, jobs)
				}
			}
			if broken := p.Validate(k.overlay.Snapshot()); len(broken) > 0 {
				t.Fatalf("validate: %v", broken)
			}
		}
	})
}

// TestRuleMayChange: what a rule depends on counts once the packer was told, and the refusal names the rule.
func TestRuleMayChange(t *testing.T) {
	table := interference.NewTable()
	table.Add(config(0), config(0), 0.1, 0.1)
	open := true
	o := Options{MaxResidents: 2, Admit: func([]int) bool { return open }}
	var jobs []cluster.Job
	for _, id := range []string{"a", "b"} {
		jobs = append(jobs, cluster.Job{ID: id, Model: config(0).Model, Workers: 1, Floor: 1})
	}
	p := NewProblem(jobs, table, nil, o)
	k := NewPacker(p, 2)
	k.Add(0)
	k.Add(1)
	if k.InUse() != 1 {
		t.Fatalf("%d GPUs in use, want 1: the rule does not look at floors", k.InUse())
	}
	open = false
	k.Refresh()
	broken := p.Validate(k.overlay.Snapshot())
	if len(broken) != 1 || broken[0].Reason != (plan.Reason{Code: plan.Rule}) || broken[0].Reason.String() != "Rule" {
		t.Fatalf("validate: %v", broken)
	}
	if !k.Rehouse(1) || k.InUse() != 2 || k.Takes(1, k.overlay.Place(0)) {
		t.Fatalf("%d GPUs in use after one left", k.InUse())
	}
}
