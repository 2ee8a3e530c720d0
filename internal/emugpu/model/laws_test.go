package model

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weft.dev/weft/internal/unit"
)

// schedule is a random scenario that can be run more than once.
type schedule struct {
	options  Options
	contexts []int // GPU of each
	streams  []int // context of each
	steps    []step
}

type step struct {
	at     unit.Time
	stream int
	op     Op
	on     int // stream waited for
}

func drawSchedule(t *rapid.T) schedule {
	s := schedule{options: Options{
		GPUs: rapid.IntRange(1, 3).Draw(t, "gpus"), FIFO: rapid.Bool().Draw(t, "fifo"),
		Slice:  time.Duration(rapid.IntRange(1, 2000).Draw(t, "slice")),
		Switch: time.Duration(rapid.IntRange(0, 100).Draw(t, "switch")),
	}}
	for range rapid.IntRange(1, 5).Draw(t, "contexts") {
		s.contexts = append(s.contexts, rapid.IntRange(0, s.options.GPUs-1).Draw(t, "gpu"))
	}
	for range rapid.IntRange(1, 8).Draw(t, "streams") {
		s.streams = append(s.streams, rapid.IntRange(0, len(s.contexts)-1).Draw(t, "context"))
	}
	at, counts := unit.Time(0), make([]uint64, len(s.streams))
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		at += unit.Time(rapid.IntRange(0, 3000).Draw(t, "pause"))
		n := rapid.IntRange(0, len(s.streams)-1).Draw(t, "stream")
		st := step{at: at, stream: n, on: -1, op: Op{Kind: Kind(rapid.IntRange(int(Kernel), int(Wait)).Draw(t, "kind"))}}
		switch st.op.Kind {
		case RecordEvent:
			st.op.Generation = counts[n]
		case Wait: // for something submitted before: no cycle
			st.on = rapid.IntRange(0, len(s.streams)-1).Draw(t, "on")
			st.op.Entry = counts[st.on]
		default:
			st.op.Cost = time.Duration(rapid.IntRange(0, 5000).Draw(t, "cost"))
		}
		counts[n]++
		s.steps = append(s.steps, st)
	}
	return s
}

// outcome is what one run of a schedule gave.
type outcome struct {
	ends     [][]unit.Time // of each entry of each stream
	accounts []Account
	usages   []Usage
	span     unit.Time
}

// run plays a schedule to its end. Extra looks at the model between events must not change anything.
func (s schedule) run(look func(*Model, []*Stream)) outcome {
	m := New(s.options)
	contexts := make([]*Context, len(s.contexts))
	for i, g := range s.contexts {
		contexts[i] = m.Open(g, fmt.Sprint(i))
	}
	streams := make([]*Stream, len(s.streams))
	for i, c := range s.streams {
		streams[i] = m.Stream(contexts[c], 0)
	}
	o := outcome{ends: make([][]unit.Time, len(streams))}
	advance := func(to unit.Time) {
		for m.Next() <= to && m.Next() != unit.Never {
			m.Advance(m.Next())
			o.note(m, streams)
			look(m, streams)
		}
		if to != unit.Never {
			m.Advance(to)
		}
	}
	for _, st := range s.steps {
		advance(st.at)
		if st.on >= 0 {
			st.op.On = streams[st.on]
		}
		m.Submit(streams[st.stream], st.op)
		o.note(m, streams)
	}
	advance(unit.Never)
	for g := range s.options.GPUs {
		o.accounts = append(o.accounts, m.Account(g))
	}
	for _, c := range contexts {
		o.usages = append(o.usages, m.Usage(c))
	}
	o.span = m.Now()
	return o
}

func (o *outcome) note(m *Model, streams []*Stream) {
	for i, s := range streams {
		for uint64(len(o.ends[i])) < s.Done() {
			o.ends[i] = append(o.ends[i], m.Now())
		}
	}
}

func nothing(*Model, []*Stream) {}

