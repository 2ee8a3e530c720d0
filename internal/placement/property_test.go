package placement

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/plan"
)

// algorithms are the methods whose packings must hold every constraint.
var algorithms = map[string]func(context.Context, *Problem) (*Packing, error){
	"greedy":    Greedy,
	"heuristic": Heuristic,
	"exact":     Exact,
	"lp":        LP,
}

// mustPack runs a method and checks that the packing is complete and holds C1..C5, by the independent judge.
func mustPack(t *rapid.T, name string, s *scene) (*Problem, *Packing) {
	p := s.problem()
	q, err := algorithms[name](context.Background(), p)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	seen := map[cluster.Worker]bool{}
	for g, residents := range q.GPUs {
		var jobs []int
		for _, w := range residents {
			if seen[w] {
				t.Fatalf("%s: worker %d stands twice", name, w)
			}
			seen[w] = true
			jobs = append(jobs, p.Job(w))
		}
		if len(jobs) > s.options.MaxResidents || !s.judge(jobs) {
			t.Fatalf("%s: GPU %d holds jobs %v against the rules", name, g, jobs)
		}
	}
	for j := range s.jobs {
		first, end := p.WorkersOf(j)
		for w := first; w < end; w++ {
			if seen[w] == p.TooLarge(j) {
				t.Fatalf("%s: worker %d of job %d: placed %t, too large %t", name, w, j, seen[w], p.TooLarge(j))
			}
		}
	}
	return p, q
}

func TestPackingsHoldTheRulesAndTheirGuarantees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScene(t, rapid.IntRange(1, 12).Draw(t, "workers"), 3)
		optimum := s.optimum()
		if b := LowerBound(s.problem()); b.Whole() > optimum {
			t.Fatalf("lower bound %+v is above the optimum %d", b, optimum)
		}
		for name := range algorithms {
			p, q := mustPack(t, name, s)
			n := len(q.GPUs)
			if n < optimum {
				t.Fatalf("%s needs %d GPUs, fewer than the optimum %d", name, n, optimum)
			}
			if limit := s.guarantee(name, p, optimum); float64(n) > limit {
				t.Fatalf("%s needs %d GPUs, above its guarantee %.1f (optimum %d)", name, n, limit, optimum)
			}
			if f := p.Figures(q); f.BrokenFloors > 0 {
				t.Fatalf("%s breaks %d floors", name, f.BrokenFloors)
			}
		}
	})
}

// guarantee is what each method promises against the optimum. Merged memory levels err on the safe side, by which a
// method may refuse what the optimum uses: nothing is promised then.
func (s *scene) guarantee(name string, p *Problem, optimum int) float64 {
	if s.grain > 1 && s.options.GPUMemory > 0 {
		return math.Inf(1)
	}
	switch name {
	case "exact":
		pairs := *s
		pairs.options.MaxResidents = min(2, s.options.MaxResidents)
		return float64(pairs.optimum())
	case "lp":
		if types, joined, _ := p.classify(upward, everything); !joined && !s.gangs() {
			return float64(optimum + len(types))
		}
		return math.Inf(1)
	}
	return float64(s.options.MaxResidents+1) / 2 * float64(optimum)
}

func (s *scene) gangs() bool {
	return slices.ContainsFunc(s.jobs, func(j cluster.Job) bool { return j.Workers > 1 })
}

func TestPackingsOfManyWorkersHoldTheRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScene(t, rapid.IntRange(10, 120).Draw(t, "workers"), 20)
		for name := range algorithms {
			mustPack(t, name, s)
		}
	})
}

// described is a packing by job IDs: what a user sees of it.
func described(p *Problem, q *Packing) []string {
	var gpus []string
	for _, residents := range q.GPUs {
		var ids []string
		for _, w := range residents {
			ids = append(ids, p.Jobs()[p.Job(w)].ID)
		}
		slices.Sort(ids)
		gpus = append(gpus, strings.Join(ids, "+"))
	}
	slices.Sort(gpus)
	return gpus
}

func TestShuffledJobsGiveTheSamePlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScene(t, rapid.IntRange(2, 40).Draw(t, "workers"), 4)
		order := rapid.Permutation(indexes(len(s.jobs))).Draw(t, "order")
		shuffled := &scene{table: s.table, options: s.options, grain: s.grain}
		for _, j := range order {
			shuffled.jobs = append(shuffled.jobs, s.jobs[j])
			shuffled.profiles = append(shuffled.profiles, s.profiles[j])
		}
		for name := range algorithms {
			p, q := mustPack(t, name, s)
			p2, q2 := mustPack(t, name, shuffled)
			if a, b := described(p, q), described(p2, q2); !slices.Equal(a, b) {
				t.Fatalf("%s: shuffled list gives another plan:\n%v\n%v", name, a, b)
			}
		}
	})
}

