package trace

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"pgregory.net/rapid"
	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/unit"
)

const phillyText = `timestamp,duration,num_gpus,cluster
2017-10-02 00:00:00,30,1,a
2017-10-01 00:00:00,10,1,a
2017-10-01 12:00:00,20,0,b
2017-10-01 06:00:00,40,8,b
`

func bound(t testing.TB, s string) Bound {
	t.Helper()
	b, err := ParseBound(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// ids is the ids of jobs with their submission in seconds.
func ids(jobs []cluster.Job) string {
	var s []string
	for _, j := range jobs {
		s = append(s, fmt.Sprintf("%s@%g", j.ID, j.Submit.Seconds()))
	}
	return strings.Join(s, " ")
}

func TestBounds(t *testing.T) {
	at := unit.Seconds(7)
	for _, c := range []struct {
		o       Options
		want    string
		origin  string
		outside int
	}{
		{Options{}, "2@0 4@21600 1@86400", "2017-10-01 00:00", 0},
		{Options{From: bound(t, "2017-10-01 06:00:00")}, "4@0 1@64800", "2017-10-01 06:00", 1},
		{Options{From: bound(t, "2017-10-01"), To: bound(t, "2017-10-02")}, "2@0 4@21600", "2017-10-01 00:00", 1}, // To is exclusive
		{Options{To: bound(t, "2017-10-02T02:00:00+02:00")}, "2@0 4@21600", "2017-10-01 00:00", 1},
		{Options{From: bound(t, "1"), To: bound(t, "21601")}, "4@0", "2017-10-01 06:00", 2}, // seconds from the earliest job
		{Options{VC: "b"}, "4@0", "2017-10-01 06:00", 0},
		{Options{SubmitAt: &at}, "1@7 2@7 4@7", "2017-10-01 00:00", 0}, // file order
	} {
		trace := readText(t, "philly", phillyText, c.o)
		if got := ids(trace.Jobs); got != c.want || trace.Origin.Format("2006-01-02 15:04") != c.origin {
			t.Errorf("%+v: %s from %v, want %s from %s", c.o, got, trace.Origin, c.want, c.origin)
		}
		if n := counts(trace.Excluded)[reasonOutside]; n != c.outside {
			t.Errorf("%+v: %d rows outside, want %d", c.o, n, c.outside)
		}
	}
	inSeconds := readText(t, "csv", "id,model,submit_s,duration_s\na,m,5,1\nb,m,9,1\n", Options{From: bound(t, "6")})
	if got := ids(inSeconds.Jobs); got != "b@9" {
		t.Errorf("a trace in seconds from 6 on has %s, want b@9", got)
	}
	e := faults(t, "csv", "id,model\na,m\n", Options{To: bound(t, "2017-10-01")})
	if e[0].Code != "bad_bound" || e[0].Column != "--to" {
		t.Errorf("a date on a trace in seconds gave %v", e)
	}
	for _, s := range []string{"yesterday", "-1", "NaN", "1e300", "2017-13-01", "1492-01-01"} {
		if b, err := ParseBound(s); err == nil {
			t.Errorf("bound %q was read as %+v", s, b)
		}
	}
}

// everything is options that all formats can do with.
var everything = Options{Rates: &Rates{}, PolluxDuration: func(j PolluxJob) (time.Duration, error) {
	if j.Replicas > 1000 {
		return 0, errors.New("too many replicas")
	}
	return time.Hour, nil
}}

func TestFormats(t *testing.T) {
	for _, name := range []string{"azure", "mooncake", "", "swf"} {
		e := faults(t, name, "x", Options{})
		if e[0].Code != "unknown_format" || !strings.Contains(e[0].Fix, "sacct") {
			t.Errorf("format %q: %+v", name, e[0])
		}
	}
	for _, name := range Formats() {
		if e := faults(t, name, "", everything); e[0].Code != "empty" && e[0].Code != "truncated" {
			t.Errorf("%s of an empty file: %v", name, e)
		}
		if e := faults(t, name, "{\"a\": 1}\n", everything); e[0].Code != "json" {
			t.Errorf("%s of JSON: %v", name, e)
		}
		if e := faults(t, name, "a,b\nc,d\n", everything); e[0].Code != "missing_column" {
			t.Errorf("%s of another table: %v", name, e)
		}
		broken := errors.New("disk on fire")
		if _, err := Read(context.Background(), name, "in", iotest.ErrReader(broken), everything); !errors.Is(err, broken) {
			t.Errorf("%s of a broken reader: %v", name, err)
		}
	}
}

func TestReaderFailsMidway(t *testing.T) {
	broken := errors.New("disk on fire")
	for format, text := range map[string]string{
		"philly": phillyText, "csv": "id,model\na,b\n", "sacct": "JobID|State|Submit|Start|Elapsed|AllocTRES\n",
	} {
		_, err := Read(context.Background(), format, "in", io.MultiReader(strings.NewReader(text), iotest.ErrReader(broken)), Options{})
		if !errors.Is(err, broken) || !strings.Contains(err.Error(), "in") {
			t.Errorf("%s: %v", format, err)
		}
	}
}

func TestGzip(t *testing.T) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte(phillyText))
	_ = z.Close()
	if trace := readText(t, "philly", b.String(), Options{}); len(trace.Jobs) != 3 {
		t.Errorf("%d jobs, want 3", len(trace.Jobs))
	}
	_, err := Read(context.Background(), "philly", "in", bytes.NewReader(b.Bytes()[:b.Len()-6]), Options{})
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a truncated archive gave %v", err)
	}
}

