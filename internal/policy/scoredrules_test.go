package policy

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/unit"
)

// TestScores works the formulas out by hand on nodes of a cluster whose largest has 128 CPUs and 8 GPUs.
func TestScores(t *testing.T) {
	c := cluster.Cluster{Nodes: []cluster.Node{{CPU: 96000, GPUs: 8}, {CPU: 128000, GPUs: 2}, {CPU: 32000, GPUs: 8}}}
	half := cluster.Job{Workers: 1, Share: 500, CPU: 8000}
	for _, tc := range []struct {
		what, rule string
		residents  []cluster.Job // on node 0
		pod        cluster.Job
		node, want int
	}{
		{"1-(88/128+7.5/8)/2 = .1875", "bestfit", nil, half, 0, 18},
		{"1-(120/128+1.5/8)/2 = .4375", "bestfit", nil, half, 1, 43},
		{"1-(0/128+8/8)/2", "bestfit", nil, cluster.Job{CPU: 32000}, 2, 50},
		{"1-(96/128*8/128+8/8*.5/8)/2 = .945", "dotprod", nil, half, 0, 94},
		{"1-(1*8/128+2/8*.5/8)/2 = .9609", "dotprod", nil, half, 1, 96},
		{"nothing taken, nobody there", "clustering", nil, half, 0, 25},
		{"two GPUs count as six taken: 18.75", "clustering", nil, half, 1, 43},
		{"only fractions, .3 of 8 taken: .9375", "clustering", []cluster.Job{fraction(300)}, half, 0, 75},
		{"only others, 4 of 8 taken: 12.5", "clustering", []cluster.Job{gang(4)}, half, 0, 12},
		{"among others, 4.3 of 8 taken: 13.4", "clustering", []cluster.Job{gang(4), fraction(300)}, half, 0, 63},
		{"one GPU is another affinity than two", "clustering", []cluster.Job{gang(2)}, gang(1), 0, 6},
		{"a pod without GPUs is no resident", "clustering", []cluster.Job{{CPU: 1000}}, half, 0, 25},
		{"no GPU asked for", "clustering", []cluster.Job{gang(4)}, cluster.Job{CPU: 1000}, 0, 0},
		{"wholly free, eight GPUs", "packing", nil, half, 0, 25},
		{"wholly free, two GPUs", "packing", nil, half, 1, 31},
		{"breaks into one free GPU", "packing", []cluster.Job{gang(1)}, half, 0, 49},
		{"breaks into five", "packing", []cluster.Job{gang(1)}, gang(5), 0, 45},
		{"a GPU with 70 % left", "packing", []cluster.Job{fraction(300)}, half, 0, 93},
		{"one with 39.9 % left: 39, then 3 points", "packing", []cluster.Job{fraction(601)}, fraction(100), 0, 97},
		{"no GPU asked for", "packing", []cluster.Job{gang(4)}, cluster.Job{CPU: 1000}, 0, 0},
		{"every node alike", "firstfit", []cluster.Job{gang(4)}, half, 0, 0},
		{"every node alike", "random", []cluster.Job{gang(4)}, half, 0, 0},
	} {
		jobs := append([]cluster.Job{tc.pod}, tc.residents...)
		p := newScored(t, tc.rule, c, jobs, ScoredOptions{})
		for job := range tc.residents {
			p.take(nil, p.shapes[job+1], 0)
		}
		if got := p.rule.score(&p.nodes[tc.node], p.shapes[0]); got != tc.want {
			t.Errorf("%s, %s: score %d, want %d", tc.rule, tc.what, got, tc.want)
		}
	}
}

// TestFGDScore: half of the jobs ask for a whole GPU, half for 0.6 of one. On two free GPUs nothing is fragmented. 0.6
// leaves 0.4 that neither can use: 0.4 GPUs are fragmented then, and 100/(1+exp(0.4)) is 40.1. A second pod of 0.6
// makes 0.8 of 0.8, for no whole GPU is left.
func TestFGDScore(t *testing.T) {
	jobs := []cluster.Job{fraction(600), gang(1)}
	p := newScored(t, "fgd", cluster.Uniform(1, 2), jobs, ScoredOptions{})
	for i, want := range []struct {
		score    int
		fragment float64
	}{{40, 400}, {40, 800}} {
		if got := p.rule.score(&p.nodes[0], p.shapes[0]); got != want.score {
			t.Errorf("pod %d scores %d, want %d", i, got, want.score)
		}
		if _, ok := p.Place(0); !ok {
			t.Fatal("does not fit")
		}
		if got := p.Fragmentation(); math.Abs(got-want.fragment) > 1e-9 {
			t.Errorf("fragmentation %v after pod %d, want %v", got, i, want.fragment)
		}
	}
}

// TestFGDTakesTheGPUThatFragmentsLeast: 0.5 fits GPUs 0 (0.8 left) and 1 (0.5 left); where pods of 0.3 and 0.5 are typical,
// on GPU 0 it leaves 0.3, which half of the pods cannot use, beside the 0.5; GPU 1 it fills.
func TestFGDTakesTheGPUThatFragmentsLeast(t *testing.T) {
	jobs := []cluster.Job{fraction(200), fraction(500), fraction(300)}
	p := newScored(t, "fgd", cluster.Uniform(1, 2), jobs, ScoredOptions{Typical: jobs[1:]})
	p.nodes[0].take(p.shapes[0], []int32{0})
	p.nodes[0].take(p.shapes[1], []int32{1})
	if slots, ok := p.Place(1); !ok || slots[0].GPU != 1 {
		t.Errorf("placed %v on %v, want GPU 1", ok, slots)
	}
}

