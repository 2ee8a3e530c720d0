package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"weft.dev/weft/internal/catalogue"
	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/interference"
	"weft.dev/weft/internal/interference/model"
	"weft.dev/weft/internal/placement"
	"weft.dev/weft/internal/policy"
	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/sim"
	"weft.dev/weft/internal/unit"
)

// adjustFlags let placement decide on predictions while time advances on the truth.
type adjustFlags struct {
	Predict string        `placeholder:"MODEL" help:"Keep floors by predicted rates, of this model file or of the built-in default, and correct them by what is observed. True rates are those of --truth."`
	Truth   string        `placeholder:"PAIRS.csv" help:"True rates for --predict. Default: those of --interference."`
	Noise   float64       `default:"0.05" help:"Standard deviation of an observed rate, as a share of it."`
	Window  time.Duration `default:"60s" help:"How long a rate is observed before it counts."`
}

// builtIn names the model in the binary.
const builtIn = "default"

func (f *adjustFlags) check() error {
	switch {
	case f.Predict == "" && f.Truth != "":
		return flagError("--truth", f.Truth, "--truth says nothing without --predict", "believed rates are the true ones then",
			"add --predict default, or use --interference")
	case !(f.Noise >= 0 && f.Noise < 1):
		return flagError("--noise", fmt.Sprint(f.Noise), fmt.Sprintf("noise %v is outside [0, 1)", f.Noise), "it is a share of a rate", "0.05 for 5 %")
	case f.Window < time.Second:
		return flagError("--window", f.Window.String(), fmt.Sprintf("window %v is below 1s", f.Window), "a few iterations say nothing about a rate", "60s")
	}
	return nil
}

// rates is what shared jobs run at, and what placement believes of it.
type rates struct {
	truth    *interference.Table
	mean     *interference.Table // predicted; nil where the truth is known
	safe     *interference.Table
	coverage float64
}

// rates reads the tables that sharing rests on.
func (c *simCommand) rates(study *simStudy, jobs []cluster.Job) (*rates, error) {
	pairs := c.Sharing
	if c.Adjust.Truth != "" {
		pairs.Interference = c.Adjust.Truth
	}
	truth, notes, err := pairs.table()
	if err != nil {
		return nil, err
	}
	study.Notes = append(study.Notes, notes...)
	r := &rates{truth: truth}
	if c.Adjust.Predict == "" {
		return r, nil
	}
	path := c.Adjust.Predict
	if path == builtIn {
		path = ""
	}
	m, err := readModel(path)
	if err != nil {
		return nil, err
	}
	t := m.Predictor(catalogueEntries(), nil).Tables(configsIn(jobs, truth), "", pairs.gpu(), nil)
	r.mean, r.safe, r.coverage = t.Mean, t.Safe, m.Coverage
	study.Notes = append(study.Notes, limited(t.Notes)...)
	study.noteTrained(m, pairs.gpu(), truth)
	return r, nil
}

// noteTrained says how much of what is to be predicted the model has seen: a figure on its own training says little.
func (s *simStudy) noteTrained(m *model.Model, gpu string, truth *interference.Table) {
	n := 0
	for i := range truth.Len() {
		if m.Trained(gpu, truth.Config(i)) {
			n++
		}
	}
	if n > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("the model was trained on pairs of %d of the %d configurations on this GPU model: "+
			"predictions of what it never saw err more (weft train reports both)", n, truth.Len()))
	}
}

// limited is the first few notes.
func limited(notes []string) []string {
	if len(notes) <= mostNotes {
		return notes
	}
	return append(slices.Clone(notes[:mostNotes]), fmt.Sprintf("and %d more like these", len(notes)-mostNotes))
}

// gpu is the GPU model that rates hold on, in lower case.
func (f *sharingFlags) gpu() string {
	if f.GPUModel == "" {
		return interference.CatalogueGPUs()[0]
	}
	return strings.ToLower(f.GPUModel)
}

// configsIn are the configurations of the jobs that the truth holds, in order of appearance: what nobody measured cannot
// be replayed.
func configsIn(jobs []cluster.Job, truth *interference.Table) []interference.Config {
	var configs []interference.Config
	seen := map[interference.Config]bool{}
	for j := range jobs {
		c := interference.Config{Model: jobs[j].Model, Batch: jobs[j].Batch}
		if _, ok := truth.Lookup(c); ok && !seen[c] {
			configs = append(configs, c)
		}
		seen[c] = true
	}
	return configs
}

