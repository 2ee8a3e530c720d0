package trace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// readText reads a text in a format.
func readText(t testing.TB, format, text string, o Options) *Trace {
	t.Helper()
	trace, err := Read(context.Background(), format, "in", strings.NewReader(text), o)
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	checkJobs(t, trace)
	return trace
}

// faults reads a text that must be refused.
func faults(t testing.TB, format, text string, o Options) Errors {
	t.Helper()
	trace, err := Read(context.Background(), format, "in", strings.NewReader(text), o)
	var e Errors
	if !errors.As(err, &e) {
		t.Fatalf("read gave %+v and error %v, want faults", trace, err)
	}
	if trace != nil {
		t.Errorf("read gave a trace besides %v", err)
	}
	return e
}

func TestSacct(t *testing.T) {
	text, err := os.ReadFile("testdata/sacct.txt")
	if err != nil {
		t.Fatal(err)
	}
	trace := readText(t, "sacct", string(text), Options{})
	type job struct {
		ID, Name string
		Workers  int
		Seconds  float64
		Submit   string
	}
	var got []job
	for _, j := range trace.Jobs {
		got = append(got, job{j.ID, j.Name, j.Workers, j.Duration.Seconds(),
			trace.Origin.Add(time.Duration(j.Submit)).Format("01-02 15:04")})
		if j.VC != "" {
			t.Errorf("%s: partition %q was kept as a virtual cluster", j.ID, j.VC)
		}
	}
	want := []job{
		{"70001", "bert", 2, 26 * 3600, "05-04 10:00"},
		{"70002", "two kinds", 3, 3600, "05-04 10:01"},
		{"70003", "only untyped", 1, 123, "05-04 10:02"},
		{"70010", "held, gross", 1, 5400, "05-04 10:06"},
		{"70011", "held, net", 1, 5400, "05-04 10:06"},
		{"70012", "again", 4, 3600, "05-04 10:07"}, // its last run, from its first submission
		{"70013_9", "array", 1, 1800, "05-04 10:08"},
		{"70015", "rl-learner", 5, 3600, "05-04 10:09"}, // the component without a GPU is apart
		{"70016", `a|b "quoted" | name`, 1, 60, "05-04 10:11"},
		{"70001#28", "new cluster, old id", 1, 60, "06-04 10:11"},
		{"70017", `"open quote`, 1, 900, "10-26 02:50"}, // ends before it begins by the clock of that night
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("jobs (-want +got):\n%s", d)
	}
	wantCounts(t, trace.Excluded, map[string]int{
		reasonStep: 3, reasonShards: 1, "MIG slice (3g.20gb)": 1, reasonNoGPU: 1 + 3 + 1, reasonNoStart: 1 + 1 + 6,
		reasonRunning: 1, reasonRequeue: 1, reasonNoTime: 1, reasonState: 1, reasonHeader: 1, reasonSame: 1,
	})
	notes := strings.Join(trace.Notes, "\n")
	for _, n := range []string{"h100, l40s", "summer time", "separator put together again: 1", "components with GPUs: 1",
		"11 of 11 jobs name no model"} {
		if !strings.Contains(notes, n) {
			t.Errorf("no note of %q in:\n%s", n, notes)
		}
	}
	one := readText(t, "sacct", string(text), Options{VC: "b"})
	if len(one.Jobs) != 8 || one.Jobs[0].VC != "b" {
		t.Errorf("partition b has %d jobs: %+v", len(one.Jobs), one.Jobs)
	}
}

