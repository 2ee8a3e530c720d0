package trace

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/unit"
)

func TestJobs(t *testing.T) {
	const text = "\xef\xbb\xbfid,model,batch,workers,floor,class,priority,user,submit_s,duration_s,memory_mib,persistent_mib,profile,gpu_util,name,vc,gpu_milli\r\n" +
		"b,A3C,,2,1,guaranteed,-3,ana,20,0,1024.5,512,valley,87.5,\"two, words\",v1,500\r\n" +
		"a, LM ,5,,,,,,10,1.5,,,,,,,\r\n" +
		"c,,,1,0.25,besteffort,,,10,1e3,1048576,,,0,,,\r\n"
	trace := readText(t, "csv", text, Options{DefaultFloor: 0.85})
	want := []cluster.Job{
		{ID: "a", Model: "LM", Batch: "5", Workers: 1, Share: 1000, Floor: 0.85, Submit: unit.Seconds(10), Duration: 1500 * time.Millisecond},
		{ID: "c", Workers: 1, Share: 1000, Floor: 0.25, Class: cluster.BestEffort, Submit: unit.Seconds(10), Duration: 1000 * time.Second,
			Memory: cluster.Memory{Peak: unit.TiB}},
		{ID: "b", Name: "two, words", User: "ana", VC: "v1", Model: "A3C", Workers: 2, Share: 500, Floor: 1, Class: cluster.Guaranteed,
			Priority: -3, Memory: cluster.Memory{Peak: 1024*unit.MiB + 512*unit.KiB, Persistent: 512 * unit.MiB, Profile: "valley"},
			GPUUtil: 0.875, Submit: unit.Seconds(20)},
	}
	if d := cmp.Diff(want, trace.Jobs); d != "" {
		t.Errorf("jobs (-want +got):\n%s", d)
	}
	if !trace.Timed || !trace.Origin.IsZero() {
		t.Errorf("timed %t, origin %v; want times in seconds", trace.Timed, trace.Origin)
	}
	if readText(t, "csv", "id,model\na,LM\n", Options{}).Timed {
		t.Error("a file without times is called timed")
	}
	if got := readText(t, "csv", "id,model\n", Options{}); len(got.Jobs) != 0 || len(got.Notes) != 0 {
		t.Errorf("a header alone gave %+v", got)
	}
}

// golden is an error as a user sees it.
func golden(e *Error) string {
	s := e.Error()
	if e.Why != "" {
		s += " | why: " + e.Why
	}
	if e.Fix != "" {
		s += " | fix: " + e.Fix
	}
	return s
}

