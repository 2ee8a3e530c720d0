package arbiter

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weft.dev/weft/internal/unit"
)

// ms is a point of time.
func ms(n float64) unit.Time { return unit.Time(n * 1e6) }

// play joins sessions, each of a job of its own named by its number, on one GPU.
func play(t *testing.T, a *Arbiter, now unit.Time, sessions ...Session) {
	t.Helper()
	for _, s := range sessions {
		if s.Job == "" {
			s.Job = JobID(rune('a' + s.ID))
		}
		if s.GPUs == nil {
			s.GPUs = []int{0}
		}
		s.Weight = 1
		if _, err := a.Join(now, s); err != nil {
			t.Fatal(err)
		}
	}
}

// brief is a decision without what most tests do not look at.
type brief struct {
	Kind    Kind
	Session SessionID
	Reason  Reason
}

func want(t *testing.T, what string, got []Decision, want ...brief) {
	t.Helper()
	var have []brief
	for _, d := range got {
		have = append(have, brief{d.Kind, d.Session, d.Reason})
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestHolderGone(t *testing.T) {
	a := New(1, Options{})
	play(t, a, 0, Session{ID: 1}, Session{ID: 2})
	want(t, "the first", a.Request(0, 1), brief{Grant, 1, None})
	want(t, "the second", a.Request(ms(1), 2))
	want(t, "the first is killed", a.Leave(ms(2), 1), brief{Grant, 2, None})
}

func TestHolderHangs(t *testing.T) {
	m := newMachine(t, 1, Options{})
	hung := m.start(&process{id: "hung", class: BestEffort, kernel: time.Millisecond, kernels: 4, gap: every(0)}, []int{0})
	m.run(ms(5))
	hung.hangs = true
	for i, class := range []Class{BestEffort, Guaranteed} {
		p := m.start(&process{class: class, kernel: time.Millisecond, kernels: 1 << 30, gap: every(0)}, []int{0})
		m.run(m.now.Add(100 * time.Millisecond))
		if p.ran == 0 {
			t.Errorf("job %d does not run 100 ms after the holder stopped", i)
		}
	}
	if !slices.Equal(m.overrun, []SessionID{1}) || m.a.Usage(m.a.now, "hung").Overruns != 1 {
		t.Errorf("overruns of %v, want one of session 1", m.overrun)
	}
	late := m.a.Released(m.now, 1, Release{Epoch: 1, Used: time.Second, Overrun: time.Second, Launched: true})
	for _, d := range late {
		if d.Kind == Grant {
			t.Errorf("a release of the past leads to %+v", d)
		}
	}
}

// TestIdleHolder: a holder that said it was idle is asked to yield as soon as a peer waits, and one that did not after its
// quantum; time that runs backwards stands still.
func TestIdleHolder(t *testing.T) {
	for _, idle := range []bool{false, true} {
		a := New(1, Options{})
		play(t, a, 0, Session{ID: 1}, Session{ID: 2})
		a.Request(0, 1)
		if idle {
			want(t, "idle", a.Idle(ms(2), 1))
			want(t, "a peer asks", a.Request(ms(3), 2), brief{Yield, 1, None})
			continue
		}
		want(t, "a peer asks", a.Request(ms(3), 2))
		want(t, "before the quantum is over", a.Tick(ms(6.9)))
		want(t, "after it", a.Tick(ms(7)), brief{Yield, 1, None})
		want(t, "backwards", a.Tick(ms(1)))
		want(t, "half a quantum later", a.Tick(ms(10.5)), brief{Drop, 1, Quantum})
	}
}

func TestStaleReleaseIsIgnored(t *testing.T) {
	a := New(1, Options{})
	play(t, a, 0, Session{ID: 1}, Session{ID: 2})
	first := a.Request(0, 1)[0].Epoch
	a.Released(ms(1), 1, Release{Epoch: first})
	a.Request(ms(2), 1)
	a.Request(ms(2), 2)
	want(t, "released twice", a.Released(ms(3), 1, Release{Epoch: first}))
	want(t, "released by another", a.Released(ms(3), 2, Release{Epoch: first + 1}))
	want(t, "released", a.Released(ms(3), 1, Release{Epoch: first + 1}), brief{Grant, 2, None})
}

func TestGangGrows(t *testing.T) {
	a := New(2, Options{})
	play(t, a, 0, Session{ID: 1, Job: "gang"})
	first := a.Request(0, 1)[0].Epoch
	play(t, a, ms(1), Session{ID: 2, Job: "gang", GPUs: []int{1}})
	want(t, "a rank on another GPU", a.Request(ms(2), 2), brief{Drop, 1, Regroup})
	want(t, "the job is whole", a.Released(ms(3), 1, Release{Epoch: first}), brief{Grant, 1, None}, brief{Grant, 2, None})
	want(t, "one rank returns", a.Released(ms(4), 1, Release{Epoch: first + 1}))
	want(t, "and comes back: the tokens have not moved", a.Request(ms(5), 1), brief{Grant, 1, None})
}

func TestJoinFaults(t *testing.T) {
	a := New(2, Options{})
	good := Session{ID: 1, Job: "a", Class: Burstable, Weight: 2, GPUs: []int{1}}
	play(t, a, 0)
	if _, err := a.Join(0, good); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		change func(*Session)
		want   error
	}{
		"twice":            {func(s *Session) { s.ID = 1 }, ErrSession},
		"no GPU":           {func(s *Session) { s.GPUs = nil }, ErrGPUs},
		"GPU beyond":       {func(s *Session) { s.GPUs = []int{0, 2} }, ErrGPUs},
		"GPU below":        {func(s *Session) { s.GPUs = []int{-1} }, ErrGPUs},
		"no weight":        {func(s *Session) { s.Weight = 0 }, ErrJob},
		"absurd weight":    {func(s *Session) { s.Weight = 1 << 40 }, ErrJob},
		"another weight":   {func(s *Session) { s.Weight = 3 }, ErrJob},
		"another class":    {func(s *Session) { s.Class = Guaranteed }, ErrJob},
		"no such class":    {func(s *Session) { s.Job, s.Class = "b", classes }, ErrJob},
		"a negative class": {func(s *Session) { s.Job, s.Class = "b", -1 }, ErrJob},
	} {
		s := good
		s.ID = 2
		c.change(&s)
		if _, err := a.Join(0, s); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
	}
	for what, d := range map[string][]Decision{
		"request": a.Request(0, 9), "release": a.Released(0, 9, Release{Epoch: 1}), "idle": a.Idle(0, 9), "leave": a.Leave(0, 9),
	} {
		want(t, what+" of a stranger", d)
	}
}
