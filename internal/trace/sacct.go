package trace

import (
	"bufio"
	"slices"
	"strings"
	"time"
	"unicode"

	"weft.dev/weft/internal/unit"
)

// sacctExport is the command whose output holds all that the reader uses.
const sacctExport = "sacct -aPX -o JobID,JobName,User,Partition,State,Submit,Start,End,Elapsed,Suspended,NNodes,ReqTRES,AllocTRES"

// Columns of sacct. Others, of -o ALL, are not looked at.
var (
	sacctRequired = []string{"JobID", "State", "Submit", "Start"}
	sacctElapsed  = []string{"Elapsed", "ElapsedRaw"}
	sacctAlloc    = []string{"AllocTRES", "AllocGRES"}
	sacctReq      = []string{"ReqTRES", "ReqGRES"}
)

// Reasons of sacct.
const (
	reasonStep     = "step of a job"
	reasonHeader   = "header row again"
	reasonRequeue  = "earlier run of a requeued job"
	reasonSame     = "repeats a run"
	reasonState    = "unknown state"
	reasonShards   = "share of a GPU (gres/shard, gres/mps): its size is not in the log"
	reasonRevoked  = "ran at another cluster of the federation"
	reasonNoRun    = "no valid run time"
	reasonTooLarge = "over 100000 GPUs"
)

// sacctReader turns rows of Slurm's accounting into jobs. A job may have several rows: its steps, earlier runs when
// it was requeued, and the components of a heterogeneous job; so jobs come out after the last row. Rows that cannot
// become a job are counted at once and take no memory.
type sacctReader struct {
	*Stream
	table  *Table
	runs   []sacctRun
	at     map[sacctKey]int // index in runs
	joined int              // rows whose job name held the separator
	cut    int              // rows whose list of array tasks was cut off
	gangs  int              // heterogeneous jobs of several components with GPUs
	gpus   int              // rows that state GPUs
	naive  bool             // a time had no offset
	typed  []string         // GPU types seen, in order of appearance
}

// sacctKey tells jobs apart. Ids restart when a cluster is set up anew, hence the user and name.
type sacctKey struct{ id, user, name string }

// sacctRun is the last run of a job, or of one component of a heterogeneous job.
type sacctRun struct {
	key       sacctKey  // id with the component
	component int       // index in a heterogeneous job, -1 when it is none
	submitted unit.Time // first submission of any run
	submit    unit.Time // of this run
	start     unit.Time
	run       time.Duration // without suspension
	gpus      int
	running   bool // has not ended
	line      int  // of the job's first row
}

// readSacct reads the output of sacct with -P (and any --delimiter). A job is its last run that started, from its first
// submission: the work that was asked for, not the failed tries. Components of a heterogeneous job are one gang, which
// runs as long as the longest. GPUs are counted from AllocTRES (typed and untyped entries are two views of the same GPUs).
// Run time is Elapsed, and not End - Start: that includes suspension, and naive times jump with summer time.
// Partitions overlap, so they are no virtual clusters: a job has VC only where Options.VC picks one partition.
func readSacct(s *Stream, r *bufio.Reader) error {
	t, err := openTable(s.file, newPlainRows(r, sacctSeparator), sacctRequired)
	if err != nil {
		return err
	}
	if n := len(t.header); n > 1 && t.header[n-1] == "" {
		t.header = t.header[:n-1] // sacct -p ends each line with the separator
	}
	if err := checkSacct(t); err != nil {
		return err
	}
	if err := s.axis(true); err != nil {
		return err
	}
	c := &sacctReader{Stream: s, table: t, at: map[sacctKey]int{}}
	for s.next(t) {
		if c.fit() {
			c.row()
		}
	}
	if err := t.Err(); err != nil {
		return err
	}
	c.emit()
	c.note()
	return nil
}

// sacctSeparator is what stands between the first two names of a header: "|" unless --delimiter was given.
func sacctSeparator(header string) (string, *Error) {
	if strings.Contains(header, "|") {
		return "|", nil
	}
	name := func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' }
	rest := strings.TrimLeftFunc(header, name)
	sep := rest[:len(rest)-len(strings.TrimLeftFunc(rest, func(r rune) bool { return !name(r) }))]
	switch {
	case strings.Contains(header, "JobID") && (rest == header || sep != "" && strings.Trim(sep, " ") == ""):
		return "", &Error{Code: "fixed_width", Row: clean(header), Why: "columns of fixed width cut long cells off",
			Message: "this is sacct's output for people, not its parsable form", Fix: "export with " + sacctExport}
	case sep == "" || !slices.Contains(strings.Split(header, sep), "JobID"):
		return ",", nil // no output of sacct; the check of the header says what it is
	}
	return sep, nil
}