// TestFragmentationOracle compares the measure with its definition, pod by pod.
func TestFragmentationOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCluster(t)
		jobs := rapid.SliceOfN(rapid.Custom(drawJob), 1, 30).Draw(t, "jobs")
		p, err := NewScored("random", c, jobs, ScoredOptions{Random: rand.New(rand.NewPCG(7, 8))})
		if err != nil {
			t.Fatal(err)
		}
		for job := range jobs {
			p.Place(job)
		}
		sum := 0.0
		for _, pod := range p.mix.pods {
			for i := range p.nodes {
				n := &p.nodes[i]
				alone := &podShape{shapeKey: pod.shapeKey}
				if fits := n.fits(alone); pod.workers == 0 || !fits {
					sum += pod.fraction * float64(n.total)
					continue
				}
				for _, left := range n.left {
					if left < pod.share {
						sum += pod.fraction * float64(left)
					}
				}
			}
		}
		if got := p.Fragmentation(); math.Abs(got-sum) > 1e-6 {
			t.Fatalf("fragmentation %v, by definition %v", got, sum)
		}
	})
}

// TestTypicalJobs: the most frequent, until they cover 95 %; their fractions add up to 1.
func TestTypicalJobs(t *testing.T) {
	var jobs []cluster.Job
	for i, n := range []int{60, 30, 5, 4, 1} {
		for k := range n {
			job := fraction(unit.MilliGPU(100 * (i + 1)))
			job.HostMemory = unit.Bytes(k) // is not looked at
			jobs = append(jobs, job)
		}
	}
	f, err := newFragmentation(newShapeTable(cluster.Uniform(1, 1)), jobs)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for i, p := range f.pods {
		if want := unit.MilliGPU(100 * (i + 1)); p.share != want {
			t.Errorf("typical job %d asks for %d, want %d", i, p.share, want)
		}
		sum += p.fraction
	}
	if len(f.pods) != 3 || math.Abs(sum-1) > 1e-12 {
		t.Errorf("%d typical jobs with fractions adding up to %v, want 3 and 1", len(f.pods), sum)
	}
}

// TestTypicalSpanningJob: a gang of 16 on nodes of 8 counts as one that asks for a whole node.
func TestTypicalSpanningJob(t *testing.T) {
	job := cluster.Job{Workers: 16, Share: unit.WholeGPU, CPU: 31}
	f, err := newFragmentation(newShapeTable(cluster.Uniform(4, 8)), []cluster.Job{job})
	if err != nil {
		t.Fatal(err)
	}
	if len(f.pods) != 1 || f.pods[0].workers != 8 || f.pods[0].cpu != 16 {
		t.Errorf("typical jobs %+v, want one of 8 workers with 16 milliCPU", f.pods)
	}
}

// TestBestGPUSkipsOnlyEquals compares FGD's choice of GPU with trying every one.
func TestBestGPUSkipsOnlyEquals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shares := rapid.SliceOfN(rapid.SampledFrom([]unit.MilliGPU{100, 250, 300, 500, 700, 1000}), 2, 12).Draw(t, "shares")
		jobs := make([]cluster.Job, len(shares))
		for i, share := range shares {
			jobs[i] = fraction(share)
		}
		p, err := NewScored("fgd", cluster.Uniform(1, 8), jobs, ScoredOptions{})
		if err != nil {
			t.Fatal(err)
		}
		d := p.rule.(*gradientDescent)
		for job := range jobs {
			n, s := &p.nodes[0], p.shapes[job]
			if !n.fits(s) {
				continue
			}
			best, gpu := math.MinInt, int32(-1)
			for g, left := range n.left {
				if left >= s.share {
					if v := d.saving(n, s, []int32{int32(g)}); v > best {
						best, gpu = v, int32(g)
					}
				}
			}
			if score, got := d.bestGPU(n, s); score != best || got != gpu {
				t.Fatalf("GPU %d scores %d, want GPU %d with %d", got, score, gpu, best)
			}
			p.Place(job)
		}
	})
}

// TestRandomIsUniform places one pod of half a GPU many times: each of the 6 GPUs that fit on 3 nodes of 2 is as
// likely. The bound is 5 standard deviations.
func TestRandomIsUniform(t *testing.T) {
	const tries, gpus = 12000, 6
	p := newScored(t, "random", cluster.Uniform(3, 2), []cluster.Job{fraction(500)}, ScoredOptions{})
	counts := map[Slot]int{}
	for range tries {
		slots, ok := p.Place(0)
		if !ok {
			t.Fatal("does not fit")
		}
		counts[slots[0]]++
		p.Release(0, slots)
	}
	mean := float64(tries) / gpus
	bound := 5 * math.Sqrt(mean*(1-1.0/gpus))
	for slot, n := range counts {
		if math.Abs(float64(n)-mean) > bound {
			t.Errorf("%v taken %d times, want %.0f +- %.0f", slot, n, mean, bound)
		}
	}
	if len(counts) != gpus {
		t.Errorf("%d GPUs ever taken, want %d", len(counts), gpus)
	}
}
