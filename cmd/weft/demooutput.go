package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/demo"
	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/report/page"
	"weft.dev/weft/internal/unit"
)

// demoStudy is what a demo found.
type demoStudy struct {
	command *demoCommand
	setup   demo.Setup
	runs    []demo.Run
	Modes   []demo.Figures `json:"modes"`
}

// add takes in the run of the next mode. The first is that of each job alone.
func (d *demoStudy) add(r demo.Run) {
	d.runs = append(d.runs, r)
	d.Modes = append(d.Modes, demo.Measure(d.setup.Group, &r, &d.runs[0]))
}

// write shows the study, and fills its report unless that is nil.
func (d *demoStudy) write(s *session, file *target) error {
	path := ""
	if file != nil {
		path = file.f.Name()
		if err := file.write(func(w io.Writer) error { return page.HTML(w, d.page(s)) }); err != nil {
			return err
		}
	}
	if d.command.JSON {
		s.writeJSON(d)
		return nil
	}
	if err := d.table().Write(s.stdout, s.screen); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(s.stdout, "\n%s\n", s.wrap(d.verdict()))
	if path != "" {
		_, _ = fmt.Fprintf(s.stdout, "The report, with who ran where: %s\n", path)
	}
	if s.tty {
		_, _ = fmt.Fprintln(s.stderr, "next: weft up --emulate 4, and in another terminal weft run -- CMD")
	}
	return nil
}

// columns are the figures with what they mean, as docs/demo.md has it.
var demoColumns = []report.Column{
	{Title: "MODE", Meaning: "exclusive: each job on a GPU of its own, four at a time, in order of submission. timeslice: four jobs a GPU, all at once, by the driver's " +
		"time slices; a job that is out of memory starts again 2 s later from a checkpoint that is at most a second old. weft: submitted to weft, all at once."},
	{Title: "COMPLETION", Number: true, Meaning: "Time from the first start of a job to the last end."},
	{Title: "CHANGE", Number: true, Meaning: "Completion against that of exclusive GPUs."},
	{Title: "UTIL", Number: true, Meaning: "Share of that time in which a kernel ran, averaged over the GPUs that were used."},
	{Title: "HIGH LOSS", Number: true, Meaning: "1 less the mean rate of the guaranteed jobs while they ran. A rate is a share of the same job's speed in the exclusive run; " +
		"work that is done twice after a restart counts once."},
	{Title: "LOW RATE", Number: true, Meaning: "Mean rate of the besteffort jobs while they ran."},
	{Title: "BROKEN", Number: true, Meaning: "Jobs whose rate while they ran was below their floor."},
	{Title: "OOM", Number: true, Meaning: "Times that a job died for want of GPU memory."},
	{Title: "GPUS", Number: true, Meaning: "Most GPUs in use at once."},
}

// table compares the modes.
func (d *demoStudy) table() *report.Table {
	t := &report.Table{Columns: demoColumns}
	var completion, utilisation []float64
	for _, f := range d.Modes {
		change := ""
		if f.Mode != demo.Exclusive {
			change = signed(f.Completion/d.Modes[0].Completion - 1)
		}
		row := report.Cells(string(f.Mode), report.Seconds(f.Completion), change, report.Percent(f.Utilisation), report.PercentTenths(f.HighLoss),
			report.Percent(f.LowRate), strconv.Itoa(f.Broken), strconv.Itoa(f.OOM), strconv.Itoa(f.GPUs))
		for column, count := range map[int]int{6: f.Broken, 7: f.OOM} {
			if count > 0 {
				row[column].Mark = report.Bad
			}
		}
		t.Rows = append(t.Rows, row)
		completion, utilisation = append(completion, math.Round(f.Completion)), append(utilisation, math.Round(100*f.Utilisation))
	}
	for column, best := range map[int][]int{1: report.BestOf(completion, false), 3: report.BestOf(utilisation, true)} {
		for _, row := range best {
			t.Rows[row][column].Mark = report.Best
		}
	}
	return t
}

// signed is a change to the whole percent.
func signed(share float64) string {
	return fmt.Sprintf("%+.0f %%", 100*share)
}