// Columns may come in any order, with another separator, a last separator on each line, CRLF and a byte order mark.
func TestSacctForms(t *testing.T) {
	rows := [][]string{
		{"JobID", "State", "Submit", "Start", "End", "ElapsedRaw", "AllocGRES"},
		{"5", "COMPLETED", "2025-05-04T10:00:00+02:00", "2025-05-04T10:00:00+0200", "1746349260", "3660", "gpu:a100:2(S:0,2),gpu:v100:1"},
		{"6", "COMPLETED", "1746345660", "2025-05-04T08:01:00Z", "N/A", "10", "gres:gpu:1"},
		{"7", "FAILED", "2025-05-04 08:02:00", "2025-05-04T08:02:00", "None", "", "gpu"},
	}
	join := func(sep, end, start string) string {
		var b strings.Builder
		b.WriteString(start)
		for _, r := range rows {
			b.WriteString(strings.Join(r, sep) + end)
		}
		return b.String()
	}
	for name, text := range map[string]string{
		"plain": join("|", "\n", ""), "trailing": join("|", "|\n", ""), "CRLF and BOM": join("|", "\r\n", "\xef\xbb\xbf"),
		"delimiter": join("@@", "\n", ""), "comma-free tab": join("\t", "\n", ""), "unit separator": join("\x1f", "\n\n", ""),
	} {
		trace := readText(t, "sacct", text, Options{})
		if len(trace.Jobs) != 2 || trace.Jobs[0].Workers != 3 || trace.Jobs[0].Duration != 61*time.Minute || trace.Jobs[1].Workers != 1 {
			t.Errorf("%s: jobs %+v", name, trace.Jobs)
		}
		if trace.Jobs[1].Submit.Sub(trace.Jobs[0].Submit) != time.Minute {
			t.Errorf("%s: submissions %v and %v, want a minute apart", name, trace.Jobs[0].Submit, trace.Jobs[1].Submit)
		}
		wantCounts(t, trace.Excluded, map[string]int{reasonNoRun: 1})
	}
}

func TestSacctRefuses(t *testing.T) {
	const header = "JobID|State|Submit|Start|Elapsed|AllocTRES\n"
	const good = "1|COMPLETED|2025-05-04T10:00:00|2025-05-04T10:00:00|00:01:00|gres/gpu=1\n"
	for _, c := range []struct{ name, text, code, say, fix string }{
		{"columns", "JobID|State|Submit\n", "missing_column", `no column "Start"; found JobID, State, Submit`, "sacct -aPX"},
		{"no GPUs", "JobID|State|Submit|Start|Elapsed\n", "missing_column", `no column "AllocTRES"`, "AllocTRES"},
		{"fixed width", "       JobID      State\n------- -------\n", "fixed_width", "output for people", "sacct -aPX"},
		{"json", "{\"jobs\": []}\n", "json", "JSON", "sacct -aPX"},
		{"empty", "", "empty", "empty", ""},
		{"time format", header + "1|COMPLETED|16:20:11|16:21:00|00:01:00|gres/gpu=1\n", "not_a_date", "Submit 16:20:11", "SLURM_TIME_FORMAT"},
		{"run time", header + "1|COMPLETED|2025-05-04T10:00:00|2025-05-04T10:00:00|an hour|gres/gpu=1\n", "not_a_duration", "Elapsed an hour", ""},
		{"id", header + strings.Replace(good, "1|", "job1|", 1), "bad_id", `"job1"`, ""},
		{"short row", header + "1|COMPLETED\n", "cell_count", "2 cells, the header 6", "--delimiter"},
		{"long row", header + strings.Replace(good, "\n", "|x|y\n", 1), "cell_count", "8 cells, the header 6", "--delimiter"},
		{"name not plausible", "JobID|JobName|State|Submit|Start|Elapsed|AllocTRES\n1|a|COMPLETED|2025-05-04T10:00:00|2025-05-04T10:00:00|00:01:00|gres/gpu=1|x\n",
			"cell_count", "8 cells, the header 7", "--delimiter"},
	} {
		e := faults(t, "sacct", c.text, Options{})[0]
		if e.Code != c.code || !strings.Contains(e.Error(), c.say) || !strings.Contains(e.Fix, c.fix) || c.code != "empty" && e.Line == 0 {
			t.Errorf("%s: %+v", c.name, e)
		}
	}
	none := readText(t, "sacct", header+strings.Replace(good, "gres/gpu=1", "cpu=1", 1), Options{})
	if len(none.Jobs) != 0 || !strings.Contains(strings.Join(none.Notes, "\n"), "AccountingStorageTRES") {
		t.Errorf("a log without GPUs gave %+v", none)
	}
}

