package placement

import (
	"cmp"
	"context"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/plan"
	"weft.dev/weft/internal/unit"
)

// clone is a scene whose jobs can be changed.
func (s *scene) clone() *scene {
	c := *s
	c.jobs, c.profiles = slices.Clone(s.jobs), slices.Clone(s.profiles)
	return &c
}

func exactGPUs(t *rapid.T, s *scene) int {
	q, err := Exact(context.Background(), s.problem())
	if err != nil {
		t.Fatal(err)
	}
	return len(q.GPUs)
}

// lawful compares a scene with an easier one: neither the optimum of pairs nor the bound may be higher. Scenes of grain 1
// merge no levels, so that memory is judged alike in both.
func lawful(t *rapid.T, what string, easier, harder *scene) {
	t.Helper()
	if a, b := exactGPUs(t, easier), exactGPUs(t, harder); a > b {
		t.Fatalf("%s: exact needs %d GPUs, and %d before", what, b, a)
	}
	if a, b := LowerBound(easier.problem()), LowerBound(harder.problem()); a.GPUs > b.GPUs+boundTolerance*float64(1+len(harder.jobs)) {
		t.Fatalf("%s: bound %v, and %v before", what, b, a)
	}
}

func drawEasyScene(t *rapid.T) *scene {
	s := drawScene(t, rapid.IntRange(2, 30).Draw(t, "workers"), 4)
	if s.grain > 1 {
		s.options.GPUMemory = 0
	}
	return s
}

func TestOneJobMoreNeverNeedsFewerGPUs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		harder := drawEasyScene(t)
		at := rapid.IntRange(0, len(harder.jobs)-1).Draw(t, "job")
		easier := harder.clone()
		easier.jobs, easier.profiles = slices.Delete(easier.jobs, at, at+1), slices.Delete(easier.profiles, at, at+1)
		lawful(t, "a job more", easier, harder)
	})
}

func TestLowerFloorsNeverNeedMoreGPUs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		harder := drawEasyScene(t)
		easier := harder.clone()
		for j := range easier.jobs {
			if rapid.Bool().Draw(t, "lower") {
				easier.jobs[j].Floor *= rapid.Float64Range(0.3, 1).Draw(t, "by")
			}
		}
		lawful(t, "higher floors", easier, harder)
		easier.options.NoFloors = true
		lawful(t, "floors at all", easier, harder)
	})
}

func TestMoreMemoryOrRiskNeverNeedsMoreGPUs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		harder := drawEasyScene(t)
		easier := harder.clone()
		if harder.options.GPUMemory > 0 {
			// No job is too large for the smaller GPU only: it would count on the larger one.
			for j := range harder.profiles {
				if harder.profiles[j].Peak() > harder.options.GPUMemory {
					harder.profiles[j] = harder.profiles[0].AtPeak()
					harder.profiles[j].Persistent = harder.options.GPUMemory
				}
			}
			easier = harder.clone()
			easier.options.GPUMemory += unit.Bytes(rapid.IntRange(0, 8).Draw(t, "more memory"))
		}
		easier.options.Epsilon += rapid.Float64Range(0, 0.5).Draw(t, "more risk")
		lawful(t, "less memory", easier, harder)
	})
}

// TestNoMethodIsWorse, in GPUs, than those that it builds on.
func TestNoMethodIsWorse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScene(t, rapid.IntRange(1, 80).Draw(t, "workers"), 6)
		n := map[string]int{}
		for _, m := range Methods() {
			q, err := m.Pack(context.Background(), s.problem())
			if err != nil {
				t.Fatalf("%s: %v", m.Name, err)
			}
			n[m.Name] = len(q.GPUs)
		}
		if n["heuristic"] > min(n["greedy"], n["peak"]) || n["peak"] > n["dedicated"] || n["greedy"] > n["dedicated"] || n["lp"] > n["dedicated"] {
			t.Fatalf("GPUs needed: %v", n)
		}
		if s.options.GPUMemory == 0 && n["peak"] != n["greedy"] {
			t.Fatalf("memory is unknown, yet packing by peak needs %d GPUs and greedy %d", n["peak"], n["greedy"])
		}
	})
}

