package dispatch

import (
	"fmt"
	"testing"
	"time"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/interference"
	"weft.dev/weft/internal/profile"
	"weft.dev/weft/internal/unit"
)

// crowd is 16 GPUs with up to 64 running jobs and 1,000 that wait, of so many kinds.
func crowd(kinds, waiting int) *State {
	table := interference.Catalogue("p100")
	shape, _ := profile.NamedShape("training-categorised")
	s := &State{Now: epoch, Table: table, Users: map[string]User{}, Options: Options{Epsilon: 0.05}}
	for range 16 {
		s.GPUs = append(s.GPUs, GPU{Usable: 22 * unit.GiB})
	}
	add := func(kind int) *Job {
		id := box.ID(len(s.Jobs) + 1)
		peak := unit.Bytes(2+kind%5)*unit.GiB + unit.Bytes(kind)*unit.MiB
		j := Job{ID: id, User: fmt.Sprint("user", id%7), Priority: 10 * (kind % 3), Submitted: epoch.Add(-time.Duration(waiting-len(s.Jobs)) * time.Second),
			Floor: 0.5 + 0.1*float64(kind%4), GPUs: 1, Config: table.Config(kind % table.Len()), Cooperates: kind%2 == 0,
			Memory: profile.New(peak/2, peak, shape), Class: []cluster.Class{cluster.Burstable, cluster.BestEffort, cluster.Burstable, cluster.Guaranteed}[kind%4]}
		if kind%11 == 0 {
			j.GPUs = 2
		}
		if kind%3 == 0 {
			j.MaxTime = time.Hour
		}
		s.Jobs = append(s.Jobs, j)
		return &s.Jobs[len(s.Jobs)-1]
	}
	for i := range 64 {
		j := add(i % kinds)
		j.GPUs, j.Class, j.Floor, j.Priority = 1, cluster.Burstable, 0.2, 0
	}
	apply(s, Plan(s), s.Now)
	for i := range waiting {
		add(i * 7 % kinds)
	}
	return s
}

// apply starts what was decided.
func apply(s *State, d Decision, now time.Time) {
	for _, start := range d.Starts {
		for i := range s.Jobs {
			if s.Jobs[i].ID == start.Job {
				s.Jobs[i].On, s.Jobs[i].Started = start.GPUs, now
			}
		}
	}
}

// BenchmarkPlan plans 1,000 waiting jobs of so many kinds on full GPUs, behind a gang that keeps eight of sixteen GPUs idle,
// where each must be held against all before it, and on an idle machine.
func BenchmarkPlan(b *testing.B) {
	for _, kinds := range []int{12, 100, 1000} {
		full, held, idle := crowd(kinds, 1000), crowd(kinds, 1000), crowd(kinds, 1000)
		for i := range held.Jobs {
			if j := &held.Jobs[i]; len(j.On) > 0 && j.On[0] >= 8 {
				j.On = nil
			}
			idle.Jobs[i].On = nil
		}
		held.Jobs[len(held.Jobs)-1].GPUs, held.Jobs[len(held.Jobs)-1].Priority = 16, 100
		for _, c := range []struct {
			name string
			s    *State
		}{{"full", full}, {"held", held}, {"idle", idle}} {
			b.Run(fmt.Sprint(c.name, "/", kinds, " kinds"), func(b *testing.B) {
				var d Decision
				b.ReportAllocs()
				for b.Loop() {
					d = Plan(c.s)
				}
				b.ReportMetric(float64(len(c.s.Jobs)-len(d.Starts)-len(d.Waits)), "running")
				b.ReportMetric(float64(len(d.Starts)), "starts")
			})
		}
	}
}

func BenchmarkExplain(b *testing.B) {
	s := crowd(100, 1000)
	for b.Loop() {
		Explain(s, 1064)
	}
}