// TestLaws holds random schedules to what any GPU does: everything ends, in the order of its stream, not before it was
// submitted, waits are kept, and engines account for every nanosecond of work and no other.
func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSchedule(t)
		o := s.run(nothing)
		computed, copied := make([]time.Duration, s.options.GPUs), make([]time.Duration, len(s.contexts))
		index := make([]int, len(s.streams))
		for _, st := range s.steps {
			i, ends := index[st.stream], o.ends[st.stream]
			index[st.stream]++
			if i >= len(ends) {
				t.Fatalf("stream %d: entry %d never ended", st.stream, i)
			}
			start := st.at
			if i > 0 {
				start = max(start, ends[i-1])
			}
			if ends[i] < start.Add(st.op.Cost) {
				t.Errorf("stream %d: entry %d ended at %d, could start at %d and costs %d", st.stream, i, ends[i], start, st.op.Cost)
			}
			if st.on >= 0 && st.op.Entry > 0 && ends[i] < o.ends[st.on][st.op.Entry-1] {
				t.Errorf("stream %d: wait %d ended before what it waits for", st.stream, i)
			}
			context := s.streams[st.stream]
			if st.op.Kind.onCompute() {
				computed[s.contexts[context]] += st.op.Cost
			} else {
				copied[context] += st.op.Cost
			}
		}
		for g, want := range computed {
			if o.accounts[g].Busy != want {
				t.Errorf("gpu %d was busy for %d, its kernels cost %d", g, o.accounts[g].Busy, want)
			}
		}
		for c, want := range copied {
			if o.usages[c].Copying != want {
				t.Errorf("context %d copied for %d, its copies cost %d", c, o.usages[c].Copying, want)
			}
		}
	})
}

// TestLookingChangesNothing runs a schedule twice, once with questions in between: ends and accounts are the same, and
// no bound is later than the end.
func TestLookingChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSchedule(t)
		s.options.Slowdown = map[Pair]float64{}
		for i := range s.contexts {
			for j := range s.contexts {
				s.options.Slowdown[Pair{fmt.Sprint(i), fmt.Sprint(j)}] = rapid.Float64Range(1, 3).Draw(t, "slowdown")
			}
		}
		plain := s.run(nothing)
		looked := s.run(func(m *Model, streams []*Stream) {
			for i, st := range streams {
				for n := st.Done() + 1; n <= st.Done()+uint64(st.Pending()); n++ {
					if b := m.Bound(st, n); b > plain.ends[i][n-1] {
						t.Errorf("stream %d: entry %d ends at %d, bound %d", i, n, plain.ends[i][n-1], b)
					}
				}
			}
			m.Account(0)
			m.Utilisation(0)
		})
		if plain.span != looked.span || !slices.EqualFunc(plain.ends, looked.ends, slices.Equal[[]unit.Time]) ||
			!slices.Equal(plain.accounts, looked.accounts) || !slices.Equal(plain.usages, looked.usages) {
			t.Errorf("differ:\n%+v\n%+v", plain, looked)
		}
	})
}

// TestWorkConservation: with kernels alone and no cost of switching, a GPU that has any work works.
func TestWorkConservation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := New(Options{GPUs: 1, FIFO: rapid.Bool().Draw(t, "fifo"), Slice: time.Duration(rapid.IntRange(1, 50).Draw(t, "slice"))})
		var streams []*Stream
		for range rapid.IntRange(1, 5).Draw(t, "streams") {
			streams = append(streams, m.Stream(m.Open(0, ""), 0))
		}
		end := unit.Time(0) // of all work so far, by Lindley's recursion
		for range rapid.IntRange(1, 40).Draw(t, "kernels") {
			at := m.Now() + unit.Time(rapid.IntRange(0, 100).Draw(t, "pause"))
			m.Advance(at)
			cost := time.Duration(rapid.IntRange(1, 150).Draw(t, "cost"))
			m.Submit(rapid.SampledFrom(streams).Draw(t, "stream"), Op{Kind: Kernel, Cost: cost})
			end = max(end, at).Add(cost)
		}
		end, last := max(end, m.Now()), m.Now()
		for m.Next() != unit.Never {
			m.Advance(m.Next())
			last = m.Now()
		}
		if last != end {
			t.Errorf("all work ended at %d, want %d", last, end)
		}
	})
}

// TestFairSlices: contexts that always have work get the same time, to within one slice, whatever their kernels.
func TestFairSlices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slice := time.Duration(rapid.IntRange(100, 1000).Draw(t, "slice"))
		m := New(Options{GPUs: 1, Slice: slice, Switch: time.Duration(rapid.IntRange(0, 50).Draw(t, "switch"))})
		var contexts []*Context
		for range rapid.IntRange(2, 5).Draw(t, "contexts") {
			c := m.Open(0, "")
			contexts = append(contexts, c)
			kernels(m, c, 1000, time.Duration(rapid.IntRange(100, 5000).Draw(t, "cost")))
		}
		m.Advance(unit.Time(rapid.IntRange(0, 20_000).Draw(t, "until")))
		least, most := time.Duration(1<<62), time.Duration(0)
		for _, c := range contexts {
			u := m.Usage(c).Busy
			least, most = min(least, u), max(most, u)
		}
		if most-least > slice {
			t.Errorf("shares from %d to %d, slice %d", least, most, slice)
		}
	})
}
