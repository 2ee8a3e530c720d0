package sim_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/policy"
	"weft.dev/weft/internal/sim"
	"weft.dev/weft/internal/unit"
)

// pairPlacer puts up to two jobs on each GPU of one node; a job that shares any of its GPUs runs at half speed.
type pairPlacer struct {
	jobs      []cluster.Job
	residents []int
	held      map[int][]policy.Slot
	told      map[int]float64
}

func (p *pairPlacer) Place(job int) ([]policy.Slot, bool) {
	var slots []policy.Slot
	for most := range 2 {
		for gpu, n := range p.residents {
			if n == most && len(slots) < p.jobs[job].Workers {
				slots = append(slots, policy.Slot{GPU: int32(gpu)})
			}
		}
	}
	if len(slots) < p.jobs[job].Workers {
		return nil, false
	}
	return slots, p.Retake(job, slots)
}

func (p *pairPlacer) Retake(job int, slots []policy.Slot) bool {
	for _, s := range slots {
		if p.residents[s.GPU] == 2 {
			return false
		}
	}
	for _, s := range slots {
		p.residents[s.GPU]++
	}
	p.held[job], p.told[job] = slots, 1
	return true
}

func (p *pairPlacer) Release(job int, slots []policy.Slot) {
	for _, s := range slots {
		p.residents[s.GPU]--
	}
	delete(p.held, job)
}

func (p *pairPlacer) Rates(yield func(job int, rate float64)) {
	for job := range p.jobs {
		rate := 1.0
		for _, s := range p.held[job] {
			rate = min(rate, 1/float64(p.residents[s.GPU]))
		}
		if _, ok := p.held[job]; ok && p.told[job] != rate {
			p.told[job] = rate
			yield(job, rate)
		}
	}
}

// onlyRates hides Retake.
type onlyRates struct{ policy.Rater }

// TestSharedWork: under every order, with preemptions and migrations, each job works off its duration at the rates
// that follow from who was beside it, by the spans.
func TestSharedWork(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gpus := rapid.IntRange(1, 4).Draw(t, "gpus")
		jobs, order := drawJobs(t, 12, gpus, false), drawOrder(t)
		for i := range jobs {
			jobs[i].Floor = rapid.SampledFrom([]float64{0.5, 0.8}).Draw(t, "floor")
		}
		retakes := rapid.Bool().Draw(t, "retakes")
		run := func() *sim.Result {
			var p policy.Placer = &pairPlacer{jobs: jobs, residents: make([]int, gpus), held: map[int][]policy.Slot{}, told: map[int]float64{}}
			if !retakes {
				p = onlyRates{p.(policy.Rater)}
			}
			return mustRun(t, sim.Config{Cluster: cluster.Uniform(1, gpus), Jobs: jobs, Order: order, Placer: p, Spans: true})
		}
		r := run()
		if again := run(); !slices.Equal(again.Outcomes, r.Outcomes) {
			t.Fatalf("same input, another result: %v, %v", r.Outcomes, again.Outcomes)
		}
		for i, o := range r.Outcomes {
			work, slow := workBySpans(t, jobs, r.Spans, int32(i))
			if d := work - 2*jobs[i].Duration; !o.Ended || d < -200 || d > 200 {
				t.Errorf("job %d of %v: twice its work is %v, %+v", i, jobs[i].Duration, work, o)
			}
			if o.Broken != (slow && jobs[i].Floor == 0.8) {
				t.Errorf("job %d with floor %g: broken %v, ran at half speed: %v", i, jobs[i].Floor, o.Broken, slow)
			}
		}
	})
}

// workBySpans is twice the work that a job did, and whether it ever ran at half speed.
func workBySpans(t *rapid.T, jobs []cluster.Job, spans []sim.Span, job int32) (work time.Duration, slow bool) {
	var times []unit.Time
	for _, s := range spans {
		times = append(times, s.Start, s.End)
	}
	slices.Sort(times)
	times = slices.Compact(times)
	for i := 1; i < len(times); i++ {
		residents, own := map[int32]int{}, []int32(nil)
		for _, s := range spans {
			if s.Start <= times[i-1] && times[i] <= s.End {
				residents[s.GPU]++
				if s.Job == job {
					own = append(own, s.GPU)
				}
			}
		}
		if len(own) == 0 {
			continue
		}
		if len(own) != jobs[job].Workers {
			t.Errorf("job %d of %d workers on GPUs %v", job, jobs[job].Workers, own)
		}
		dt := times[i].Sub(times[i-1])
		done := 2 * dt
		for _, gpu := range own {
			if residents[gpu] > 2 {
				t.Errorf("%d residents on GPU %d", residents[gpu], gpu)
			}
			if residents[gpu] == 2 {
				done, slow = dt, true
			}
		}
		work += done
	}
	return work, slow
}