func checkSacct(t *Table) error {
	required := slices.Clone(sacctRequired)
	for _, choice := range [][]string{sacctElapsed, sacctAlloc} {
		if !slices.ContainsFunc(t.header, func(c string) bool { return slices.Contains(choice, c) }) {
			required = append(required, choice[0])
		}
	}
	err := t.check(Columns{Required: required, IgnoreUnknown: true})
	for _, e := range t.errs {
		if e.Code == "missing_column" {
			e.Fix = "export with " + sacctExport
		}
	}
	return err
}

// fit makes the row as wide as the header. A job name may hold the separator: when the surplus cells joined to the
// name leave a row whose state and times read well, that is what happened.
func (c *sacctReader) fit() bool {
	t, want := c.table, len(c.table.header)
	if n := len(t.record); n == want+1 && t.record[n-1] == "" {
		t.record = t.record[:n-1]
	}
	surplus := len(t.record) - want
	if surplus == 0 {
		return true
	}
	if at, ok := t.columns["JobName"]; ok && surplus > 0 {
		whole := t.record
		t.record = slices.Concat(whole[:at], []string{strings.Join(whole[at:at+surplus+1], t.rows.comma())}, whole[at+surplus+1:])
		if c.plausible() {
			c.joined++
			return true
		}
		t.record = whole
	}
	e := cellCount(t.line, len(t.record), want, "export with a separator that no cell holds: sacct --delimiter=@@ -aPX ...")
	e.Why, e.Row = "a job name or comment may hold the separator or a line end", t.row()
	t.fault(e)
	return false
}

func (c *sacctReader) plausible() bool {
	_, known := sacctStates[sacctState(c.table.Text("State"))]
	_, _, err := sacctTime(c.table.Text("Submit"))
	return known && err == nil
}

// row files one row under its job.
func (c *sacctReader) row() {
	t := c.table
	text := t.Text("JobID")
	if text == "JobID" {
		c.exclude(reasonHeader)
		return
	}
	id, err := parseSacctID(text)
	if err != nil {
		t.Fault("JobID", "bad_id", err.Error(), "", "export with "+sacctExport)
		return
	}
	switch {
	case id.step:
		c.exclude(reasonStep)
	case c.ofOtherVC(t.Text("Partition")):
	case id.tasks > 0:
		c.pendingTasks(id)
	default:
		before := len(t.errs)
		run, reason := c.parse(id)
		switch {
		case len(t.errs) > before:
		case reason != "":
			c.exclude(reason)
		default:
			c.file(run)
		}
	}
}

// pendingTasks counts the tasks of an array that are in one row because none of them started.
func (c *sacctReader) pendingTasks(id sacctID) {
	reason := reasonNoStart
	if !c.asksGPU() {
		reason = reasonNoGPU
	}
	c.Excluded.Count(reason, id.tasks)
	c.extra += id.tasks - 1
	if id.cut {
		c.cut++
	}
}

// asksGPU says whether the row asks for GPUs; a log without a column of requests leaves it open, which counts as yes.
func (c *sacctReader) asksGPU() bool {
	known := false
	for _, column := range sacctReq {
		known = known || c.table.Has(column)
		if g := parseGRES(c.table.Text(column)); g.any() {
			return true
		}
	}
	return !known
}

// file keeps the last run of each job.
func (c *sacctReader) file(run sacctRun) {
	at, again := c.at[run.key]
	if !again {
		c.at[run.key] = len(c.runs)
		c.runs = append(c.runs, run)
		return
	}
	known := &c.runs[at]
	reason := reasonRequeue
	if known.submit == run.submit && known.start == run.start {
		reason = reasonSame // an export taken later, or joined twice, holds the same run
	}
	c.exclude(reason)
	first, line := min(known.submitted, run.submitted), known.line
	if later(run, *known) {
		*known = run
	}
	known.submitted, known.line = first, line
}

// later orders runs of one job; the later row wins among equals, as it was exported later.
func later(a, b sacctRun) bool {
	if a.submit != b.submit {
		return a.submit > b.submit
	}
	return a.start >= b.start
}
