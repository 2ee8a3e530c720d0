package kineto

import (
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"weft.dev/weft/internal/recording"
	"weft.dev/weft/internal/trace"
	"weft.dev/weft/internal/unit"
)

const mib = 1 << 20

// memory is one memory event, mark one iteration of 100 ms.
func memory(us, total, change int, device int) string {
	kind := 1
	if device < 0 {
		kind = 0
	}
	return fmt.Sprintf(`{"ph":"i","name":"[memory]","ts":%d,"args":{"Total Reserved":%d,"Total Allocated":%d,"Bytes":%d,"Device Id":%d,"Device Type":%d}}`,
		1_336_000_000_000+us, 600*mib, total*mib, change*mib, device, kind)
}

func mark(i int, category string) string {
	return fmt.Sprintf(`{"ph":"X","cat":%q,"name":"ProfilerStep#%d","ts":%d,"dur":100000}`, category, i, 1_336_000_000_000+i*100_000)
}

// training is n iterations between 200 and 500 MiB.
func training(n int) []string {
	var events []string
	for i := range n {
		events = append(events, mark(i, "user_annotation"), memory(i*100_000+10_000, 500, 300, 0), memory(i*100_000+60_000, 200, -300, 0))
	}
	return events
}

func object(events []string) string {
	return `{"schemaVersion": 1, "deviceProperties": [{"id": 0}], "traceEvents": [` + strings.Join(events, ",\n") + `], "traceName": "x"}`
}

func analyse(t *testing.T, text string) (*recording.Analysis, recording.Recording) {
	t.Helper()
	rs, err := Read("x", strings.NewReader(text), nil)
	if err != nil || len(rs) != 1 {
		t.Fatalf("%d recordings, %v", len(rs), err)
	}
	return recording.Analyse(rs[0], 12), rs[0]
}

func TestForms(t *testing.T) {
	whole := object(training(5))
	bare := "[" + strings.Join(training(5), ",") + "]"
	for name, text := range map[string]string{
		"object": whole, "array": bare, "array without its end": bare[:len(bare)-1], "array with a last comma": bare[:len(bare)-1] + ",",
		"byte order mark": "\xef\xbb\xbf" + whole, "other events": object(append(training(5), `{"name":"x","args":[1,[2,{"a":null}]],"id":true}`, `7`, `"text"`)),
		"marks on both lanes": object(append(training(5), mark(0, "gpu_user_annotation"), mark(2, "gpu_user_annotation"))),
		"of the host":         object(append(training(5), memory(1, 9999, 1, -1))),
	} {
		a, r := analyse(t, text)
		if r.Partial != "" || len(a.Iterations) != 5 || a.Period != 100*time.Millisecond || a.Profile.Persistent != 200*mib || a.Profile.Peak() != 500*mib {
			t.Errorf("%s: partial %q, %d iterations of %v, %v to %v", name, r.Partial, len(a.Iterations), a.Period, a.Profile.Persistent, a.Profile.Peak())
		}
	}
}

// Cutting a trace anywhere must give what is complete, marked partial, or a fault; never a shorter curve in silence.
func TestEveryCut(t *testing.T) {
	whole := object(training(4))
	for n := range len(whole) - 1 {
		rs, err := Read("x", strings.NewReader(whole[:n]), nil)
		var faults trace.Errors
		switch {
		case err == nil && rs[0].Partial == "":
			t.Fatalf("cut at %d of %d: not marked partial", n, len(whole))
		case err != nil && !errors.As(err, &faults):
			t.Fatalf("cut at %d: %v", n, err)
		}
	}
}

func TestMends(t *testing.T) {
	for name, test := range map[string]struct{ bad, note string }{
		"backslash": {`{"name":"C:\logs\ute.json"}`, "backslashes"},
		"control":   {"{\"name\":\"a\x01b\tc\"}", "control characters"},
		"utf-8":     {"{\"name\":\"a\xff\xfeb\"}", "not UTF-8"},
		"NaN":       {strings.Replace(memory(70_000, 1, 1, 0), fmt.Sprint(1*mib), "NaN", 1), "NaN or Infinity"},
		"infinity":  {`{"name":"[memory]","ts":-Infinity,"args":{"Total Allocated":1,"Device Id":0}}`, "NaN or Infinity"},
		"far":       {`{"name":"[memory]","ts":1e300,"args":{"Total Allocated":1,"Device Id":0}}`, "usable time"},
		"no amount": {`{"name":"[memory]","ts":1336000000001,"args":{"Device Id":0}}`, "usable time"},
	} {
		a, r := analyse(t, object(append(training(5), test.bad)))
		if notes := strings.Join(r.Notes, "; "); !strings.Contains(notes, test.note) || a.Profile.Peak() != 500*mib || len(a.Iterations) != 5 {
			t.Errorf("%s: notes %q, peak %v, %d iterations", name, notes, a.Profile.Peak(), len(a.Iterations))
		}
		if math.IsNaN(a.Mean) || math.IsInf(a.Mean, 0) {
			t.Errorf("%s: mean %v", name, a.Mean)
		}
	}
}