// TestFigures against the definitions.
func TestFigures(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScene(t, rapid.IntRange(1, 60).Draw(t, "workers"), 3)
		s.options.NoFloors = rapid.Bool().Draw(t, "no floors")
		p := s.problem()
		q, err := Greedy(context.Background(), p)
		if err != nil {
			t.Fatal(err)
		}
		var rates []float64
		sum, broken := 0.0, map[int]bool{}
		for _, residents := range q.GPUs {
			for _, a := range residents {
				slowdown := 1.0
				for _, b := range residents {
					if a != b {
						slowdown += s.added(p.Job(a), p.Job(b))
					}
				}
				rates, sum = append(rates, 1/slowdown), sum+slowdown
				if 1/slowdown < s.jobs[p.Job(a)].Floor-floorTolerance {
					broken[p.Job(a)] = true
				}
			}
		}
		f := p.Figures(q)
		if f.GPUs != len(q.GPUs) || f.BrokenFloors != len(broken) || !s.options.NoFloors && f.BrokenFloors > 0 {
			t.Fatalf("%+v, %d GPUs, broken %v", f, len(q.GPUs), broken)
		}
		if len(rates) == 0 {
			if f != (Figures{MeanPerformance: 1, WorstPerformance: 1, P05Performance: 1}) {
				t.Fatalf("of nothing: %+v", f)
			}
			return
		}
		n := float64(len(rates))
		slices.Sort(rates)
		slower := 0 // than the percentile
		for _, r := range rates {
			if r < f.P05Performance-floorTolerance {
				slower++
			}
		}
		if math.Abs(f.Saved-(1-float64(f.GPUs)/n)) > 1e-12 || math.Abs(f.MeanPerformance-n/sum) > 1e-12 ||
			math.Abs(f.WorstPerformance-rates[0]) > 1e-12 || float64(slower) > n/20 || !slices.Contains(rates, f.P05Performance) && n < 20 {
			t.Fatalf("%+v of rates %v", f, rates)
		}
	})
}

// TestLimits against the judge: shares sum to 1, each code is one that applies, and a packing on which nothing is refused
// has none.
func TestLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScene(t, rapid.IntRange(1, 25).Draw(t, "workers"), 3)
		p, q := mustPack(t, rapid.SampledFrom([]string{"greedy", "exact", "lp"}).Draw(t, "method"), s)
		refusals, kinds := 0, map[bool]int{}
		for _, residents := range q.GPUs {
			for g := range q.GPUs {
				for _, w := range residents {
					if slices.Contains(q.GPUs[g], w) {
						continue
					}
					jobs := []int{p.Job(w)}
					for _, r := range q.GPUs[g] {
						jobs = append(jobs, p.Job(r))
					}
					if len(jobs) > s.options.MaxResidents || !s.judge(jobs) {
						refusals++
						kinds[slices.Contains(jobs[1:], jobs[0])]++
					}
				}
			}
		}
		limits, sum := p.Limits(q), 0.0
		for i, l := range limits {
			sum += l.Share
			if l.Share <= 0 || i > 0 && (l.Share > limits[i-1].Share || l.Share == limits[i-1].Share && l.Code < limits[i-1].Code) {
				t.Fatalf("limits %v out of order", limits)
			}
			if l.Code == plan.SameJob && math.Abs(l.Share-float64(kinds[true])/float64(refusals)) > 1e-9 {
				t.Fatalf("%v, the definitions say %d of %d", l, kinds[true], refusals)
			}
		}
		if (refusals == 0) != (len(limits) == 0) || refusals > 0 && math.Abs(sum-1) > 1e-9 {
			t.Fatalf("limits %v sum to %v, %d refusals by the definitions", limits, sum, refusals)
		}
	})
}

