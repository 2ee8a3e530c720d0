package snapshot

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"weft.dev/weft/internal/recording"
	"weft.dev/weft/internal/trace"
	"weft.dev/weft/internal/unit"
)

const mib = 1 << 20

// training is n iterations of 100 ms that take 300 MiB on top of what is held.
func training(n int, actions ...string) []event {
	var out []event
	for i := range n {
		at := int64(1_700_000_000_000_000) + int64(i)*100_000
		out = append(out, event{"alloc", 300 * mib, at + 10_000})
		for _, a := range actions {
			out = append(out, event{a, 300 * mib, at + 60_000})
		}
	}
	return out
}

func TestStateAtTheEnd(t *testing.T) {
	data := pickled([]segment{{1, 600 * mib, 100 * mib}, {1, 400 * mib, 100 * mib}}, nil, training(5, "free_requested", "free_completed"))
	rs, err := Read("x", bytes.NewReader(data), int64(len(data)), nil)
	if err != nil || len(rs) != 1 || rs[0].Device != "1" {
		t.Fatalf("%d recordings, %v", len(rs), err)
	}
	least, most := rs[0].Allocated.Range(rs[0].Allocated.Start(), rs[0].Allocated.End+1)
	if least != 200*mib || most != 500*mib {
		t.Errorf("%v to %v, want 200 to 500 MiB: what is held at the end less what the history changed", least, most)
	}
	_, reserved := rs[0].Reserved.Range(0, rs[0].Reserved.End)
	if reserved != 1000*mib {
		t.Errorf("reserved %v, want 1000 MiB", reserved)
	}
	a := recording.Analyse(rs[0], recording.DefaultLevels)
	if a.Period != 100*time.Millisecond || len(a.Iterations) != 5 || a.Profile.Persistent != 200*mib || a.Profile.Peak() != 500*mib {
		t.Errorf("%d iterations of %v, %v to %v", len(a.Iterations), a.Period, a.Profile.Persistent, a.Profile.Peak())
	}
	if a.Verdict.Code != recording.KeepsCache || !strings.Contains(a.Verdict.Text, "shareable only with handover") {
		t.Errorf("verdict %q", a.Verdict.Text)
	}
}

// Memory is in use until free_completed; histories that know only free_requested end there.
func TestFreesThatNeverComplete(t *testing.T) {
	data := pickled([]segment{{0, 500 * mib, 200 * mib}}, training(4, "free_requested"))
	rs, err := Read("x", bytes.NewReader(data), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if least, most := rs[0].Allocated.Range(rs[0].Allocated.Start(), rs[0].Allocated.End+1); least != 200*mib || most != 500*mib {
		t.Errorf("%v to %v", least, most)
	}
}

func TestSegmentsThatComeAndGo(t *testing.T) {
	var history []event
	for i := range int64(6) {
		at := i * 100_000
		history = append(history, event{"segment_map", 300 * mib, at}, event{"alloc", 300 * mib, at + 1},
			event{"free_completed", 300 * mib, at + 50_000}, event{"segment_unmap", 300 * mib, at + 50_001}, event{"oom", 1 << 60, at + 50_002})
	}
	data := pickled([]segment{{0, 200 * mib, 200 * mib}}, history)
	rs, err := Read("x", bytes.NewReader(data), int64(len(data)), nil)
	if err != nil {
		t.Fatal(err)
	}
	a := recording.Analyse(rs[0], 12)
	if a.Verdict.Code != recording.GivesBack {
		t.Errorf("verdict %q: what the allocator gives back is shareable as it is", a.Verdict.Text)
	}
}

func TestUntimed(t *testing.T) {
	history := training(6, "free_requested", "free_completed")
	for i := range history {
		history[i].us = -1
	}
	data := pickled([]segment{{0, 500 * mib, 200 * mib}}, history)
	rs, err := Read("x", bytes.NewReader(data), int64(len(data)), nil)
	if err != nil || rs[0].Clock != recording.Ordered {
		t.Fatalf("clock %v, %v", rs[0].Clock, err)
	}
	a := recording.Analyse(rs[0], 12)
	if a.Period != 0 || a.Profile.Mean() != float64(500*mib) || !strings.Contains(strings.Join(a.Notes, " "), "period and the shares of time are not") {
		t.Errorf("period %v, mean %v, notes %q: without times the peak must count all the time", a.Period, a.Profile.Mean(), a.Notes)
	}
}

func TestFaults(t *testing.T) {
	whole := pickled([]segment{{0, 500 * mib, 200 * mib}}, training(4, "free_completed"))
	for name, test := range map[string]struct{ data, code, text string }{
		"cut":        {string(whole[:len(whole)/2]), "truncated", "truncated at byte"},
		"no history": {string(pickled([]segment{{0, 5, 2}})), "no_events", "no allocator events"},
		"a list":     {"\x80\x04].", "not_a_snapshot", "no dictionary"},
		"a call":     {"\x80\x04cos\nsystem\n.", "refused", "GLOBAL os.system at byte 2"},
		"nonsense":   {"\x80\x04zzz", "malformed", "opcode 0x7a at byte 2"},
	} {
		_, err := Read("x", strings.NewReader(test.data), int64(len(test.data)), nil)
		var faults trace.Errors
		if !errors.As(err, &faults) || faults[0].Code != test.code || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: %v, want %s: %s", name, err, test.code, test.text)
		}
	}
}

