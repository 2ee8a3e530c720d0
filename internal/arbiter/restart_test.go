package arbiter

import (
	"testing"
	"time"

	"weft.dev/weft/internal/unit"
)

func TestRestart(t *testing.T) {
	o := Options{Settle: 100 * time.Millisecond}
	a := Restore(ms(1000), 2, o, 7)
	if a.Next() != ms(1100) {
		t.Errorf("next call at %d, want the end of the settle time", a.Next())
	}
	join := func(s Session) []Decision {
		s.Weight = 1
		d, err := a.Join(ms(1010), s)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	join(Session{ID: 1, Job: "waits", GPUs: []int{0}})
	want(t, "a request in the settle time", a.Request(ms(1011), 1))
	want(t, "a holder", join(Session{ID: 2, Job: "holds", GPUs: []int{0}, Epoch: 5}), brief{Narrow, 2, None})
	want(t, "its other rank", join(Session{ID: 3, Job: "holds", GPUs: []int{1}, Epoch: 6}))
	want(t, "an older holder", join(Session{ID: 4, Job: "old", GPUs: []int{1}, Epoch: 4}), brief{Drop, 4, Stale})
	want(t, "a newer holder", join(Session{ID: 5, Job: "new", GPUs: []int{1}, Epoch: 7}),
		brief{Drop, 2, Stale}, brief{Drop, 3, Stale}, brief{Narrow, 5, None})
	want(t, "a rank asks", a.Request(ms(1020), 3))
	granted := a.Tick(ms(1100))
	want(t, "settled", granted, brief{Grant, 1, None}, brief{Drop, 5, Quantum})
	if granted[0].Epoch <= 8 {
		t.Errorf("epoch %d was granted, want one above all before", granted[0].Epoch)
	}
	want(t, "the newer holder returns", a.Released(ms(1101), 5, Release{Epoch: 7}))
	want(t, "all ranks at once", a.Leave(ms(1102), 1), brief{Grant, 2, None}, brief{Grant, 3, None})
}

// TestRestartUnderLoad replaces the arbiter of a running machine three times: no job stalls, none overlap.
func TestRestartUnderLoad(t *testing.T) {
	m := newMachine(t, 2, Options{})
	var jobs []*process
	for i := range 6 {
		sets := [][][]int{{{0}}, {{1}}, {{0}, {1}}}[i%3]
		jobs = append(jobs, m.start(&process{class: Burstable, kernel: time.Millisecond, kernels: 20, gap: every(ms2)}, sets...))
	}
	for range 3 {
		m.run(m.now.Add(time.Second))
		before := make([]time.Duration, len(jobs))
		m.restart(jobs)
		for i, j := range jobs {
			before[i] = j.ran
		}
		m.run(m.now.Add(1500 * time.Millisecond))
		for i, j := range jobs {
			if j.ran == before[i] {
				t.Errorf("job %s does not run 1.5 s after a restart", j.id)
			}
		}
	}
}

const ms2 = 2 * time.Millisecond

// restart loses the arbiter with all messages under way, and lets the sessions join a new one with what they hold.
func (m *machine) restart(jobs []*process) {
	m.a = Restore(m.now, len(m.users), m.a.o, m.a.Epoch())
	m.lost++
	m.wakeAt = unit.Never
	for _, p := range jobs {
		for _, g := range p.sessions {
			if !g.open {
				g.epoch = 0 // what it was about to release is released by joining without it
			}
			d, err := m.a.Join(m.now, Session{ID: g.id, Job: p.id, Class: p.class, Weight: p.weight, GPUs: g.gpus, Epoch: g.epoch})
			if err != nil {
				m.t.Fatal(err)
			}
			m.act(d)
			g.asked = false
		}
		p.launch()
	}
}