// A context that ends leaves the jobs read so far, and says so.
func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	row := 0
	r := &rowReader{rows: 1 << 30, row: func(b []byte, i int) []byte {
		if row = i; i == 20_000 {
			cancel()
		}
		return fmt.Appendf(b, "2017-10-01 00:00:00,%d,1,a\n", i)
	}, header: "timestamp,duration,num_gpus,cluster\n"}
	trace, err := Read(ctx, "philly", "in", r, Options{})
	if !errors.Is(err, context.Canceled) || trace == nil || len(trace.Jobs) == 0 || len(trace.Jobs) > row {
		t.Fatalf("read %v of %d rows: %v", trace, row, err)
	}
	for format, text := range map[string]string{"philly": phillyText, "sacct": "JobID|State|Submit|Start|Elapsed|AllocTRES\n1|x\n",
		"csv": "id,model\na,b\n"} {
		trace, err := Read(ctx, format, "in", strings.NewReader(text), Options{})
		if !errors.Is(err, context.Canceled) || trace == nil || len(trace.Jobs) != 0 {
			t.Errorf("%s with an ended context: %+v, %v", format, trace, err)
		}
	}
}

// A consumer may stop at any job.
func TestStreamStops(t *testing.T) {
	for n := range 3 {
		s, err := NewStream("philly", "in", strings.NewReader(phillyText), Options{})
		if err != nil {
			t.Fatal(err)
		}
		seen := 0
		for _, err := range s.Jobs(context.Background()) {
			if err != nil {
				t.Fatal(err)
			}
			if seen++; seen > n {
				break
			}
		}
		if seen != n+1 {
			t.Errorf("stopped after %d jobs, want %d", seen, n+1)
		}
	}
	s, _ := NewStream("philly", "in", strings.NewReader(phillyText), Options{To: bound(t, "10")})
	for _, err := range s.Jobs(context.Background()) {
		var e Errors
		if !errors.As(err, &e) || e[0].Code != "bad_bound" {
			t.Errorf("seconds on a stream of dates gave %v", err)
		}
	}
}

// Jobs come out sorted by submission and, within an instant, in file order, whatever the order of the file.
func TestOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := rapid.SliceOf(rapid.IntRange(0, 20)).Draw(t, "submissions")
		var b strings.Builder
		b.WriteString("id,model,submit_s,duration_s\n")
		for i, s := range at {
			fmt.Fprintf(&b, "%d,m,%d,1\n", i, s)
		}
		trace, err := Read(context.Background(), "csv", "in", strings.NewReader(b.String()), Options{})
		if err != nil {
			t.Fatal(err)
		}
		order := make([]int, len(at))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int { return at[a] - at[b] })
		for i, j := range trace.Jobs {
			if j.ID != fmt.Sprint(order[i]) {
				t.Fatalf("job %d is %s, want %d", i, j.ID, order[i])
			}
		}
	})
}

// TestUnknownVC: a virtual cluster that no row is of is a fault that names some there are.
func TestUnknownVC(t *testing.T) {
	const text = "id,model,vc\na,m,left\nb,m,right\n"
	_, err := Read(t.Context(), "csv", "jobs.csv", strings.NewReader(text), Options{VC: "middle"})
	var faults Errors
	if !errors.As(err, &faults) || faults[0].Code != "unknown_vc" || faults[0].Fix != "one of left, right" {
		t.Errorf("got %v", err)
	}
	if got, err := Read(t.Context(), "csv", "jobs.csv", strings.NewReader(text), Options{VC: "left"}); err != nil || len(got.Jobs) != 1 {
		t.Errorf("got %v, %v", got, err)
	}
}
