package open

import (
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"weft.dev/weft/internal/recording"
	"weft.dev/weft/internal/shared"
	"weft.dev/weft/internal/trace"
	"weft.dev/weft/internal/unit"
)

// load reads a file and analyses what it holds.
func load(path string) ([]*recording.Analysis, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	rs, err := Read(filepath.Base(path), f, Options{Size: info.Size()})
	if err != nil {
		return nil, err
	}
	out := make([]*recording.Analysis, len(rs))
	for i, r := range rs {
		out[i] = recording.Analyse(r, recording.DefaultLevels)
		if err := out[i].Check(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func mustLoad(t *testing.T, path string) []*recording.Analysis {
	t.Helper()
	a, err := load(path)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return a
}

// refused wants a fault of the input with these words.
func refused(t *testing.T, path string, words ...string) {
	t.Helper()
	_, err := load(path)
	var faults trace.Errors
	if !errors.As(err, &faults) {
		t.Errorf("%s: %v, want a fault of the input", path, err)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error()+faults[0].Why+faults[0].Fix, w) {
			t.Errorf("%s: %v; fix: %s: lacks %q", path, err, faults[0].Fix, w)
		}
	}
}

func wantRange(t *testing.T, name string, a *recording.Analysis, low, high unit.Bytes, period time.Duration, iterations int) {
	t.Helper()
	if a.Profile.Persistent != low*unit.MiB || a.Profile.Peak() != high*unit.MiB || a.Trough != low*unit.MiB ||
		a.Period.Round(time.Millisecond) != period || len(a.Iterations) != iterations {
		t.Errorf("%s: %v to %v, trough %v, %d iterations of %v; want %d to %d MiB, %d of %v", name, a.Profile.Persistent,
			a.Profile.Peak(), a.Trough, len(a.Iterations), a.Period, low, high, iterations, period)
	}
}

// TestNvidiaSMICases holds the cases of files that nvidia-smi writes.
func TestNvidiaSMICases(t *testing.T) {
	two := mustLoad(t, shared.Case(t, "A07/two_gpus.csv"))
	if len(two) != 2 {
		t.Fatalf("two_gpus: %d profiles", len(two))
	}
	wantRange(t, "two_gpus 0", two[0], 6000, 9000, 5*time.Second, len(two[0].Iterations))
	wantRange(t, "two_gpus 1", two[1], 500, 500, 0, 0)
	dirty := mustLoad(t, shared.Case(t, "A07/dirty.csv"))
	wantRange(t, "dirty 0", dirty[0], 6000, 9000, 5*time.Second, len(two[0].Iterations))
	if math.Abs(dirty[0].Mean-two[0].Mean) > 3000.0/60*2*float64(unit.MiB) {
		t.Errorf("dirty: mean %v, clean %v: more than two samples apart", unit.Bytes(dirty[0].Mean), unit.Bytes(two[0].Mean))
	}
	if r := dirty[0].Recording; r.Missing != 2 || r.SkippedLines != 2 {
		t.Errorf("dirty: %d samples missing and %d lines skipped, want 2 and 2", r.Missing, r.SkippedLines)
	}
	mig := mustLoad(t, shared.Case(t, "A07/mig_parent.csv"))[0]
	if mig.Recording.Utilisation != nil || !strings.Contains(strings.Join(mig.Notes, " "), "MIG mode hides it") {
		t.Errorf("mig_parent: utilisation %v, notes %q", mig.Recording.Utilisation, mig.Notes)
	}
	plain := mustLoad(t, shared.Case(t, "A07/not_supported_nounits.csv"))[0]
	wantRange(t, "not_supported", plain, 2004, 2004, 0, 0)
	if plain.Recording.Utilisation != nil || plain.Verdict.Code != recording.FlatOutside {
		t.Errorf("not_supported: utilisation %v, %s", plain.Recording.Utilisation, plain.Verdict.Text)
	}
	refused(t, shared.Case(t, "A07/no_memory.csv"), "no memory values", "not 0 MiB")
	refused(t, shared.Case(t, "A07/dash_lms_no_header.csv"), "no header", "--columns")
}

// TestSnapshotCases holds the cases of memory snapshots.
func TestSnapshotCases(t *testing.T) {
	for _, name := range []string{"snap_protocol2", "snap_protocol4", "snap_protocol5", "snap_new_keys", "snap_gpu3_only"} {
		a := mustLoad(t, shared.Case(t, "A10/"+name+".pickle"))
		if len(a) != 1 {
			t.Errorf("%s: %d profiles", name, len(a))
		}
		wantRange(t, name, a[0], 4096, 6144, 100*time.Millisecond, 10)
	}
	if a := mustLoad(t, shared.Case(t, "A10/snap_gpu3_only.pickle"))[0]; a.Recording.Device != "3" {
		t.Errorf("snap_gpu3_only: device %q", a.Recording.Device)
	}
	two := mustLoad(t, shared.Case(t, "A10/snap_two_devices.pickle"))
	if len(two) != 2 {
		t.Fatalf("snap_two_devices: %d profiles", len(two))
	}
	wantRange(t, "device 0", two[0], 4096, 6144, 100*time.Millisecond, 10)
	wantRange(t, "device 1", two[1], 1024, 1536, 100*time.Millisecond, 10)
	old := mustLoad(t, shared.Case(t, "A10/snap_old_no_time.pickle"))[0]
	wantRange(t, "snap_old_no_time", old, 4096, 6144, 0, 10)
	if !strings.Contains(strings.Join(old.Notes, " "), "levels are known, the period and the shares of time are not") {
		t.Errorf("snap_old_no_time: notes %q", old.Notes)
	}
	refused(t, shared.Case(t, "A10/snap_truncated.pickle"), "truncated at byte 11757")
}

// Limits on hostile files.
const (
	hostileTime   = time.Second
	hostileMemory = 200 << 20
)

// cost runs f and returns the bytes it allocated in all and the time it took.
func cost(f func()) (uint64, time.Duration) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	f()
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc, took
}

func TestHostileSnapshots(t *testing.T) {
	for name, words := range map[string][]string{
		"deep": {"EMPTY_LIST at byte 131074", "nested too deep"}, "laughs": {"APPENDS at byte", "more than 32 deep"},
		"length":        {"BINBYTES8 at byte 2", "where 3 remain"},
		"nested_global": {"GLOBAL builtins.eval at byte 56 refused, not executed"},
		"os_system":     {"GLOBAL posix.system at byte 0 refused, not executed"},
	} {
		path := shared.Case(t, "A10/hostile_"+name+".pickle")
		taken, took := cost(func() { refused(t, path, words...) })
		if taken > hostileMemory || took > hostileTime {
			t.Errorf("%s: %d MiB in %v", name, taken>>20, took)
		}
	}
	for _, dir := range []string{".", os.TempDir()} {
		if found, _ := filepath.Glob(filepath.Join(dir, "PWNED*")); len(found) > 0 {
			t.Errorf("a pickle was executed: %v", found)
		}
	}
}

// TestProfilerCases holds the cases of profiler traces.
func TestProfilerCases(t *testing.T) {
	for name, test := range map[string]struct {
		iterations int
		note       string
	}{
		"ok.json": {8, ""}, "ok.json.gz": {8, ""}, "two_members.json.gz": {8, ""}, "gz_named_json.json": {8, ""},
		"json_named_gz.json.gz": {8, ""}, "array_form.json": {8, ""}, "array_form_unclosed.json": {8, ""},
		"unescaped_backslash.json": {8, "backslashes"}, "control_character.json": {8, "control characters"},
		"invalid_utf8.json": {8, "not UTF-8"}, "nan_infinity.json": {7, "skipped 2 events with NaN or Infinity"},
	} {
		a := mustLoad(t, shared.Case(t, "A12/"+name))[0]
		wantRange(t, name, a, 4096, 6144, 100*time.Millisecond, test.iterations)
		if notes := strings.Join(a.Notes, " "); !strings.Contains(notes, test.note) || test.note == "" && notes != "" || a.Recording.Partial != "" {
			t.Errorf("%s: notes %q, partial %q, want %q", name, notes, a.Recording.Partial, test.note)
		}
	}
	for _, name := range []string{"truncated.json", "truncated.json.gz"} {
		a := mustLoad(t, shared.Case(t, "A12/"+name))[0]
		wantRange(t, name, a, 4096, 6144, 100*time.Millisecond, len(a.Iterations))
		if !strings.Contains(a.Recording.Partial, "cut at byte") {
			t.Errorf("%s: partial %q", name, a.Recording.Partial)
		}
	}
	refused(t, shared.Case(t, "A12/missing_quote.json"), "at byte 231")
	bomb := shared.Case(t, "A12/zip_bomb.json.gz")
	if taken, _ := cost(func() { refused(t, bomb, "no GPU memory events") }); taken > hostileMemory {
		t.Errorf("zip_bomb: %d MiB", taken>>20)
	}
}

// published is one row of the published figures of the four curves.
type published struct {
	duration, least, most, mean, near, half float64
}

func readPublished(t *testing.T) map[string][]published {
	t.Helper()
	f, err := os.Open(shared.Data(t, "memory_curves/per_step_summary.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]published{}
	for _, row := range rows[1:] {
		var v [6]float64
		for i := range v {
			if v[i], err = strconv.ParseFloat(row[i+2], 64); err != nil {
				t.Fatal(err)
			}
		}
		out[row[0]] = append(out[row[0]], published{v[0], v[1], v[2], v[3], v[4], v[5]})
	}
	return out
}

// TestPublishedIterations holds each of the 22 iterations of the four curves against the published figures: peak and
// trough within 2 % of the peak, and mean/peak and the shares of time within 2 percentage points. Durations are held to
// 4 %: two curves say which step a change of memory belongs to, not when the step began.
func TestPublishedIterations(t *testing.T) {
	const points, length = 0.02, 0.04
	worst := map[string]float64{}
	for curve, want := range readPublished(t) {
		a := mustLoad(t, shared.Data(t, "memory_curves/"+curve+".csv"))[0]
		if len(a.Iterations) != len(want) {
			t.Errorf("%s: %d iterations, want %d", curve, len(a.Iterations), len(want))
			continue
		}
		for i, w := range want {
			f := a.Iterations[i]
			for what, off := range map[string]float64{
				"trough": (f.Min.MiB() - w.least) / w.most, "peak": f.Max.MiB()/w.most - 1,
				"mean/peak": f.Mean/float64(f.Max) - w.mean/w.most, "time at 90 %": f.NearPeak - w.near, "time at 50 %": f.OverHalf - w.half,
			} {
				worst[what] = max(worst[what], math.Abs(off))
				if math.Abs(off) > points {
					t.Errorf("%s iteration %d: %s off by %.4f", curve, i, what, off)
				}
			}
			off := float64(f.Duration())/1e6/w.duration - 1
			worst["duration"] = max(worst["duration"], math.Abs(off))
			if math.Abs(off) > length {
				t.Errorf("%s iteration %d: duration %v, published %v ms", curve, i, f.Duration(), w.duration)
			}
		}
	}
	t.Log("worst deviations: ", fmt.Sprint(worst))
}