// verdict is the answer in a sentence.
func (d *demoStudy) verdict() string {
	alone, weft := d.Modes[0], d.Modes[len(d.Modes)-1]
	faster := fmt.Sprintf("%.0f %% sooner than with a GPU for each", 100*(1-weft.Completion/alone.Completion))
	if weft.Completion > alone.Completion {
		faster = fmt.Sprintf("%.0f %% later than with a GPU for each", 100*(weft.Completion/alone.Completion-1))
	}
	slices := d.Modes[1]
	return fmt.Sprintf("Under weft, %s end %s, and GPUs compute %s of the time instead of %s; guaranteed jobs lose %s, %s broken. "+
		"Time slices take %s from guaranteed jobs, with %s broken and %d deaths for want of memory.",
		report.Several(len(d.setup.Group), "job"), faster, report.Percent(weft.Utilisation), report.Percent(alone.Utilisation),
		report.PercentTenths(max(0, weft.HighLoss)), report.Several(weft.Broken, "floor"),
		report.PercentTenths(max(0, slices.HighLoss)), report.Several(slices.Broken, "floor"), slices.OOM)
}

// page is the study as an HTML report.
func (d *demoStudy) page(s *session) page.Study {
	p := page.Study{Title: "weft demo", Command: "weft " + strings.Join(s.args, " "), Verdict: d.verdict(), Table: *d.table(), Notes: d.notes()}
	for i := range d.runs {
		p.Runs = append(p.Runs, d.pageRun(&d.runs[i]))
	}
	return p
}

// notes are what the figures rest on.
func (d *demoStudy) notes() []string {
	count := map[box.Class]int{}
	for _, j := range d.setup.Group {
		count[j.Class]++
	}
	return []string{
		fmt.Sprintf("The group: %d jobs drawn with seed %d from the configurations of the catalogue whose kernels run %s of the time alone: %d guaranteed (floor %s), %d burstable "+
			"(%s), %d besteffort (%s). Another group has other figures; docs/demo.md has those of groups that gain less.", len(d.setup.Group), d.command.Seed,
			demo.Mix(d.command.Mix).Range(), count[box.Guaranteed], floorOf(d.setup.Group, box.Guaranteed), count[box.Burstable], floorOf(d.setup.Group, box.Burstable),
			count[box.BestEffort], floorOf(d.setup.Group, box.BestEffort)),
		fmt.Sprintf("GPUs are emulated: %d of %v. Kernels take their time and memory is counted, but nothing is computed, and caches and memory bandwidth are not modelled: "+
			"jobs that run at once lose less than on a real GPU, in every mode.", len(d.setup.GPUs), d.setup.Memory),
		fmt.Sprintf("Rates, utilisation and memory of the jobs are those of an A100 with 40 GB, %d times slower: sixteen programs at full speed would wait for this machine's "+
			"processors, not for GPUs. Where other programs use the processors as well, all modes are slower, and less precise.", demo.SlowMotion),
	}
}

// floorOf is the floor of the jobs of a class.
func floorOf(group []demo.Job, class box.Class) string {
	i := slices.IndexFunc(group, func(j demo.Job) bool { return j.Class == class })
	if i < 0 {
		return report.None
	}
	return report.Percent(group[i].Floor)
}

// pageRun is a run as the charts take it.
func (d *demoStudy) pageRun(r *demo.Run) page.Run {
	run := page.Run{Name: string(r.Mode)}
	for i, o := range r.Jobs {
		job, rate, below := d.setup.Group[i], r.Rate(i, &d.runs[0]), r.Below(d.setup.Group, i, &d.runs[0])
		run.Rates = append(run.Rates, page.Rate{Job: job.Name, Group: job.Class.String(), Rate: rate, Floor: job.Floor})
		run.Slowdowns = append(run.Slowdowns, max(1, 1/rate))
		for _, stay := range o.Stays {
			run.Bars = append(run.Bars, page.Bar{Job: job.Name, GPU: stay.GPU, Start: moment(stay.From), End: moment(stay.To), Below: below})
		}
		run.JCTSeconds = append(run.JCTSeconds, o.Stays[len(o.Stays)-1].To.Seconds())
	}
	for _, step := range r.Usage() {
		run.Usage = append(run.Usage, page.Step{At: moment(step.At), GPUs: step.GPUs})
	}
	for gpu := range d.setup.GPUs {
		run.GPUNames = append(run.GPUNames, fmt.Sprintf("gpu%d", gpu))
	}
	return run
}

// moment is a time since the start of a run.
func moment(d time.Duration) unit.Time { return unit.Time(d) }
