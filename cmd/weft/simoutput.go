package main

import (
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/report/page"
)

// simOutputs are the files that a study writes beside what it shows. They are opened before the work starts.
type simOutputs struct {
	html    *target // nil when not asked for, as figures
	figures *target
	dir     string
}

func (c *simCommand) openOutputs() (*simOutputs, error) {
	o := &simOutputs{dir: c.CSV}
	var err error
	if c.CSV != "" {
		if err := os.MkdirAll(c.CSV, 0o777); err != nil {
			return nil, err
		}
		if o.figures, err = openTarget(filepath.Join(c.CSV, "policies.csv")); err != nil {
			return nil, err
		}
	}
	if c.HTML != "" {
		if o.html, err = openTarget(c.HTML); err != nil {
			o.drop()
			return nil, err
		}
	}
	return o, nil
}

// drop gives back the files that were not written.
func (o *simOutputs) drop() {
	o.figures.drop()
	o.html.drop()
}

func (o *simOutputs) write(study *simStudy, s *session, c *simCommand) error {
	if o.figures != nil {
		if err := o.figures.write(study.writeFigures); err != nil {
			return err
		}
		if err := study.writeRuns(o.dir); err != nil {
			return err
		}
	}
	if o.html == nil {
		return nil
	}
	return o.html.write(func(w io.Writer) error { return page.HTML(w, study.page(s, c)) })
}

// page is the study as the HTML report shows it.
func (s *simStudy) page(out *session, c *simCommand) page.Study {
	p := page.Study{Title: "weft sim " + filepath.Base(c.Trace), Command: "weft " + strings.Join(out.args, " "), Verdict: s.verdict(),
		Table: *s.table(), Excluded: s.excluded(), Notes: slices.Clone(s.Notes)}
	if s.Partial {
		p.Partial = "interrupted: what had ended by then"
	}
	for _, r := range s.Policies {
		p.Runs = append(p.Runs, s.pageRun(r))
		if r.Adjustment != nil {
			p.Notes = append(p.Notes, r.name()+" "+r.Adjustment.String())
		}
	}
	return p
}

func (s *simStudy) pageRun(r *simRun) page.Run {
	run := page.Run{Name: r.name(), Floor: s.floor}
	if r.result == nil {
		return run
	}
	for _, o := range r.result.Outcomes {
		if o.Ended {
			run.JCTSeconds = append(run.JCTSeconds, o.JCT().Seconds())
			run.Slowdowns = append(run.Slowdowns, o.Slowdown)
		}
	}
	for _, u := range r.result.Usage {
		run.Usage = append(run.Usage, page.Step{At: u.At, GPUs: u.GPUs})
	}
	for _, x := range r.result.Spans {
		run.Bars = append(run.Bars, page.Bar{Job: s.jobs[x.Job].ID, GPU: int(x.GPU), Start: x.Start, End: x.End,
			Below: r.result.Outcomes[x.Job].Broken})
	}
	run.GPUNames = gpuNames(r.nodes)
	return run
}

// gpuNames names GPUs by node and index: "n3/gpu1", or the node's own name.
func gpuNames(c cluster.Cluster) []string {
	var names []string
	for i, n := range c.Nodes {
		node := n.Name
		if node == "" {
			node = fmt.Sprintf("n%d", i)
		}
		for g := range n.GPUs {
			names = append(names, fmt.Sprintf("%s/gpu%d", node, g))
		}
	}
	return names
}

// writeFigures writes a row for each run.
func (s *simStudy) writeFigures(w io.Writer) error {
	rows := [][]string{{"policy", "placement", "share", "workload", "avg_jct_s", "median_jct_s", "p95_jct_s", "p99_jct_s", "avg_queue_s",
		"makespan_s", "gpu_hours", "peak_gpus", "utilisation", "allocation_pct", "fragmentation_pct", "broken_floors", "migrations",
		"preemptions", "jobs"}}
	for _, r := range s.Policies {
		fragmentation := ""
		if r.Fragmentation != nil {
			fragmentation = number(*r.Fragmentation)
		}
		rows = append(rows, []string{r.Policy, r.Placement, r.Share, r.Workload, number(r.AvgJCT), number(r.MedianJCT), number(r.P95JCT),
			number(r.P99JCT), number(r.AvgQueue), number(r.Makespan), number(r.GPUHours), strconv.Itoa(r.PeakGPUs), number(r.Utilisation),
			number(r.Allocation), fragmentation, strconv.Itoa(r.BrokenFloors), strconv.Itoa(r.Migrations), strconv.Itoa(r.Preemptions),
			strconv.Itoa(r.Jobs)})
	}
	return csv.NewWriter(w).WriteAll(rows)
}

// writeRuns writes one file of jobs for each run.
func (s *simStudy) writeRuns(dir string) error {
	for _, r := range s.Policies {
		if err := s.writeRun(dir, r); err != nil {
			return err
		}
	}
	return nil
}

// fileName is a run's name as one of a file: a workload's name comes from the trace and may hold anything.
func (r *simRun) fileName() string {
	return strings.Map(func(c rune) rune {
		if c == '.' || c == '_' || c < unicode.MaxASCII && (unicode.IsLetter(c) || unicode.IsDigit(c)) {
			return c
		}
		return '-'
	}, r.name()) + ".csv"
}

// writeRun writes the jobs of a run, or the curves of a fill-up.
func (s *simStudy) writeRun(dir string, r *simRun) error {
	file := filepath.Join(dir, r.fileName())
	if len(r.Seeds) > 0 {
		rows := [][]string{{"seed", "arrived_pct", "allocation_pct", "fragmentation_pct"}}
		for _, seed := range r.Seeds {
			for _, p := range seed.Curve {
				rows = append(rows, []string{strconv.FormatInt(seed.Seed, 10), strconv.Itoa(p.Arrived), number(p.Allocation), number(p.Fragmentation)})
			}
		}
		return writeRows(file, rows)
	}
	rows := [][]string{{"job", "submit_s", "start_s", "end_s", "jct_s", "queue_s", "slowdown", "below_floor", "preemptions", "migrations"}}
	for _, o := range r.result.Outcomes {
		if !o.Ended {
			continue
		}
		id := strconv.Itoa(o.Job)
		if o.Job < len(s.jobs) {
			id = s.jobs[o.Job].ID
		}
		rows = append(rows, []string{id, number(o.Submit.Seconds()), number(o.Start.Seconds()), number(o.End.Seconds()), number(o.JCT().Seconds()),
			number(o.Queue().Seconds()), number(o.Slowdown), strconv.FormatBool(o.Broken), strconv.Itoa(o.Preemptions), strconv.Itoa(o.Migrations)})
	}
	return writeRows(file, rows)
}

func writeRows(path string, rows [][]string) error {
	t, err := openTarget(path)
	if err != nil {
		return err
	}
	return t.write(func(w io.Writer) error { return csv.NewWriter(w).WriteAll(rows) })
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