func TestFaults(t *testing.T) {
	for text, want := range map[string]string{
		`{"traceEvents":[{"name":"x", tid":1}]}`:      "a name without its quote at byte 29",
		`{"traceEvents":[{"name" "x"}]}`:              `"\"" stands where ":" must at byte 24`,
		`{"traceEvents":[{"a":1}{"b":2}]}`:            `"{" stands where "," must at byte 23`,
		`{"traceEvents":[{"a":wat}]}`:                 `"wat" is no value`,
		`{"traceEvents":5}`:                           "an object or an array must",
		`{"traceEvents":[]}`:                          "no GPU memory events",
		object([]string{memory(1, 5, 5, -1)}):         "no GPU memory events, 1 of the host",
		`{"a":`:                                       "truncated at byte 5",
		strings.Repeat("[", 200):                      "nest more than 64 deep",
		`{"traceEvents":[` + strings.Repeat("1", 900): "more than 64 characters",
	} {
		_, err := Read("x", strings.NewReader(text), nil)
		var faults trace.Errors
		if !errors.As(err, &faults) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %s", text, err, want)
		}
	}
}

func TestDevicesApart(t *testing.T) {
	var events []string
	for i := range 5 {
		for d := range 2 {
			events = append(events, memory(i*100_000+10_000, 500*(d+1), 300, d), memory(i*100_000+60_000, 200*(d+1), -300, d))
		}
	}
	rs, err := Read("x", strings.NewReader(object(events)), nil)
	if err != nil || len(rs) != 2 {
		t.Fatalf("%d recordings, %v", len(rs), err)
	}
	for d, r := range rs {
		if _, most := r.Allocated.Range(0, r.Allocated.End); most != unit.Bytes(500*(d+1)*mib) || r.Device != fmt.Sprint(d) {
			t.Errorf("device %s: peak %v", r.Device, most)
		}
	}
}

// Traces of old versions have changes only.
func TestChangesOnly(t *testing.T) {
	text := strings.ReplaceAll(strings.ReplaceAll(object(training(5)), "Total Allocated", "x"), "Total Reserved", "y")
	a, r := analyse(t, text)
	if !r.Relative || a.Profile.Persistent != 0 || a.Profile.Peak() != 300*mib || a.Verdict.Code != recording.MayKeepCache {
		t.Errorf("relative %v, %v to %v, %s", r.Relative, a.Profile.Persistent, a.Profile.Peak(), a.Verdict.Code)
	}
}

// blanks is a text of blanks within an empty trace.
type blanks struct {
	head, tail string
	left       int
}

func (b *blanks) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		switch {
		case b.head != "":
			p[n], b.head = b.head[0], b.head[1:]
		case b.left > 0:
			p[n] = ' '
			b.left--
		case b.tail != "":
			p[n], b.tail = b.tail[0], b.tail[1:]
		default:
			return n, io.EOF
		}
		n++
	}
	return n, nil
}

func TestBlanksTakeNoMemory(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := Read("x", &blanks{head: `{"traceEvents":[`, left: 32 << 20, tail: "]}"}, nil)
	runtime.ReadMemStats(&after)
	if taken := after.TotalAlloc - before.TotalAlloc; taken > 4<<20 || err == nil || !strings.Contains(err.Error(), "no GPU memory events") {
		t.Errorf("%d MiB taken, %v", taken>>20, err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(object(training(3)))
	f.Add("[" + strings.Join(training(2), ","))
	f.Add(`{"traceEvents":[{"name":"C:\l\u12","ts":NaN,"args":{"Bytes":-Infinity}}]}`)
	f.Add(`{"a":[[[]]],"traceEvents":[{"name":"[memory]","ts":1e99,"args":{"Total Allocated":1e30,"Device Id":-1}}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		rs, err := Read("x", strings.NewReader(text), nil)
		var faults trace.Errors
		if err != nil && !errors.As(err, &faults) {
			t.Fatal(err)
		}
		for _, r := range rs {
			if fault := recording.Analyse(r, 12).Check(); fault != nil {
				t.Fatalf("%q: %v", text, fault)
			}
		}
	})
}