// shared makes the placer of a variant that shares GPUs.
func (c *simCommand) shared(v variant, machines cluster.Cluster, jobs []cluster.Job, r *rates) (policy.Placer, error) {
	profiles, _, err := memory(jobs)
	if err != nil {
		return nil, err
	}
	o := c.Sharing.options()
	o.GPUMemory = leastMemory(machines)
	switch {
	case v.share != shareAlways && slices.Contains(policy.BaselineNames(), v.share):
		return policy.NewBaseline(v.share, machines, jobs, policy.BaselineOptions{Options: o, Profiles: profiles, Table: r.truth,
			Truth: r.truth, Utilisation: utilisation(c.Sharing.gpu()), Window: c.Adjust.Window, Pause: c.RestartCost})
	case r.mean != nil && v.share == shareFloor:
		belief := interference.NewBelief(r.mean, r.safe, r.coverage)
		p := placement.NewProblem(jobs, belief.Safe(), profiles, o)
		return policy.NewAdjusting(p, machines, policy.AdjustingOptions{Belief: belief, Truth: r.truth, Noise: c.Adjust.Noise,
			Random: rand.New(rand.NewPCG(uint64(c.Seeds[0]), 1)), Window: c.Adjust.Window, Pause: c.RestartCost,
			Drain: v.placement == placementHeuristic}), nil
	}
	o.NoFloors = v.share == shareAlways
	p := placement.NewProblem(jobs, r.truth, profiles, o)
	if v.placement == placementHeuristic {
		return policy.NewDraining(p, machines, c.RestartCost), nil
	}
	return policy.NewSharing(p, machines), nil
}

// utilisation is what the catalogue knows of a configuration alone.
func utilisation(gpu string) func(interference.Config) float64 {
	return func(config interference.Config) float64 {
		e, _ := catalogue.Find(config.Model, config.Batch, gpu)
		return e.GPUUtil
	}
}

// adjustment is how a run on predictions went, beside what could have been.
type adjustment struct {
	Observations  int     `json:"observations"`
	Repairs       int     `json:"repairs"`      // moves of a worker because a floor was expected to be broken
	Stuck         int     `json:"stuck"`        // repairs that found no room
	Drained       int     `json:"drained_jobs"` // moves to close gaps
	BelowSettled  float64 `json:"below_floor_settled_fraction"`
	JobsBelow     float64 `json:"jobs_below_floor_fraction"` // whose whole run was slower than the floor, pauses included
	MovesPerJob   float64 `json:"moves_per_job"`
	ConvergedS    float64 `json:"converged_s"` // when nine in ten repairs were done, from the first submission
	Regret        float64 `json:"regret_fraction"`
	SavedFraction float64 `json:"saved_fraction"`       // GPU-hours, against one GPU for every worker at full speed
	FewerGPUs     float64 `json:"fewer_gpus_fraction"`  // GPUs in use, against one for every worker running at the same time
	AboveBound    float64 `json:"above_bound_fraction"` // GPU time over that of the lower bound for the jobs that ran
}

// String is the adjustment in a sentence.
func (a *adjustment) String() string {
	return fmt.Sprintf("on predictions: %s fewer GPUs than one for every running worker, %s above the oracle, %s above the lower bound; "+
		"%s of job time below its floor after the first window; %s, %.2f moves a job", report.PercentTenths(a.FewerGPUs), report.Change(a.Regret),
		report.Change(a.AboveBound), hundredths(100*a.BelowSettled), report.Several(a.Repairs, "repair"), a.MovesPerJob)
}

// newAdjustment reads what the placers of a run on predictions did.
func newAdjustment(placers []*policy.Adjusting, r *sim.Result, jobs []cluster.Job) *adjustment {
	out, settled, jobTime, repairs := &adjustment{}, 0.0, 0.0, []unit.Time(nil)
	for _, p := range placers {
		a := p.Stats()
		out.Observations, out.Stuck, out.Drained = out.Observations+a.Observations, out.Stuck+a.Stuck, out.Drained+a.Drained
		repairs = append(repairs, a.Repairs...)
		settled, jobTime = settled+a.BelowSettled.Hours(), jobTime+a.JobTime.Hours()
	}
	if jobTime > 0 {
		out.BelowSettled = settled / jobTime
	}
	if out.Repairs = len(repairs); out.Repairs > 0 {
		slices.Sort(repairs)
		out.ConvergedS = repairs[(out.Repairs-1)*9/10].Sub(jobs[0].Submit).Seconds()
	}
	below, alone := 0, 0.0
	for _, o := range r.Outcomes {
		job := &jobs[o.Job]
		if o.Ended && o.Slowdown > 1/job.Floor+1e-9 {
			below++
		}
		if o.Ended {
			alone += job.Duration.Hours() * float64(job.Workers)
		}
	}
	if r.Jobs > 0 && alone > 0 {
		out.JobsBelow = float64(below) / float64(r.Jobs)
		out.MovesPerJob = float64(r.Migrations) / float64(r.Jobs)
		out.SavedFraction = 1 - r.GPUHours/alone
		out.FewerGPUs = 1 - r.GPUHours*r.MeanPerformance/alone
	}
	return out
}