func TestWildNumbers(t *testing.T) {
	history := append(training(5, "free_completed"), event{"alloc", -5, 1}, event{"alloc", 1 << 60, 1}, event{"alloc", 7, 1 << 62}, event{"what", 1, 1})
	data := pickled([]segment{{0, 500 * mib, 200 * mib}}, history)
	rs, err := Read("x", bytes.NewReader(data), int64(len(data)), nil)
	if err != nil || len(rs[0].Notes) != 2 {
		t.Fatalf("%q, %v: want a note on sizes and one on times", rs[0].Notes, err)
	}
	if _, most := rs[0].Allocated.Range(0, rs[0].Allocated.End+1); most > 600*mib {
		t.Errorf("peak %v", most)
	}
}

// TestLargeSnapshot reads a long history as a stream: as values it would take some 500 MiB.
func TestLargeSnapshot(t *testing.T) {
	const events, most = 400_000, 96 << 20
	r, w := io.Pipe()
	go func() {
		b := bufio.NewWriter(w)
		newWriter(b).snapshot([]segment{{0, 500 * mib, 200 * mib}}, [][]event{training(events/2, "free_completed")})
		_ = b.Flush() // the reader says what is missing
		_ = w.Close()
	}()
	highest, size := uint64(0), int64(0)
	rs, err := Read("x", r, 0, func(read int64) error {
		var now runtime.MemStats
		runtime.ReadMemStats(&now)
		highest, size = max(highest, now.HeapAlloc), read
		return nil
	})
	if err != nil || len(rs) != 1 {
		t.Fatal(err)
	}
	t.Logf("%d MiB read with a heap of %d MiB", size>>20, highest>>20)
	if highest > most {
		t.Errorf("heap of %d MiB for %d events", highest>>20, events)
	}
	if rs[0].Allocated.Points[0].Bytes != 200*unit.MiB {
		t.Errorf("first level %v", rs[0].Allocated.Points[0].Bytes)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(pickled([]segment{{0, 500 * mib, 200 * mib}}, training(3, "free_requested", "free_completed")))
	f.Add(pickled([]segment{{1, 5, 2}}, nil, []event{{"alloc", 1, -1}, {"segment_map", 1 << 49, 5}, {"free_requested", 9, 1 << 61}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		rs, err := Read("x", bytes.NewReader(data), int64(len(data)), nil)
		var faults trace.Errors
		if err != nil && !errors.As(err, &faults) {
			t.Fatal(err)
		}
		for _, r := range rs {
			if fault := recording.Analyse(r, 12).Check(); fault != nil {
				t.Fatal(fault)
			}
		}
	})
}
