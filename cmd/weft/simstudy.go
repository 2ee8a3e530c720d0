package main

import (
	"fmt"
	"math"
	"time"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/sim"
	"weft.dev/weft/internal/trace"
)

// simStudy is the answer of weft sim: what --json writes and the table shows.
type simStudy struct {
	Schema   int       `json:"schema"`
	Policies []*simRun `json:"policies"`
	Notes    []string  `json:"notes"`
	Partial  bool      `json:"partial,omitempty"`

	jobs  []cluster.Job // empty for published replays
	floor float64       // of all jobs; 0 when they differ or none counts
	fill  float64       // of a fill-up
}

// simRun is one policy, placement and way to share.
type simRun struct {
	sim.Figures
	Rules    string        `json:"rules"` // whose: weft, muri, pollux, fgd
	Workload string        `json:"workload,omitempty"`
	VCs      []sim.VC      `json:"vcs,omitempty"`
	Seeds    []seedFigures `json:"seeds,omitempty"`

	Adjustment *adjustment `json:"adjustment,omitempty"` // of a run on predictions

	variant variant
	result  *sim.Result
	gpus    int
	nodes   cluster.Cluster
	took    time.Duration
}

func newSimRun(v variant, rules string, r *sim.Result, machines cluster.Cluster) *simRun {
	r.Policy, r.Placement, r.Share = v.policy, v.placement, v.share
	return &simRun{Figures: r.Figures, Rules: rules, VCs: r.VCs, variant: v, result: r, gpus: machines.GPUs(), nodes: machines}
}

// name tells a run from the others of its study.
func (r *simRun) name() string {
	name := r.Policy + " " + r.Placement + " " + r.Share
	if r.Workload != "" {
		name += " workload " + r.Workload
	}
	return name
}

func newSimStudy(notes ...string) *simStudy {
	return &simStudy{Schema: 1, Policies: []*simRun{}, Notes: append([]string{}, notes...)}
}

func (s *simStudy) add(r *simRun) {
	if r.Excluded == nil {
		r.Excluded = []trace.Exclusion{}
	}
	s.Policies = append(s.Policies, r)
}

// perSecond is a rate that is a number whatever the clock says.
func perSecond(n int, d time.Duration) float64 {
	return float64(n) / max(d, time.Microsecond).Seconds()
}

// write shows the study to a person.
func (s *simStudy) write(out *session) error {
	t := s.table()
	if err := t.Write(out.stdout, out.screen); err != nil {
		return err
	}
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(out.stdout, format, args...) }
	p("%s\n", out.wrap(s.verdict()))
	for _, r := range s.Policies {
		if len(r.VCs) > 1 {
			p("\n%s, by virtual cluster\n", r.name())
			t := vcTable(r.VCs)
			if err := t.Write(out.stdout, out.screen); err != nil {
				return err
			}
		}
	}
	if t := s.predictedTable(); t != nil {
		p("\n")
		if err := t.Write(out.stdout, out.screen); err != nil {
			return err
		}
	}
	for _, note := range s.Notes {
		p("%s\n", out.wrap("note: "+report.Clean(note)))
	}
	for _, x := range s.excluded() {
		p("%s\n", out.wrap(fmt.Sprintf("excluded: %s: %s", report.Several(x.Rows, "row"), report.Clean(x.Reason))))
	}
	return nil
}

// table compares the runs.
func (s *simStudy) table() *report.Table {
	if s.fill > 0 {
		return s.fillTable()
	}
	t := &report.Table{Columns: []report.Column{
		{Title: "POLICY"}, {Title: "PLACEMENT", Wide: !s.placementsDiffer()}, {Title: "SHARE"}, {Title: "JCT AVG", Number: true, Meaning: "mean time from submission to end"},
		{Title: "MEDIAN", Number: true, Wide: true}, {Title: "P95", Number: true, Wide: true},
		{Title: "QUEUE", Number: true, Meaning: "mean time without a GPU"}, {Title: "PEAK", Number: true, Meaning: "most GPUs in use at once"},
		{Title: "GPU-HOURS", Number: true, Meaning: "GPU time with at least one job"}, {Title: "UTIL", Number: true, Meaning: "share of the cluster's GPU time with a job"},
		{Title: "BROKEN", Number: true, Meaning: "jobs that were below their floor"}, {Title: "MOVES", Number: true, Wide: true, Meaning: "migrations and preemptions"},
	}}
	for _, r := range s.Policies {
		t.Rows = append(t.Rows, r.cells())
	}
	for column, value := range map[int]func(*simRun) float64{
		3: func(r *simRun) float64 { return r.AvgJCT }, 4: func(r *simRun) float64 { return r.MedianJCT },
		5: func(r *simRun) float64 { return r.P95JCT }, 6: func(r *simRun) float64 { return r.AvgQueue },
		7: func(r *simRun) float64 { return float64(r.PeakGPUs) }, 8: func(r *simRun) float64 { return r.GPUHours },
	} {
		s.markBest(t, column, value, false)
	}
	s.markBest(t, 9, func(r *simRun) float64 { return r.Utilisation }, true)
	return t
}

