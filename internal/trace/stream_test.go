package trace

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"testing"

	"weft.dev/weft/internal/shared"
)

// rowReader makes a text of any size: a header and rows.
type rowReader struct {
	header  string
	rows    int
	row     func(b []byte, i int) []byte
	next    int
	pending []byte
	buffer  []byte
	total   int64
}

func (r *rowReader) Read(p []byte) (int, error) {
	if len(r.pending) == 0 {
		b := append(r.buffer[:0], r.header...)
		r.header = ""
		for ; r.next < r.rows && len(b) < 1<<16; r.next++ {
			b = r.row(b, r.next)
		}
		r.pending, r.buffer = b, b
	}
	if len(r.pending) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.pending)
	r.pending = r.pending[n:]
	r.total += int64(n)
	return n, nil
}

// wideJobs is a JOBS.csv of the given size in rows of about 200 bytes.
func wideJobs(size int) *rowReader {
	const note = "a name as long as those that sweeps of hyperparameters give their jobs: lr=0.00012345,wd=0.01,seed=42,fold=3 of 10"
	return &rowReader{
		header: "id,name,model,batch,workers,floor,user,submit_s,duration_s,memory_mib\n", rows: size / 185,
		row: func(b []byte, i int) []byte {
			return fmt.Appendf(b, "job-%d,\"%s %d\",ResNet-50,%d,%d,0.9,user%d,%d,%d,%d\n", i, note, i, 16<<(i%4), 1+i%8, i%500, i, 60+i%5000, 2000+i%9000)
		},
	}
}

// steps is an sacct log of that size whose rows are nearly all steps.
func steps(size int) *rowReader {
	return &rowReader{
		header: "JobID|State|Submit|Start|End|Elapsed|AllocTRES\n", rows: size / 110,
		row: func(b []byte, i int) []byte {
			id := fmt.Sprintf("%d", i/1000)
			if i%1000 != 0 {
				id = fmt.Sprintf("%d.%d", i/1000, i%1000)
			}
			return fmt.Appendf(b, "%s|COMPLETED|2025-05-04T10:00:00|2025-05-04T10:00:00|2025-05-04T10:01:00|00:01:00|cpu=1,gres/gpu:a100=1,gres/gpu=1\n", id)
		},
	}
}

// drain streams an input and returns its jobs and the most live heap on the way, above what was live before.
func drain(t testing.TB, format string, r *rowReader) (jobs int, peak uint64) {
	t.Helper()
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	before := m.HeapAlloc
	s, err := NewStream(format, "in", r, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range s.Jobs(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		if jobs++; jobs%20_000 == 0 {
			runtime.GC()
			runtime.ReadMemStats(&m)
			peak = max(peak, m.HeapAlloc-min(before, m.HeapAlloc))
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&m)
	return jobs, max(peak, m.HeapAlloc-min(before, m.HeapAlloc))
}

// A large input is streamed: memory is the set of ids (under 64 bytes each, half of it room to grow), not the text.
func TestLargeInputStreams(t *testing.T) {
	const size = 50 << 20
	for _, c := range []struct {
		format string
		make   func(int) *rowReader
		limit  uint64
	}{{"csv", wideJobs, 18 << 20}, {"sacct", steps, 4 << 20}} {
		r := c.make(size)
		jobs, peak := drain(t, c.format, r)
		t.Logf("%s: %d jobs of %d MiB, peak heap %.1f MiB", c.format, jobs, r.total>>20, float64(peak)/(1<<20))
		if r.total < size*9/10 || jobs == 0 {
			t.Errorf("%s: %d jobs of %d bytes, want about %d bytes", c.format, jobs, r.total, size)
		}
		if peak > c.limit {
			t.Errorf("%s: %d MiB of heap for a text of %d MiB, want at most %d", c.format, peak>>20, r.total>>20, c.limit>>20)
		}
	}
}

func BenchmarkStreamGigabyte(b *testing.B) {
	for b.Loop() {
		r := wideJobs(1 << 30)
		jobs, peak := drain(b, "csv", r)
		b.SetBytes(r.total)
		b.ReportMetric(float64(peak)/(1<<20), "peak-MiB")
		b.ReportMetric(float64(jobs), "jobs")
	}
}

func BenchmarkReadPhilly(b *testing.B) {
	path := shared.Data(b, "philly/philly_jobs.csv")
	b.ReportAllocs()
	for b.Loop() {
		f, err := os.Open(path)
		if err != nil {
			b.Fatal(err)
		}
		trace, err := Read(context.Background(), "philly", path, f, Options{})
		f.Close()
		if err != nil || len(trace.Jobs) != 82247 {
			b.Fatalf("%d jobs, %v", len(trace.Jobs), err)
		}
	}
}
