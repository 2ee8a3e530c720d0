package placement

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/plan"
	"weft.dev/weft/internal/unit"
)

// TestPackerOnGPUsThatDiffer adds and removes jobs at random on GPUs of different memory, some of them barred: what is added
// holds the rules of its GPU, who resides stays whatever the rules say, and the questions change nothing and agree.
func TestPackerOnGPUsThatDiffer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScene(t, rapid.IntRange(2, 16).Draw(t, "workers"), 3)
		s.grain, s.options.GPUMemory = 1, 16
		for j := range s.profiles {
			s.profiles[j] = s.drawProfile(t)
		}
		p := s.problem()
		barred := rapid.IntRange(-1, 3).Draw(t, "barred")
		gpus := GPUs{Handover: rapid.Bool().Draw(t, "handover"), Spread: rapid.Bool().Draw(t, "spread"),
			Bar: func(_ int, g cluster.GPU) plan.Reason {
				if int(g) == barred {
					return plan.Reason{Code: plan.Drained}
				}
				return plan.Reason{}
			}}
		for range rapid.IntRange(1, 4).Draw(t, "GPUs") {
			gpus.Memory = append(gpus.Memory, unit.Bytes(rapid.SampledFrom([]int{0, 8, 12, 16}).Draw(t, "memory")))
		}
		k := NewPackerOn(p, gpus)
		var placed, forced []int
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			j := rapid.IntRange(0, len(s.jobs)-1).Draw(t, "job")
			if i := slices.Index(placed, j); i >= 0 {
				k.Remove(j)
				placed = slices.Delete(placed, i, i+1)
				forced = slices.DeleteFunc(forced, func(f int) bool { return f == j })
				continue
			}
			checkQuestions(t, s, k, j)
			n, _ := k.OpensAfter(j, nil)
			fits := n == 0
			switch on, r := k.Add(j); {
			case r.Refused() == fits:
				t.Fatalf("job %d: %v, %s, it fits %t", j, on, r, fits)
			case fits:
				placed = append(placed, j)
				for _, g := range on {
					if who := jobsAt(k, g); !slices.ContainsFunc(who, func(w int) bool { return slices.Contains(forced, w) }) && !s.judgeOn(k, g, who) || int(g) == barred {
						t.Fatalf("job %d on GPU %d with %v against the rules", j, g, who)
					}
				}
			case s.jobs[j].Workers <= len(gpus.Memory) && rapid.Bool().Draw(t, "reside"):
				on := rapid.Permutation(indexes(len(gpus.Memory))).Draw(t, "on")[:s.jobs[j].Workers]
				var there []cluster.GPU
				for _, g := range on {
					there = append(there, cluster.GPU(g))
				}
				k.Reside(j, there)
				if !slices.Equal(k.GPUsOf(j), there) {
					t.Fatalf("job %d resides on %v, is on %v", j, there, k.GPUsOf(j))
				}
				placed, forced = append(placed, j), append(forced, j)
			}
		}
	})
}

func jobsAt(k *Packer, g cluster.GPU) []int {
	var jobs []int
	for _, w := range k.Residents(g) {
		jobs = append(jobs, k.p.Job(w))
	}
	return jobs
}

// judgeOn is judge for the memory of one GPU.
func (s *scene) judgeOn(k *Packer, g cluster.GPU, jobs []int) bool {
	limit := k.ground.Memory[g]
	var held, most unit.Bytes
	for _, j := range jobs {
		held, most = held+s.profiles[j].Persistent, max(most, ephemeral(s.profiles[j]))
	}
	if held > limit || k.ground.Handover && held+most > limit || len(jobs) > s.options.MaxResidents {
		return false
	}
	here := *s
	here.options.GPUMemory = max(1, limit)
	return here.judge(jobs)
}

// checkQuestions holds what is asked about a job that is not placed against each other.
func checkQuestions(t *rapid.T, s *scene, k *Packer, j int) {
	before := k.overlay.Snapshot()
	for g := range cluster.GPU(len(k.ground.Memory)) {
		r, who := k.Why(j, g)
		if takes := k.Takes(j, g); takes == r.Refused() || who >= 0 && !slices.Contains(jobsAt(k, g), who) {
			t.Fatalf("job %d on GPU %d: takes %t, why not %s of %d", j, g, takes, r, who)
		}
		rate := k.RateAt(j, g)
		if floor, ok := k.FloorAt(j, g); ok && (floor != rate || !r.Refused() && floor < s.jobs[j].Floor-floorTolerance) ||
			!ok && !r.Refused() || r.Code == plan.FloorSelf && r.Got != rate {
			t.Fatalf("job %d on GPU %d: floor %g %t at rate %g, %s", j, g, floor, ok, rate, r)
		}
		peak, ok := k.PeakAt(j, g, 1)
		need := k.p.kinds[k.p.kind[j]].profile
		if ok && k.memory(g, WithPeak(need, peak)).Refused() || ok && peak < need.Peak() && !k.memory(g, WithPeak(need, peak+1)).Refused() ||
			ok && peak >= need.Peak() && r.Refused() {
			t.Fatalf("job %d on GPU %d: peak %d %t of %d, %s", j, g, peak, ok, need.Peak(), r)
		}
	}
	var leaving []int
	for other := range s.jobs {
		if first, _ := k.p.WorkersOf(other); k.overlay.Place(first) != cluster.NoGPU {
			leaving = append(leaving, other)
		}
	}
	if n, _ := k.OpensAfter(j, nil); n < 0 {
		alone := slices.IndexFunc(leaving, func(other int) bool {
			n, _ := k.OpensAfter(j, []int{other})
			return n == 1
		})
		if got := k.OpensWithout(j, leaving); alone < 0 && got >= 0 || alone >= 0 && got != leaving[alone] {
			t.Fatalf("job %d opens without job %d, at %d of %v", j, got, alone, leaving)
		}
	}
	n, on := k.OpensAfter(j, leaving)
	if !sameResidents(before, k.overlay.Snapshot()) {
		t.Fatal("a question left a trace")
	}
	if n > len(leaving) || n >= 0 && len(on) != s.jobs[j].Workers {
		t.Fatalf("job %d opens after %d of %v on %v", j, n, leaving, on)
	}
	if n > 0 {
		if less, _ := k.OpensAfter(j, leaving[:n-1]); less >= 0 {
			t.Fatalf("job %d opens after %d of %v, and after %d", j, n, leaving, less)
		}
	}
}

// TestWithPeak: a lower peak has that peak, less memory at every instant, and fractions that sum to 1.
func TestWithPeak(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &scene{grain: rapid.SampledFrom([]unit.Bytes{1, 1_000_003, unit.GiB}).Draw(t, "grain")}
		p := s.drawProfile(t)
		peak := unit.Bytes(rapid.Int64Range(0, int64(p.Peak())+2).Draw(t, "peak"))
		q := WithPeak(p, peak)
		if want := min(peak, p.Peak()); q.Peak() != want || q.Persistent > p.Persistent || q.Mean() > p.Mean()+1 {
			t.Fatalf("%+v at %d is %+v", p, peak, q)
		}
		sum, last := 0.0, unit.Bytes(-1)
		for _, l := range q.Ephemeral {
			if l.Bytes <= last {
				t.Fatalf("levels of %+v do not ascend", q)
			}
			sum, last = sum+l.Fraction, l.Bytes
		}
		if len(q.Ephemeral) > 0 && (sum < 1-1e-9 || sum > 1+1e-9) {
			t.Fatalf("fractions of %+v sum to %g", q, sum)
		}
	})
}
