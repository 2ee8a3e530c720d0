package sim_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/interference"
	"weft.dev/weft/internal/placement"
	"weft.dev/weft/internal/policy"
	"weft.dev/weft/internal/sim"
	"weft.dev/weft/internal/workload"
)

// guessed predicts every pair of the truth with an error of the rate's standard deviation sigma, and a safe rate that the
// truth exceeds with probability 0.9.
func guessed(truth *interference.Table, sigma float64, seed uint64) (mean, safe *interference.Table) {
	random := rand.New(rand.NewPCG(seed, 0))
	mean, safe = interference.NewTable(), interference.NewTable()
	width := sigma * math.Sqrt2 * math.Erfinv(2*0.9-1)
	clip := func(r float64) float64 { return min(1, max(0.05, r)) }
	for i := range truth.Len() {
		for l := range i + 1 {
			if math.IsInf(truth.Added(i, l), 1) {
				continue
			}
			a := clip(1/(1+truth.Added(i, l)) + sigma*random.NormFloat64())
			b := clip(1/(1+truth.Added(l, i)) + sigma*random.NormFloat64())
			mean.Add(truth.Config(i), truth.Config(l), a, b)
			safe.Add(truth.Config(i), truth.Config(l), clip(a-width), clip(b-width))
		}
	}
	return mean, safe
}

// adjusted replays jobs on predictions that err by sigma.
func adjusted(t *testing.T, jobs []cluster.Job, pool cluster.Cluster, truth *interference.Table, sigma float64) (*sim.Result, policy.Adjustment) {
	t.Helper()
	mean, safe := guessed(truth, sigma, 1)
	b := interference.NewBelief(mean, safe, 0.9)
	a := policy.NewAdjusting(placement.NewProblem(jobs, b.Safe(), nil, placement.Options{MaxResidents: 4}), pool, policy.AdjustingOptions{
		Belief: b, Truth: truth, Noise: 0.05, Random: rand.New(rand.NewPCG(1, 1)), Window: time.Minute, Pause: pause, Drain: true})
	return mustRun(t, sim.Config{Cluster: pool, Jobs: jobs, Order: policy.FIFO(), Placer: a}), a.Stats()
}

// pause is what a move costs in these tests.
const pause = 30 * time.Second

// TestAdjustingComesCloseToTheOracle: whatever the error of the predictions, corrections bring the GPU-hours near those
// of a planner that knows the truth, and hardly any job time is spent below a floor.
func TestAdjustingComesCloseToTheOracle(t *testing.T) {
	truth := interference.Catalogue("p100")
	jobs := workload.Generate(workload.Options{Jobs: 8000, Span: 3 * 24 * time.Hour, Mix: workload.LightMix(), Floor: 0.85, Seed: 42})
	pool := cluster.Uniform(80, 8)
	dedicated := mustRun(t, sim.Config{Cluster: pool, Jobs: jobs, Order: policy.FIFO(), Placer: policy.NewConsolidated(pool, jobs)})
	known := placement.NewProblem(jobs, truth, nil, placement.Options{MaxResidents: 4})
	oracle := mustRun(t, sim.Config{Cluster: pool, Jobs: jobs, Order: policy.FIFO(), Placer: policy.NewDraining(known, pool, pause)})
	for _, sigma := range []float64{0.01, 0.05, 0.1} {
		r, s := adjusted(t, jobs, pool, truth, sigma)
		below := float64(s.BelowSettled) / float64(s.JobTime)
		t.Logf("error %.2f: %.0f GPU-hours (oracle %.0f, dedicated %.0f), %.3f %% of job time below floor, %d repairs, %d drained",
			sigma, r.GPUHours, oracle.GPUHours, dedicated.GPUHours, 100*below, len(s.Repairs), s.Drained)
		if r.GPUHours > 1.1*oracle.GPUHours {
			t.Errorf("error %.2f: %.0f GPU-hours, oracle %.0f", sigma, r.GPUHours, oracle.GPUHours)
		}
		if below > 0.01 {
			t.Errorf("error %.2f: %.2f %% of job time below the floor after the first window", sigma, 100*below)
		}
		if r.Jobs != len(jobs) {
			t.Errorf("error %.2f: %d of %d jobs ended", sigma, r.Jobs, len(jobs))
		}
	}
}

// TestAdjustingIsDeterministic: the same inputs give the same outcomes.
func TestAdjustingIsDeterministic(t *testing.T) {
	truth := interference.Catalogue("p100")
	jobs := workload.Generate(workload.Options{Jobs: 500, Span: 24 * time.Hour, Mix: workload.WholeMix(), Floor: 0.8, Seed: 7})
	pool := cluster.Uniform(8, 8)
	a, _ := adjusted(t, jobs, pool, truth, 0.1)
	b, _ := adjusted(t, jobs, pool, truth, 0.1)
	if diff := cmp.Diff(a.Outcomes, b.Outcomes); diff != "" {
		t.Error(diff)
	}
}

// TestAdjustingUnderPreemption: a preemptive order takes jobs off and puts them back within an instant. All end, and the
// placer's own count of their time is that of the replay.
func TestAdjustingUnderPreemption(t *testing.T) {
	truth := interference.Catalogue("p100")
	jobs := workload.Generate(workload.Options{Jobs: 600, Span: 12 * time.Hour, Mix: workload.LightMix(), Floor: 0.8, Seed: 3})
	pool := cluster.Uniform(2, 8)
	mean, safe := guessed(truth, 0.1, 1)
	b := interference.NewBelief(mean, safe, 0.9)
	a := policy.NewAdjusting(placement.NewProblem(jobs, b.Safe(), nil, placement.Options{MaxResidents: 4}), pool, policy.AdjustingOptions{
		Belief: b, Truth: truth, Noise: 0.05, Random: rand.New(rand.NewPCG(1, 1)), Window: time.Minute, Pause: pause, Drain: true})
	r := mustRun(t, sim.Config{Cluster: pool, Jobs: jobs, Order: policy.SRTF(), Placer: a, RestartCost: pause})
	held := time.Duration(0)
	for _, o := range r.Outcomes {
		held += o.Run
	}
	if r.Jobs != len(jobs) || r.Preemptions == 0 {
		t.Fatalf("%d of %d jobs ended, %d preemptions", r.Jobs, len(jobs), r.Preemptions)
	}
	if counted := a.Stats().JobTime; math.Abs(counted.Hours()-held.Hours()) > 1e-6*held.Hours() {
		t.Errorf("the placer counts %v of job time, the replay %v", counted, held)
	}
}