// predictedTable shows what became of the runs on predictions, or is nil when there are none.
func (s *simStudy) predictedTable() *report.Table {
	t := &report.Table{Columns: []report.Column{
		{Title: "ON PREDICTIONS"}, {Title: "FEWER GPUS", Number: true}, {Title: "MEAN", Number: true}, {Title: "ABOVE ORACLE", Number: true},
		{Title: "ABOVE BOUND", Number: true}, {Title: "TIME BELOW", Number: true}, {Title: "JOBS BELOW", Number: true},
		{Title: "REPAIRS", Number: true}, {Title: "MOVES/JOB", Number: true}, {Title: "SETTLED", Number: true, Wide: true},
	}}
	for _, r := range s.Policies {
		a := r.Adjustment
		if a == nil || r.Jobs == 0 {
			continue
		}
		t.Rows = append(t.Rows, report.Cells(r.Policy+" "+r.Placement, report.PercentTenths(a.FewerGPUs), report.PercentTenths(r.MeanPerformance),
			report.Change(a.Regret), report.Change(a.AboveBound), hundredths(100*a.BelowSettled), hundredths(100*a.JobsBelow),
			report.Count(a.Repairs), fmt.Sprintf("%.2f", a.MovesPerJob), report.Seconds(a.ConvergedS)))
	}
	if len(t.Rows) == 0 {
		return nil
	}
	return t
}

// regret compares each run on predictions with the oracle's of the same policy and placement.
func (s *simStudy) regret() {
	for _, r := range s.Policies {
		for _, o := range s.Policies {
			if r.Adjustment != nil && o.Share == shareOracle && o.Policy == r.Policy && o.Placement == r.Placement && o.GPUHours > 0 {
				r.Adjustment.Regret = r.GPUHours/o.GPUHours - 1
			}
		}
	}
}

// boundSamples is how many instants the lower bound is computed at.
const boundSamples = 24

// aboveBound is the GPU time of a run over that which the lower bound allows for the jobs that ran at the same instants,
// less 1: sampled at instants that each stand for an equal part of the job time.
func (c *simCommand) aboveBound(ctx context.Context, r *sim.Result, machines cluster.Cluster, jobs []cluster.Job, truth *interference.Table) float64 {
	ran := make([]cluster.Job, 0, len(jobs))
	for _, o := range r.Outcomes {
		if o.Ended {
			job := jobs[o.Job]
			job.Submit, job.Duration = o.Start, o.End.Sub(o.Start)
			ran = append(ran, job)
		}
	}
	in := &planInput{jobs: ran, table: truth}
	in.profiles, _, _ = memory(ran) // the names of profiles were checked before
	curve := concurrency(ran, 1)
	_, instants := curve.samples(boundSamples)
	used, bound := 0.0, 0.0
	for _, t := range instants {
		if ctx.Err() != nil {
			break
		}
		running := in.at(t)
		workers := 0
		for j := range running.jobs {
			workers += running.jobs[j].Workers
		}
		if workers == 0 {
			continue
		}
		o := c.Sharing.options()
		o.GPUMemory = leastMemory(machines)
		weight := 1 / float64(workers) // equal parts of the job time
		bound += weight * float64(placement.LowerBound(running.problem(o)).Whole())
		used += weight * float64(gpusAt(r.Usage, t.Seconds()))
	}
	if bound == 0 {
		return 0
	}
	return used/bound - 1
}

// gpusAt reads a usage curve.
func gpusAt(usage []sim.Usage, seconds float64) int {
	i, _ := slices.BinarySearchFunc(usage, seconds, func(u sim.Usage, s float64) int {
		if u.At.Seconds() <= s {
			return -1
		}
		return 1
	})
	if i == 0 {
		return 0
	}
	return usage[i-1].GPUs
}
