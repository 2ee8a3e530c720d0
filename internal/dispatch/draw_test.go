package dispatch

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/interference"
	"weft.dev/weft/internal/plan"
	"weft.dev/weft/internal/profile"
	"weft.dev/weft/internal/unit"
)

var epoch = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// dice draws evenly: small numbers are no likelier than others, so that machines are crowded.
type dice struct{ *rand.Rand }

// roll makes dice out of a drawn seed.
func roll(t *rapid.T) dice { return dice{rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))} }

// checkStates is rapid.Check with some machines each time, for most of them hold nothing of interest.
func checkStates(t *testing.T, check func(t *rapid.T, s *State, d dice)) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		d := roll(t)
		for range 10 {
			check(t, drawState(d), d)
		}
	})
}

// up is a number from low to high.
func (d dice) up(low, high int) int { return low + d.IntN(high-low+1) }

// one in n times it is true.
func (d dice) one(n int) bool { return d.IntN(n) == 0 }

func pick[T any](d dice, list ...T) T { return list[d.IntN(len(list))] }

// drawMachine is a machine with random GPUs and rates, and no job.
func drawMachine(d dice) *State {
	s := &State{Now: epoch, Users: map[string]User{}, Table: interference.NewTable()}
	s.Options = Options{Epsilon: pick(d, 0, 0.05, 0.2), MaxResidents: d.up(0, 4), Strict: d.one(2), Spread: d.one(2)}
	nodes := pick(d, 1, 1, 2, 3)
	for range d.up(1, 4) + nodes - 1 {
		g := GPU{Node: d.IntN(nodes), Usable: unit.GiB * pick[unit.Bytes](d, 16, 16, 16, 10)}
		switch d.up(0, 12) {
		case 0:
			g.Foreign = unit.GiB * unit.Bytes(d.up(1, 18))
		case 1:
			g.ForeignRuns = true
		case 2:
			g.Closed = pick(d, plan.Drained, plan.GPUUnhealthy, plan.Native)
		}
		s.GPUs = append(s.GPUs, g)
	}
	s.Table.Add(configOf(0), configOf(0), 0.95, 0.95)
	n, least := d.up(1, 4), pick(d, 0.6, 0.85, 0.93)
	for i := range n {
		for l := range i + 1 {
			if !d.one(10) {
				s.Table.Add(configOf(i), configOf(l), least+(1.02-least)*d.Float64(), least+(1.02-least)*d.Float64())
			}
		}
	}
	if d.one(4) {
		s.Bans = append(s.Bans, Ban{configOf(0), configOf(d.IntN(n)), epoch.Add(time.Duration(d.up(-1, 1)) * time.Hour)})
	}
	return s
}

func configOf(i int) interference.Config { return interference.Config{Model: fmt.Sprint("m", i)} }

// drawJob is a random job that waits, one in three times the twin of another.
func drawJob(d dice, s *State) Job {
	id := box.ID(1)
	for _, j := range s.Jobs {
		id = max(id, j.ID+1)
	}
	if n := len(s.Jobs); n > 0 && d.one(3) {
		j := s.Jobs[d.IntN(n)]
		j.ID, j.On, j.Started, j.Stopping, j.Ran = id, nil, time.Time{}, false, 0
		return j
	}
	j := Job{ID: id, User: pick(d, "ana", "ben", "carl"), GPUs: 1, Priority: pick(d, 0, 0, 3, 50),
		Submitted: s.Now.Add(-time.Duration(d.up(0, 150)) * time.Minute), Floor: pick(d, 0.3, 0.6, 0.8, 0.9),
		Class: pick(d, cluster.Burstable, cluster.Burstable, cluster.Burstable, cluster.Guaranteed, cluster.BestEffort), Config: configOf(d.IntN(s.Table.Len() + d.IntN(2))),
		Cooperates: d.one(2), Migratable: d.one(2), Memory: profile.Flat(unit.GiB * unit.Bytes(d.up(0, 6)))}
	if d.one(4) {
		if j.GPUs = d.up(1, 3); d.one(2) {
			j.Together = d.up(2, 3)
			j.GPUs = j.Together * d.up(1, 2)
		}
	}
	if d.one(6) {
		j.Nodes = &Nodes{[]bool{d.one(2), d.one(2), d.one(2)}[:d.up(1, 3)]}
	}
	if d.one(2) {
		j.MaxTime = time.Duration(d.up(1, 90)) * time.Minute
	}
	if d.one(20) {
		j.Waits = plan.Dependency
	}
	if v := unit.Bytes(d.up(0, 6)); v > 1 {
		seldom := pick(d, 0.02, 0.3)
		j.Memory.Ephemeral = []profile.Level{{Bytes: unit.GiB, Fraction: 1 - seldom}, {Bytes: v * unit.GiB, Fraction: seldom}}
	}
	return j
}