// TestLonely against the definitions: a job is lonely when it may share with no other one, memory aside.
func TestLonely(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScene(t, rapid.IntRange(1, 10).Draw(t, "workers"), 3)
		p := s.problem()
		unmeasured, incompatible := p.Lonely()
		noMemory := s.clone()
		noMemory.options.GPUMemory = 0
		for a := range s.jobs {
			friends := 0
			for b := range s.jobs {
				if a != b && s.options.MaxResidents > 1 && noMemory.judge([]int{a, b}) {
					friends++
				}
			}
			unknown := s.jobs[a].Model == ""
			if slices.Contains(unmeasured, a) != unknown || slices.Contains(incompatible, a) != (friends == 0 && !unknown) {
				t.Fatalf("job %d (%+v) has %d friends; unmeasured %v, incompatible %v", a, s.jobs[a], friends, unmeasured, incompatible)
			}
		}
	})
}

// TestUnmeasuredNeverShares, however low the floor.
func TestUnmeasuredNeverShares(t *testing.T) {
	table := drawnTable()
	for _, floor := range []float64{math.SmallestNonzeroFloat64, 1e-12, 1e-6} {
		for _, noFloors := range []bool{false, true} {
			jobs := copies(table, 2, floor)
			jobs = append(jobs, cluster.Job{ID: "z1", Model: "never heard of", Workers: 1, Floor: floor},
				cluster.Job{ID: "z2", Workers: 1, Floor: floor})
			for _, m := range Methods() {
				p := NewProblem(jobs, table, nil, Options{MaxResidents: 4, NoFloors: noFloors})
				q, err := m.Pack(context.Background(), p)
				if err != nil {
					t.Fatal(err)
				}
				for _, residents := range q.GPUs {
					for _, rate := range p.Rates(residents) {
						if !(rate > 0) {
							t.Errorf("%s, floor %g, no floors %t: %v share at the rates %v", m.Name, floor, noFloors, residents, p.Rates(residents))
						}
					}
				}
			}
		}
	}
}

// TestProgress: what a method tells of its progress never falls behind, and stays within the total.
func TestProgress(t *testing.T) {
	for _, m := range Methods()[2:4] {
		p, last := mixed(5_000, "none"), -1
		p.Progress = func(done, total int) {
			if done < 0 || done > total || total != 5_000 {
				t.Errorf("%s: %d of %d", m.Name, done, total)
			}
			last = max(last, done)
		}
		if _, err := m.Pack(context.Background(), p); err != nil {
			t.Fatal(err)
		}
		if last < 1024 {
			t.Errorf("%s told no more than %d", m.Name, last)
		}
	}
}

// ofJob compares residents by their job.
func (p *Problem) ofJob(a, b cluster.Worker) int { return cmp.Compare(p.Job(a), p.Job(b)) }

// checkWhole checks a packing of a problem without a scene: every worker once, and nothing against the rules.
func checkWhole(t *testing.T, p *Problem, q *Packing) {
	t.Helper()
	seen := make([]bool, p.Workers())
	for g, residents := range q.GPUs {
		if !slices.IsSorted(residents) {
			t.Errorf("residents %v of GPU %d", residents, g)
		}
		for _, w := range residents {
			if seen[w] {
				t.Errorf("worker %d stands twice", w)
			}
			seen[w] = true
		}
		if sorted := slices.SortedFunc(slices.Values(residents), p.ofJob); len(slices.CompactFunc(sorted, func(a, b cluster.Worker) bool {
			return p.Job(a) == p.Job(b)
		})) != len(residents) {
			t.Errorf("two workers of a job among %v", residents)
		}
	}
	for w, ok := range seen {
		if !ok && !p.TooLarge(p.Job(cluster.Worker(w))) {
			t.Errorf("worker %d stands nowhere", w)
		}
	}
	if broken := p.Validate(p.overlayOf(q).Snapshot()); len(broken) > 0 {
		t.Errorf("%d violations, the first: %v", len(broken), broken[0])
	}
}

func (p *Problem) overlayOf(q *Packing) *cluster.Overlay {
	o := cluster.NewOverlay(cluster.Empty(len(q.GPUs)), p.Workers())
	for g, residents := range q.GPUs {
		for _, w := range residents {
			o.Add(w, cluster.GPU(g))
		}
	}
	return o
}