func TestParseElapsed(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"": -1, "Unknown": -1, "0": 0, "00:00:00": 0, "02:03": 123 * time.Second, "1-02:03:04": 93784 * time.Second,
		"00:00.250": 250 * time.Millisecond, "01:02:03.5": 3723*time.Second + 500*time.Millisecond, "100:00:00": 100 * time.Hour,
		"3723": 3723 * time.Second, "365-00:00:00": 365 * 24 * time.Hour,
	} {
		if got, err := parseElapsed(text); err != nil || got != want {
			t.Errorf("%q is %v (%v), want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"x", "1:2:3:4", "-1:00", "1-02", "00:99", "1e9", "+5", "40000-00:00:00", "1-2-3", "::", "00:00:-5", "NaN"} {
		if got, err := parseElapsed(text); err == nil {
			t.Errorf("%q was read as %v", text, got)
		}
	}
}

func TestParseSacctID(t *testing.T) {
	for text, want := range map[string]sacctID{
		"12": {text: "12", component: -1}, "12.batch": {text: "12", component: -1, step: true},
		"12_7": {text: "12_7", component: -1}, "12_7.0": {text: "12_7", component: -1, step: true},
		"12+3": {text: "12", component: 3}, "12+3.extern": {text: "12", component: 3, step: true},
		"12_[6-40%4]": {text: "12_[6-40%4]", component: -1, tasks: 35}, "12_[3,7,9-12]": {text: "12_[3,7,9-12]", component: -1, tasks: 6},
		"12_[0-9:3]": {text: "12_[0-9:3]", component: -1, tasks: 4}, "12_[1,2,...]": {text: "12_[1,2,...]", component: -1, tasks: 2, cut: true},
	} {
		if got, err := parseSacctID(text); err != nil || got != want {
			t.Errorf("%q is %+v (%v), want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "x", "12_", "12_x", "12+", "12+x", "12.", "12_[", "12_[]", "12_[5-1]", "12_[1-4:0]", "12_[0-99999999]", "-3"} {
		if got, err := parseSacctID(text); err == nil {
			t.Errorf("%q was read as %+v", text, got)
		}
	}
}

func TestParseGRES(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "cpu=8,mem=64G": 0, "gres/gpu:a100=4,gres/gpu=4": 4, "gres/gpu:a100=2,gres/gpu:v100=2": 4, "gres/gpu=3": 3,
		"gres/gpu:a100=2,gres/gpu:v100=2,gres/gpu=4": 4, "gres/gpu:nvidia_geforce_rtx_2080_ti=3": 3, "gres/gpumem=80G,gres/gpuutil=90": 0,
		"gpu:4": 4, "gpu:a100:2(S:0-1)": 2, "gpu:a100:2(S:0,1),gpu:v100:1(S:1)": 3, "gpu": 1, "gpu:a100": 1, "gpu:0": 0, "license:4": 0,
	} {
		if got := parseGRES(text); got.total() != want || got.mig != "" || got.shards {
			t.Errorf("%q has %+v, want %d GPUs", text, got, want)
		}
	}
	for text, want := range map[string]string{"gres/gpu:1g.5gb=1,gres/gpu=1": "1g.5gb", "gpu:a100_3g.20gb:2": "3g.20gb", "gres/gpu:nvidia_a100_1g.10gb+me=1": "1g.10gb+me"} {
		if got := parseGRES(text); got.mig != want {
			t.Errorf("%q is MIG %q, want %q", text, got.mig, want)
		}
	}
	for _, text := range []string{"gres/shard=2", "gres/mps=50", "shard:4", "gres/shard:a100=2"} {
		if !parseGRES(text).shards {
			t.Errorf("%q is no share of a GPU", text)
		}
	}
}

// Rows put together at random from what Slurm writes: each is a job, part of one, or counted.
func TestSacctConserves(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		pick := func(name string, of ...string) string { return rapid.SampledFrom(of).Draw(r, name) }
		var b strings.Builder
		b.WriteString("JobID|JobName|User|State|Submit|Start|End|Elapsed|Suspended|ReqTRES|AllocTRES\n")
		for range rapid.IntRange(0, 30).Draw(r, "rows") {
			fmt.Fprintf(&b, "%s%s|%s|%s|%s|%s|%s|%s|%s|%s|%s|%s\n", pick("job", "1", "2", "3"), pick("part", "", "", "_4", "+0", "+1", ".0", "_[1-3]"),
				pick("name", "a", "b|c", "\"q"), pick("user", "u", "v"), pick("state", "COMPLETED", "RUNNING", "PENDING", "CANCELLED by 5", "REQUEUED", "?"),
				pick("submit", "2025-01-01T00:00:00", "2025-01-01T01:00:00", "Unknown"), pick("start", "2025-01-01T02:00:00", "Unknown", "None"),
				pick("end", "2025-01-01T03:00:00", "Unknown"), pick("elapsed", "01:00:00", "00:00:00", ""), pick("suspended", "", "00:10:00"),
				pick("asks", "", "cpu=1", "gres/gpu=2"), pick("has", "", "cpu=1", "gres/gpu=2,gres/gpu:a=2", "gres/shard=1", "gres/gpu:1g.5gb=1"))
		}
		checkRead(r, "sacct", b.String(), Options{})
	})
}
