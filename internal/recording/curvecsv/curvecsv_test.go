package curvecsv

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"weft.dev/weft/internal/recording"
	"weft.dev/weft/internal/trace"
	"weft.dev/weft/internal/unit"
)

func TestColumns(t *testing.T) {
	text := "time_ms,reserved_bytes,allocated_bytes,note\n0,100,5,x\n1.5,100,7,\n2,100,,\n"
	rs, err := Read("x", strings.NewReader(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	r := rs[0]
	want := []recording.Point{{At: 0, Bytes: 5}, {At: 1_500_000, Bytes: 7}}
	if fmt.Sprint(r.Allocated.Points) != fmt.Sprint(want) || r.Allocated.End != 2_000_000 || r.Missing != 1 || r.Reserved.Empty() {
		t.Errorf("%v to %d, %d missing", r.Allocated.Points, r.Allocated.End, r.Missing)
	}
}

func TestDeltas(t *testing.T) {
	rs, err := Read("x", strings.NewReader("time_ms,delta_bytes_from_start\n0,0\n1,-50\n2,100\n"), nil)
	if err != nil || !rs[0].Relative || rs[0].Allocated.Points[1].Bytes != 0 || rs[0].Allocated.Points[2].Bytes != 150 {
		t.Errorf("%+v, %v: what is negative must shift the curve", rs, err)
	}
}

// A step is measured between its last changes, the first one between first changes.
func TestLabels(t *testing.T) {
	text := "time_ms,bytes,profiler_step\n0,5,a\n6,1,a\n10,5,b\n17,1,b\n20,5,c\n27,1,c\n30,1,\n"
	rs, err := Read("x", strings.NewReader(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	const ms = unit.Time(1e6)
	want := []recording.Iteration{{Start: 0, End: 10 * ms}, {Start: 6 * ms, End: 17 * ms}, {Start: 17 * ms, End: 27 * ms}}
	if fmt.Sprint(rs[0].Marks) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", rs[0].Marks, want)
	}
}

func TestFaults(t *testing.T) {
	for text, want := range map[string]string{
		"time_ms,x\n0,1\n":          "x:1: no column of bytes",
		"time_ms,bytes\n5,1\n4,1\n": `x:3 "time_ms": time 4 is before 5`,
		"time_ms,bytes\n0,-1\n":     "is negative",
		"time_ms,bytes\n0,nan\n":    "not a number",
		"time_ms,bytes\nInf,1\n":    "max",
		"time_ms,bytes\n,1\n":       "no time",
		"time_ms,bytes\n":           "no row with memory",
		"time_ms,bytes\n0,1,2\n":    "3 cells",
		"":                          "empty",
	} {
		_, err := Read("x", strings.NewReader(text), nil)
		var faults trace.Errors
		if !errors.As(err, &faults) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add("time_ms,allocated_bytes,reserved_bytes,profiler_step\n0,5,9,a\n1,7,9,a\n2,5,9,b\n3,8,9,b\n")
	f.Add("time_ms,delta_bytes_from_start\n0,-5\n0,7\n")
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
