package dispatch

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/interference"
	"weft.dev/weft/internal/plan"
	"weft.dev/weft/internal/profile"
	"weft.dev/weft/internal/unit"
)

// fleet is so many nodes of 8 GPUs: a tenth are larger, some GPUs are drained or held by native Pods.
func fleet(nodes int) *State {
	s := &State{Now: epoch, Table: interference.Catalogue("p100"), Users: map[string]User{}, Options: Options{Epsilon: 0.05}}
	for n := range nodes {
		for g := range 8 {
			gpu := GPU{Node: n, Usable: 22 * unit.GiB}
			if n%10 == 9 {
				gpu.Usable = 38 * unit.GiB
			}
			switch (8*n + g) % 97 {
			case 13:
				gpu.Closed = plan.Drained
			case 50:
				gpu.Closed = plan.Native
			}
			s.GPUs = append(s.GPUs, gpu)
		}
	}
	return s
}

// stock is what jobs of a fleet have in common: the sets of nodes that they may be on.
type stock struct {
	large, even *Nodes
	shape       profile.Shape
	light       []int // configurations that most others can share with
}

func newStock(s *State) *stock {
	nodes := s.GPUs[len(s.GPUs)-1].Node + 1
	k := &stock{large: &Nodes{make([]bool, nodes)}, even: &Nodes{make([]bool, nodes)}}
	k.shape, _ = profile.NamedShape("training-categorised")
	for n := range nodes {
		k.large.May[n], k.even.May[n] = n%10 == 9, n%2 == 0
	}
	for i := range s.Table.Len() {
		partners := 0
		for l := range s.Table.Len() {
			if s.Table.Added(i, l) < 0.4 && s.Table.Added(l, i) < 0.4 {
				partners++
			}
		}
		if partners > s.Table.Len()/2 {
			k.light = append(k.light, i)
		}
	}
	return k
}

// add appends a waiting job of one of so many shapes: alone or in gangs, within a node or across.
func (k *stock) add(s *State, shape int) *Job {
	id := box.ID(len(s.Jobs) + 1)
	peak := unit.Bytes(2+shape%5)*unit.GiB + unit.Bytes(shape/20)*unit.MiB/8
	j := Job{ID: id, User: fmt.Sprint("team", id%50), Priority: 10 * (shape % 3), Submitted: s.Now.Add(-time.Duration(shape%40) * time.Minute),
		Floor: 0.5 + 0.1*float64(shape%4), GPUs: 1, Config: s.Table.Config(k.light[shape%len(k.light)]), Cooperates: shape%2 == 0,
		Memory: profile.New(peak/2, peak, k.shape),
		Class:  []cluster.Class{cluster.Burstable, cluster.BestEffort, cluster.Burstable, cluster.Burstable}[shape%4]}
	switch shape % 20 {
	case 3:
		j.GPUs, j.Together = 2, 2
	case 7:
		j.GPUs, j.Together = 8, 8
	case 11:
		j.GPUs = 4
	case 13:
		j.GPUs, j.Together = 8, 4
	case 15:
		j.Nodes = k.large
	case 17:
		j.Nodes = k.even
	}
	if shape%3 == 0 {
		j.MaxTime = time.Hour
	}
	s.Jobs = append(s.Jobs, j)
	return &s.Jobs[len(s.Jobs)-1]
}

// populate starts jobs of one GPU each until so many run, and clears away those that found no place.
func (k *stock) populate(s *State, shapes, residents int) {
	for i := range residents {
		j := k.add(s, i%shapes)
		j.GPUs, j.Together, j.Floor, j.Class = 1, 0, 0.3, cluster.Burstable
	}
	apply(s, Plan(s), s.Now)
	running := s.Jobs[:0]
	for _, j := range s.Jobs {
		if len(j.On) > 0 {
			running = append(running, j)
		}
	}
	s.Jobs = running
}

// wait starts what fits of the jobs there are, and then adds some that wait.
func (k *stock) wait(s *State, shapes, jobs int) {
	for i := range jobs {
		k.add(s, i%shapes)
	}
	apply(s, Plan(s), s.Now)
	for i := range jobs {
		k.add(s, i%shapes)
	}
}

// reportProcessor reports the processor time of each run: on a machine that others use, too, it says more than the clock.
func reportProcessor(b *testing.B) func() {
	b.Helper()
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	return func() { b.ReportMetric(float64((used()-before)/time.Microsecond)/1000/float64(b.N), "cpu-ms/op") }
}

// BenchmarkCluster plans 500 nodes of 8 GPUs for jobs of 20 shapes, and of as many as there are jobs: 4,000 that all start (place),
// 10,000 residents with nobody waiting (replan), thousands who wait behind 13,000 residents (full), and some behind one that keeps
// 400 nodes (held). It also explains why one of those waits, and looks for GPUs to empty.
func BenchmarkCluster(b *testing.B) {
	for _, shapes := range []int{20, 4000} {
		place, full := fleet(500), fleet(500)
		k := newStock(place)
		for i := range 4000 {
			k.add(place, i%shapes)
		}
		k.populate(full, shapes, 10_000)
		replan := full.clone()
		k.wait(full, shapes, 4000)
		held := full.clone()
		for i := range held.Jobs {
			if j := &held.Jobs[i]; len(j.On) > 0 && j.On[0]%2 == 0 {
				j.On = nil
			}
		}
		first := &held.Jobs[len(held.Jobs)-1]
		first.GPUs, first.Together, first.Priority, first.Nodes, first.Config = 3200, 8, 100, nil, interference.Config{}
		for _, c := range []struct {
			name string
			s    *State
		}{{"place", place}, {"replan", replan}, {"full", full}, {"held", held}} {
			b.Run(fmt.Sprint(c.name, "/", shapes, " shapes"), func(b *testing.B) {
				var d Decision
				b.ReportAllocs()
				defer reportProcessor(b)()
				for b.Loop() {
					d = Plan(c.s)
				}
				b.ReportMetric(float64(len(c.s.Jobs)-len(d.Starts)-len(d.Waits)), "running")
				b.ReportMetric(float64(len(d.Starts)), "starts")
			})
		}
		b.Run(fmt.Sprint("explain/", shapes, " shapes"), func(b *testing.B) {
			id := full.Jobs[len(full.Jobs)-1].ID
			for _, j := range full.Jobs {
				if len(j.On) == 0 && j.Together == 8 {
					id = j.ID
				}
			}
			defer reportProcessor(b)()
			for b.Loop() {
				Explain(full, id)
			}
		})
		b.Run(fmt.Sprint("consolidate/", shapes, " shapes"), func(b *testing.B) {
			s := full.clone()
			for i := range s.Jobs {
				j := &s.Jobs[i]
				j.Started, j.Ran, j.Rate, j.Migratable = s.Now.Add(-time.Hour), time.Hour, 1, true
			}
			defer reportProcessor(b)()
			for b.Loop() {
				Consolidate(s, 10)
			}
		})
	}
}