// drawState is a machine that has planned, run and ended jobs for a while, with some that wait.
func drawState(d dice) *State {
	s := drawMachine(d)
	for range d.up(0, 3) {
		for range d.up(0, 5) {
			s.Jobs = append(s.Jobs, drawJob(d, s))
		}
		apply(s, Plan(s), s.Now)
		s.Now = s.Now.Add(10 * time.Minute)
		s.Jobs = slices.DeleteFunc(s.Jobs, func(j Job) bool { return len(j.On) > 0 && d.one(3) })
		for i := range s.Jobs {
			if j := &s.Jobs[i]; len(j.On) > 0 {
				j.Ran += 10 * time.Minute
				j.Stopping = d.one(10)
			}
		}
	}
	for range d.up(1, 6) {
		s.Jobs = append(s.Jobs, drawJob(d, s))
	}
	return s
}

// mayShare says whether jobs may be on a GPU together, straight from the definitions.
func mayShare(s *State, gpu int, jobs []*Job) bool {
	return fits(s, gpu, jobs) && !slices.ContainsFunc(jobs, func(j *Job) bool { return !onNode(s, s.GPUs[gpu].Node, j) })
}

// fits is mayShare but for their nodes.
func fits(s *State, gpu int, jobs []*Job) bool {
	g := &s.GPUs[gpu]
	limit := 4
	if s.Options.MaxResidents > 0 {
		limit = s.Options.MaxResidents
	}
	if len(jobs) > limit || len(jobs) > 0 && g.Closed != "" {
		return false
	}
	var classes [3]int
	for _, j := range jobs {
		classes[j.Class]++
		if g.ForeignRuns && j.Class != cluster.BestEffort {
			return false
		}
		slowdown := 1.0
		for _, other := range jobs {
			if other != j {
				slowdown += slows(s, j, other)
			}
		}
		if len(jobs) > 1 && 1/slowdown < j.Floor-1e-9 {
			return false
		}
	}
	if n := classes[cluster.Guaranteed]; n > 0 && len(jobs) > 1 && (len(jobs) > 2 || classes[cluster.BestEffort] != 1) || n == 0 && classes[cluster.BestEffort] > 2 {
		return false
	}
	return memoryHolds(s, g, jobs)
}

// onNode says whether a job may be on a node, which needs GPUs enough for its workers that are together.
func onNode(s *State, node int, j *Job) bool {
	may := func(n int) bool { return j.Nodes == nil || n < len(j.Nodes.May) && j.Nodes.May[n] }
	open := 0
	for _, g := range s.GPUs {
		if g.Node == node && g.Closed == "" && (!g.ForeignRuns || j.Class == cluster.BestEffort) && j.Memory.Peak() <= max(0, g.Usable-g.Foreign) {
			open++
		}
	}
	return may(node) && (j.Together <= 1 || open >= j.Together)
}

// together says whether the workers of a job that must be on one node are.
func together(s *State, j *Job, on []int) bool {
	for i, g := range on {
		if j.Together > 1 && s.GPUs[g].Node != s.GPUs[on[i-i%j.Together]].Node {
			return false
		}
	}
	return true
}

// slows is the slowdown that other adds to a job.
func slows(s *State, j, other *Job) float64 {
	i, known := s.Table.Lookup(j.Config)
	l, also := s.Table.Lookup(other.Config)
	if !known || !also {
		return math.Inf(1)
	}
	for _, b := range s.Bans {
		if b.Until.After(s.Now) && (b.A == j.Config && b.B == other.Config || b.B == j.Config && b.A == other.Config) {
			return math.Inf(1)
		}
	}
	return s.Table.Added(i, l)
}

// memoryHolds is C1, C2 and that the greatest ephemeral part fits beside all that is reserved.
func memoryHolds(s *State, g *GPU, jobs []*Job) bool {
	room := max(0, g.Usable-g.Foreign)
	var held, most unit.Bytes
	var profiles []profile.Profile
	for _, j := range jobs {
		p := j.Memory
		if !j.Cooperates {
			p = profile.Flat(p.Peak())
		}
		held, most = held+p.Persistent, max(most, p.Peak()-p.Persistent)
		profiles = append(profiles, p)
		if j.Memory.Peak() > room {
			return false
		}
	}
	if held+most > room {
		return false
	}
	return overflows(profiles, held, room) <= s.Options.Epsilon+1e-9
}

// overflows is the probability that profiles want more than there is, level by level.
func overflows(profiles []profile.Profile, held, room unit.Bytes) float64 {
	if len(profiles) == 0 {
		if held > room {
			return 1
		}
		return 0
	}
	if len(profiles[0].Ephemeral) == 0 {
		return overflows(profiles[1:], held, room)
	}
	sum := 0.0
	for _, l := range profiles[0].Ephemeral {
		sum += l.Fraction * overflows(profiles[1:], held+l.Bytes, room)
	}
	return sum
}

// find is a job by its ID.
func (s *State) find(id box.ID) *Job {
	for i := range s.Jobs {
		if s.Jobs[i].ID == id {
			return &s.Jobs[i]
		}
	}
	return nil
}

// there are the jobs on a GPU.
func (s *State) there(gpu int) []*Job {
	var jobs []*Job
	for i := range s.Jobs {
		if slices.Contains(s.Jobs[i].On, gpu) {
			jobs = append(jobs, &s.Jobs[i])
		}
	}
	return jobs
}

// clone is a copy whose jobs can be changed.
func (s *State) clone() *State {
	c := *s
	c.Jobs, c.GPUs, c.Bans = slices.Clone(s.Jobs), slices.Clone(s.GPUs), slices.Clone(s.Bans)
	return &c
}
