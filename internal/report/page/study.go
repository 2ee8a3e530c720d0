// Package page writes a study - several policies replayed on the same jobs - as one HTML file that needs nothing else:
// no network, no script to be read, no second file. It draws completion times, GPUs in use, slowdowns and who ran where.
package page

import (
	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/trace"
	"weft.dev/weft/internal/unit"
)

// Study is everything a page shows. All text may come from outside; it is escaped.
type Study struct {
	Title    string           // "weft sim philly_jobs.csv"
	Command  string           // the command line that produces the study again
	Verdict  string           // the answer in a sentence or two
	Partial  string           // why the study is incomplete: a banner says so. "" when it is complete
	Table    report.Table     // the comparison, as on the terminal; a row for each run, in the same order, gets its line sample
	Excluded trace.Exclusions // rows of the input that take no part, and why
	Notes    []string         // limits and assumptions, a sentence each
	Runs     []Run            // what the charts compare
}

// Run is one policy on the jobs of the study.
type Run struct {
	Name       string    // "fifo never"; the same name everywhere on the page
	JCTSeconds []float64 // completion time (end - submission) of every finished job, in seconds. NaN is left out
	Usage      []Step    // GPUs in use, in order of time
	Slowdowns  []float64 // run time over standalone run time of every finished job, at least 1. NaN is left out
	Floor      float64   // the floor of the jobs as a share of standalone speed, in (0, 1]; 0 when they have none or several
	Rates      []Rate    // what each job kept of its speed, the same jobs in the same order in each run; nil where it is not shown
	Bars       []Bar     // stays of workers on GPUs, in any order
	GPUNames   []string  // name of each GPU by index; one without a name is "gpu N"
}

// Step is a step of the GPUs-in-use curve: from At on, GPUs have a resident.
type Step struct {
	At   unit.Time
	GPUs int
}

// Bar is one stay of one worker on one GPU.
type Bar struct {
	Job        string
	GPU        int // index in the cluster
	Start, End unit.Time
	Below      bool // the job was below its floor during the stay
}