func (s *simStudy) markBest(t *report.Table, column int, value func(*simRun) float64, greater bool) {
	values := make([]float64, len(s.Policies))
	for i, r := range s.Policies {
		if values[i] = value(r); r.Jobs == 0 || r.Workload != "" {
			values[i] = math.NaN()
		}
	}
	for _, i := range report.BestOf(values, greater) {
		t.Rows[i][column].Mark = report.Best
	}
}

func (s *simStudy) placementsDiffer() bool {
	for _, r := range s.Policies {
		if r.Placement != s.Policies[0].Placement {
			return true
		}
	}
	return false
}

func (r *simRun) cells() []report.Cell {
	policy := r.Policy
	if r.Workload != "" {
		policy += " " + r.Workload
	}
	seconds := func(v float64) string {
		if r.Jobs == 0 {
			return report.None
		}
		return report.Seconds(v)
	}
	row := report.Cells(policy, r.Placement, r.Share, seconds(r.AvgJCT), seconds(r.MedianJCT), seconds(r.P95JCT), seconds(r.AvgQueue),
		report.Count(r.PeakGPUs), report.Amount(r.GPUHours), report.Percent(r.Utilisation), report.Count(r.BrokenFloors),
		report.Count(r.Migrations+r.Preemptions))
	if r.BrokenFloors > 0 {
		row[10].Mark = report.Bad
	}
	return row
}

// fillTable compares the placements of a fill-up.
func (s *simStudy) fillTable() *report.Table {
	t := &report.Table{Columns: []report.Column{
		{Title: "PLACEMENT"}, {Title: "SEEDS", Number: true}, {Title: "ALLOCATED", Number: true, Meaning: "share of the GPUs given out at the end"},
		{Title: "FRAGMENTED", Number: true, Meaning: "share of the GPUs that the next typical pod could not use"}, {Title: "PODS/S", Number: true},
	}}
	for _, r := range s.Policies {
		t.Rows = append(t.Rows, report.Cells(r.Placement, report.Count(len(r.Seeds)), hundredths(r.Allocation), hundredths(*r.Fragmentation),
			report.Count(int(r.EventsPerSecond))))
	}
	s.markBest(t, 2, func(r *simRun) float64 { return r.Allocation }, true)
	s.markBest(t, 3, func(r *simRun) float64 { return *r.Fragmentation }, false)
	return t
}

func hundredths(percent float64) string { return fmt.Sprintf("%.2f %%", percent) }

func vcTable(vcs []sim.VC) *report.Table {
	t := &report.Table{Columns: []report.Column{
		{Title: "VC", Shrink: true}, {Title: "GPUS", Number: true}, {Title: "JOBS", Number: true}, {Title: "JCT AVG", Number: true},
		{Title: "QUEUE", Number: true}, {Title: "PEAK", Number: true}, {Title: "GPU-HOURS", Number: true}, {Title: "UTIL", Number: true},
	}}
	for _, v := range vcs {
		jct, queue := report.Seconds(v.AvgJCT), report.Seconds(v.AvgQueue)
		if v.Jobs == 0 {
			jct, queue = report.None, report.None
		}
		t.Rows = append(t.Rows, report.Cells(v.VC, report.Count(v.GPUs), report.Count(v.Jobs), jct, queue,
			report.Count(v.PeakGPUs), report.Amount(v.GPUHours), report.Percent(v.Utilisation)))
	}
	return t
}