func indexes(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// TestPackerConserves adds and removes jobs at random on a bounded cluster: after every step each GPU holds the rules,
// every worker is where the packer says, and a refused gang leaves no trace.
func TestPackerConserves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScene(t, rapid.IntRange(2, 40).Draw(t, "workers"), 6)
		p := s.problem()
		k := NewPacker(p, rapid.IntRange(1, 12).Draw(t, "GPUs"))
		running := map[int]bool{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			j := rapid.IntRange(0, len(s.jobs)-1).Draw(t, "job")
			before := k.overlay.Snapshot()
			if rapid.IntRange(0, 4).Draw(t, "drain") == 0 {
				g := cluster.GPU(rapid.IntRange(0, k.overlay.GPUs()-1).Draw(t, "GPU"))
				inUse, worth := k.InUse(), rapid.Bool().Draw(t, "worth")
				moved := k.Drain(g, func([]int) bool { return worth })
				if drained := len(moved) > 0; drained && (k.InUse() != inUse-1 || !worth) ||
					!drained && !sameResidents(before, k.overlay.Snapshot()) {
					t.Fatalf("drain of GPU %d moved %v, worth %t, %d GPUs in use before, %d after", g, moved, worth, inUse, k.InUse())
				}
			} else if running[j] && rapid.Bool().Draw(t, "put back") {
				first, end := p.WorkersOf(j)
				var gpus []cluster.GPU
				for w := first; w < end; w++ {
					gpus = append(gpus, k.overlay.Place(w))
				}
				k.Remove(j)
				if !k.AddAt(j, gpus) || !sameResidents(before, k.overlay.Snapshot()) {
					t.Fatalf("job %d cannot return to %v", j, gpus)
				}
			} else if running[j] {
				k.Remove(j)
				delete(running, j)
			} else if _, r := k.Add(j); !r.Refused() {
				running[j] = true
			} else if !sameResidents(before, k.overlay.Snapshot()) {
				t.Fatalf("refused job %d left a trace", j)
			}
			checkPacker(t, s, k, running)
		}
	})
}

func checkPacker(t *rapid.T, s *scene, k *Packer, running map[int]bool) {
	workers, inUse := 0, 0
	for g := range k.overlay.GPUs() {
		var jobs []int
		for _, w := range k.overlay.Residents(cluster.GPU(g)) {
			jobs = append(jobs, k.p.Job(w))
			if !running[k.p.Job(w)] {
				t.Fatalf("GPU %d holds job %d, which does not run", g, k.p.Job(w))
			}
		}
		workers += len(jobs)
		if len(jobs) > 0 {
			inUse++
		}
		if len(jobs) > s.options.MaxResidents || !s.judge(jobs) {
			t.Fatalf("GPU %d holds jobs %v against the rules", g, jobs)
		}
		if !k.trees[k.set[g]].Has(fill{k.size[g], cluster.GPU(g)}) {
			t.Fatalf("GPU %d is not in the tree of its set", g)
		}
	}
	for j := range running {
		workers -= s.jobs[j].Workers
	}
	if workers != 0 || inUse != k.InUse() {
		t.Fatalf("%d workers too many, %d GPUs in use, packer says %d", workers, inUse, k.InUse())
	}
	if broken := k.p.Validate(k.overlay.Snapshot()); len(broken) > 0 {
		t.Fatalf("validate: %v", broken)
	}
}

func sameResidents(a, b *cluster.Snapshot) bool {
	for g := range a.GPUs() {
		if !slices.Equal(a.Residents(cluster.GPU(g)), b.Residents(cluster.GPU(g))) {
			return false
		}
	}
	return a.GPUs() == b.GPUs()
}

// TestPlanFolds: a packing's plan folds onto idle GPUs and validates; a plan for another revision is refused.
func TestPlanFolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScene(t, rapid.IntRange(1, 30).Draw(t, "workers"), 4)
		p, q := mustPack(t, "greedy", s)
		idle := cluster.Empty(len(q.GPUs))
		decided := p.Plan(q, idle)
		after, err := plan.Fold(idle, decided, p.Workers())
		if err != nil {
			t.Fatal(err)
		}
		if broken := p.Validate(after); len(broken) > 0 {
			t.Fatalf("validate: %v", broken)
		}
		if len(decided.Operations) > 0 {
			if _, err := plan.Fold(after, decided, p.Workers()); err == nil {
				t.Fatal("a plan folded twice")
			}
		}
	})
}

// TestValidateAgreesWithTheJudge: Validate refuses exactly the sets that the definitions refuse.
func TestValidateAgreesWithTheJudge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScene(t, 8, 2)
		p := s.problem()
		o := cluster.NewOverlay(cluster.Empty(1), p.Workers())
		var jobs []int
		for w := range p.Workers() {
			if rapid.IntRange(0, 2).Draw(t, "take") == 0 {
				o.Add(cluster.Worker(w), 0)
				jobs = append(jobs, p.Job(cluster.Worker(w)))
			}
		}
		fits := len(jobs) <= s.options.MaxResidents && s.judge(jobs)
		if got := len(p.Validate(o.Snapshot())) == 0; got != fits {
			t.Fatalf("jobs %v: validate says %t, the definitions %t", jobs, got, fits)
		}
	})
}