func TestJobsRefused(t *testing.T) {
	const times = "id,model,submit_s,duration_s\n"
	for _, c := range []struct{ text, code, want string }{
		{"", "empty", `in: the file is empty; it needs a header | fix: write a header row: id,model`},
		{"\n\n", "empty", `in: the file is empty; it needs a header | fix: write a header row: id,model`},
		{"id,modle\n", "missing_column", `in:1 "model": no column "model"; found id, modle | fix: the first row must name the columns id, model`},
		{"id,model,floor,class,user,vc,id\n", "double_column", `in:1 "id": column "id" twice (1, 7) | fix: remove one of them`},
		{"id,model,gpus\na,b,1\n", "unknown_column", `in:1 "gpus": unknown column "gpus" | fix: remove it, or accept it with --ignore-unknown`},
		{"id,model,floor\nb,LM,1.2\n", "out_of_range", `in:2 "floor": floor 1.2 is outside (0, 1] | why: a floor is a share of standalone speed | fix: 0.9 for 90 %`},
		{"id,model,floor\nb,LM,90\n", "out_of_range", `in:2 "floor": floor 90 is outside (0, 1] | why: a floor is a share of standalone speed | fix: 0.9 for 90 %`},
		{"id,model,floor\nb,LM,0\n", "out_of_range", `in:2 "floor": floor 0 is outside (0, 1] | why: a floor is a share of standalone speed | fix: 0.9 for 90 %`},
		{"id,model,floor\nb,LM,-0.5\n", "out_of_range", `in:2 "floor": floor -0.5 is outside (0, 1] | why: a floor is a share of standalone speed | fix: 0.9 for 90 %`},
		{"id,model,floor\nb,LM,NaN\n", "not_a_number", `in:2 "floor": floor NaN is not a number | fix: write a plain number`},
		{"id,model,floor\nb,LM,90%\n", "not_a_number", `in:2 "floor": floor 90% is not a number | fix: write a plain number`},
		{times + "a,LM,0,NaN\n", "not_a_number", `in:2 "duration_s": duration_s NaN is not a number | fix: write a plain number`},
		{times + "a,LM,0,inf\n", "out_of_range", `in:2 "duration_s": duration_s inf: above 100 years | fix: write seconds of at least 0`},
		{times + "a,LM,0,4e9\n", "out_of_range", `in:2 "duration_s": duration_s 4e9: above 100 years | fix: write seconds of at least 0`},
		{times + "a,LM,-1,1\n", "out_of_range", `in:2 "submit_s": submit_s -1 is negative | fix: write seconds of at least 0`},
		{times + "a,LM,,1\n", "empty_cell", `in:2 "submit_s": submit_s is empty | fix: fill the cell or remove the row`},
		{"id,model,memory_mib\na,LM,-4\n", "out_of_range", `in:2 "memory_mib": memory_mib -4 is negative | fix: give mebibytes, above 0`},
		{"id,model,memory_mib\na,LM,9e12\n", "out_of_range", `in:2 "memory_mib": memory_mib 9e12: above 1 TiB | fix: give mebibytes, above 0`},
		{"id,model,memory_mib\na,LM,1e999\n", "out_of_range", `in:2 "memory_mib": memory_mib 1e999: above 1 TiB | fix: give mebibytes, above 0`},
		{"id,model,memory_mib\na,LM,0\n", "out_of_range", `in:2 "memory_mib": memory_mib 0: must be positive | fix: leave the cell empty if it is not known`},
		{"id,model,memory_mib,persistent_mib\na,LM,8,9\n", "out_of_range", `in:2 "persistent_mib": persistent_mib 9 is above memory_mib 8 | why: memory_mib is the peak, and what is always in use is part of it | fix: give memory_mib of at least persistent_mib`},
		{"id,model,workers\na,LM,0\n", "out_of_range", `in:2 "workers": workers 0: min 1 | fix: write 1 to 100000`},
		{"id,model,workers\na,LM,100001\n", "out_of_range", `in:2 "workers": workers 100001: max 100000 | fix: write 1 to 100000`},
		{"id,model,workers\na,LM,99999999999999999999\n", "out_of_range", `in:2 "workers": workers 99999999999999999999: max 100000 | fix: write 1 to 100000`},
		{"id,model,workers\na,LM,2.5\n", "not_a_number", `in:2 "workers": workers 2.5 is not a whole number | fix: write a whole number`},
		{"id,model,class\na,LM,gold\n", "unknown_class", `in:2 "class": unknown class "gold" | fix: guaranteed, burstable or besteffort`},
		{"id,model,gpu_util\na,LM,140\n", "out_of_range", `in:2 "gpu_util": gpu_util 140: max 100 | fix: write 0 to 100`},
		{"id,model\na7,LM\nb,LM\na7,LM\n", "double_id", `in:4 "id": id a7 repeats line 2 | fix: give every job an id of its own`},
		{"id,model\n,LM\n", "empty_cell", `in:2 "id": id is empty | fix: fill the cell or remove the row`},
		{"id,model\na,LM,3\n", "cell_count", `in:2: this row has 3 cells, the header 2 | fix: quote cells that hold the separator; end every row alike`},
		{"id,model\na,L\"M\n", "syntax", `in:2: bare " in non-quoted-field | fix: double the quotes inside a quoted cell`},
		{"id,model\na,\x1b[31mred\nb,\x1b[31mred,\n", "cell_count", `in:3: this row has 3 cells, the header 2 | fix: quote cells that hold the separator; end every row alike`},
		{"a1,8,0.5\n", "no_header", `in:1: no header: the first row has 3 cells of data, not column names | fix: write a header row: id,model`},
		{"id;model\na;LM\n", "separator", `in:1: cells are separated by semicolons, not by commas | fix: separate cells by commas, and write decimals with a point`},
		{"id\tmodel\na\tLM\n", "separator", `in:1: cells are separated by tabs, not by commas | fix: separate cells by commas`},
		{"JobID|JobName\n", "separator", `in:1: cells are separated by bars, not by commas | fix: for sacct -P add --format sacct; else separate cells by commas`},
		{"JobID|Submit|Elapsed\n", "missing_column", `in:1 "id": no column "id"; found JobID|Submit|Elapsed | fix: the first row must name the columns id, model; this header is of --format sacct`},
		{"PK\x03\x04", "binary", `in: this is a zip archive (or a spreadsheet), not a text table | fix: export it as CSV in UTF-8; gzip is accepted`},
		{"\xff\xfei\x00d\x00", "binary", `in: this is UTF-16 text, not a text table | fix: export it as CSV in UTF-8; gzip is accepted`},
	} {
		e := faults(t, "csv", c.text, Options{IgnoreUnknown: false})
		at := 0
		for at < len(e)-1 && e[at].Code != c.code {
			at++
		}
		if got := golden(e[at]); got != c.want || e[at].Code != c.code {
			t.Errorf("%q\n got %s: %s\nwant %s: %s", c.text, e[at].Code, got, c.code, c.want)
		}
	}
	trace := readText(t, "csv", "id,model,gpus\na,b,1\n", Options{IgnoreUnknown: true})
	if len(trace.Jobs) != 1 {
		t.Errorf("--ignore-unknown gave %+v", trace)
	}
}

// One run names many faults, but a file of nothing else does not fill memory; nothing of a cell can steer a terminal.
func TestFaultsAreMany(t *testing.T) {
	e := faults(t, "csv", "id,model,floor,workers\n"+strings.Repeat("a,\x1b[2J,2,0\n", 1000), Options{})
	if len(e) != maxErrors {
		t.Errorf("%d faults, want %d", len(e), maxErrors)
	}
	if e[0].Row != "a,?[2J,2,0" || e[0].Line != 2 || e[0].Value == "" {
		t.Errorf("first fault %+v", e[0])
	}
	long := faults(t, "csv", "id,model\na,\""+strings.Repeat("x\n", 2<<20), Options{})
	if long[0].Code != "long_row" {
		t.Errorf("an open quote gave %v", long)
	}
	long = faults(t, "sacct", "JobID|State|Submit|Start|Elapsed|AllocTRES\n"+strings.Repeat("x", 3<<20), Options{})
	if long[0].Code != "long_row" || long[0].Line != 2 {
		t.Errorf("an endless line gave %v", long)
	}
}
