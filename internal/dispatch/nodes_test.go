package dispatch

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/plan"
	"weft.dev/weft/internal/profile"
	"weft.dev/weft/internal/unit"
)

// drawCluster is a cluster of some nodes, idle, with many jobs that wait.
func drawCluster(d dice) *State {
	s := drawMachine(d)
	s.GPUs = nil
	for n := range d.up(1, 5) {
		usable := pick[unit.Bytes](d, 16, 16, 10)
		for range d.up(1, 4) {
			g := GPU{Node: n, Usable: usable * unit.GiB}
			if d.one(12) {
				g.Closed = pick(d, plan.Drained, plan.Native)
			}
			s.GPUs = append(s.GPUs, g)
		}
	}
	for range d.up(1, 20) {
		s.Jobs = append(s.Jobs, drawJob(d, s))
	}
	for i := range s.Jobs {
		if j := &s.Jobs[i]; d.one(4) {
			j.Nodes = &Nodes{make([]bool, 5)}
			for n := range j.Nodes.May {
				j.Nodes.May[n] = d.one(2)
			}
		}
	}
	return s
}

// outcome is what a decision comes to, whichever of the GPUs that are alike it names, and of the jobs that are alike and keep them.
type outcome struct {
	starts []box.ID
	waits  []string
	inUse  int
}

func outcomeOf(s *State) outcome {
	d := Plan(s)
	c := s.clone()
	apply(c, d, s.Now)
	o := outcome{inUse: inUse(c)}
	for _, start := range d.Starts {
		o.starts = append(o.starts, start.Job)
	}
	for _, w := range d.Waits {
		o.waits = append(o.waits, fmt.Sprint(w.Job, w.Reason.Code, d.Promised[w.Job]))
	}
	return o
}

func (o outcome) equal(other outcome) bool {
	return slices.Equal(o.starts, other.starts) && slices.Equal(o.waits, other.waits) && o.inUse == other.inUse
}

// TestNumbersOfNodesAreIrrelevant: nodes that change places, and GPUs that do, change neither who starts nor how many GPUs are in
// use, nor why the others wait.
func TestNumbersOfNodesAreIrrelevant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := roll(t)
		for range 20 {
			s := drawCluster(d)
			moved := s.clone()
			to := d.Perm(8)
			for i := range moved.GPUs {
				moved.GPUs[i].Node = to[s.GPUs[i].Node]
			}
			d.Shuffle(len(moved.GPUs), func(i, l int) { moved.GPUs[i], moved.GPUs[l] = moved.GPUs[l], moved.GPUs[i] })
			for i := range moved.Jobs {
				if n := s.Jobs[i].Nodes; n != nil {
					moved.Jobs[i].Nodes = &Nodes{make([]bool, 8)}
					for node, may := range n.May {
						moved.Jobs[i].Nodes.May[to[node]] = may
					}
				}
			}
			if a, b := outcomeOf(s), outcomeOf(moved); !a.equal(b) {
				t.Fatalf("%+v\nwith nodes in other places %+v", a, b)
			}
		}
	})
}

// TestLikenessIsIrrelevant: what is asked once for all jobs and GPUs that are alike is the same when none are. Jobs are told apart
// by a node of no use that each may be on, and nodes by a job that waits for something else and names one.
func TestLikenessIsIrrelevant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := roll(t)
		for range 20 {
			s := drawCluster(d)
			for i := range s.GPUs { // what tells nodes apart must not be what orders them
				s.GPUs[i].Usable += unit.Bytes(s.GPUs[i].Node)
			}
			apart := s.clone()
			nodes := 5 + len(s.Jobs)
			for i := range s.Jobs {
				j := &apart.Jobs[i]
				of := &Nodes{make([]bool, nodes)}
				for n := range 5 {
					of.May[n] = s.Jobs[i].Nodes.allows(n)
				}
				of.May[5+i] = true
				j.Nodes = of
				apart.GPUs = append(apart.GPUs, GPU{Node: 5 + i, Closed: plan.Drained})
			}
			a, b := outcomeOf(s), outcomeOf(apart)
			if !slices.Equal(a.starts, b.starts) || a.inUse != b.inUse || len(a.waits) != len(b.waits) {
				t.Fatalf("%+v\nwith nothing alike %+v", a, b)
			}
		}
	})
}

// TestTheFirstIsNotStarved sends small jobs without end at a full cluster, each of which runs for a while that nobody knows. Whoever
// is first in line for whole nodes, or for many GPUs, starts within the longest of these whiles. Where some have a limit of time and
// others none, it may be promised a start late in that time, and within another limit from then.
func TestTheFirstIsNotStarved(t *testing.T) {
	const longest = 40 * time.Minute
	started := 0
	rapid.Check(t, func(t *rapid.T) {
		d := roll(t)
		s := &State{Now: epoch, Users: map[string]User{}, Options: Options{Epsilon: 0.05}, Table: drawMachine(d).Table}
		size := d.up(2, 4)
		for n := range d.up(2, 4) {
			for range size {
				s.GPUs = append(s.GPUs, GPU{Node: n, Usable: 16 * unit.GiB})
			}
		}
		ends, id := map[box.ID]time.Time{}, box.ID(0)
		bound, limited := longest, d.one(2)
		if limited {
			bound = 2*longest + defaultGrace
		}
		small := func() {
			id++
			j := drawJob(d, &State{Now: s.Now, Table: s.Table})
			j.ID, j.GPUs, j.Together, j.Nodes, j.Waits, j.MaxTime, j.Priority, j.Submitted = id, 1, 0, nil, "", 0, 0, s.Now
			if limited && d.one(2) {
				j.MaxTime = longest
			}
			s.Jobs = append(s.Jobs, j)
		}
		start := func() []Start {
			plan := Plan(s)
			apply(s, plan, s.Now)
			for _, start := range plan.Starts {
				ends[start.Job] = s.Now.Add(time.Duration(d.up(1, int(longest/time.Minute))) * time.Minute)
			}
			return plan.Starts
		}
		for range 10 * len(s.GPUs) {
			small()
		}
		start()
		for i := range s.Jobs {
			s.Jobs[i].Submitted = s.Now.Add(time.Second) // who waits comes after the large one
		}
		id++
		large := Job{ID: id, User: "large", GPUs: size, Together: size, Floor: 0.9, Submitted: s.Now,
			Memory: profile.Flat(unit.GiB * unit.Bytes(d.up(1, 16)))}
		if d.one(2) {
			large.Together, large.GPUs = 1, d.up(2, len(s.GPUs))
		}
		if d.one(2) {
			large.Config = configOf(0)
		}
		s.Jobs = append(s.Jobs, large)
		s.Users["large"] = User{Weight: 1e6} // it stays first at its level
		for since := s.Now; ; {
			if slices.ContainsFunc(start(), func(x Start) bool { return x.Job == large.ID }) {
				started++
				return
			}
			if waited := s.Now.Sub(since); waited >= bound {
				t.Fatalf("the large job of %d GPUs, %d together, waits for %v (limits: %t)", large.GPUs, large.Together, waited, limited)
			}
			s.Now = s.Now.Add(time.Minute)
			for i := range s.Jobs {
				s.Jobs[i].Ran = time.Duration(toInt(len(s.Jobs[i].On) > 0)) * s.Now.Sub(s.Jobs[i].Started)
			}
			s.Jobs = slices.DeleteFunc(s.Jobs, func(j Job) bool { return len(j.On) > 0 && !ends[j.ID].After(s.Now) })
			for range 1 + len(s.GPUs)/2 {
				small()
			}
		}
	})
	if started == 0 {
		t.Error("no large job was ever tried")
	}
}

// TestOddNodes: nodes and jobs that should not be as they are bring nothing down, and jobs start where they can.
func TestOddNodes(t *testing.T) {
	for name, c := range map[string]struct {
		starts int
		code   plan.Code
		change func(s *State)
	}{
		"together":                 {1, "", func(s *State) {}},
		"a node that is not there": {0, plan.NodeMismatch, func(s *State) { s.Jobs[0].Nodes = &Nodes{make([]bool, 9)}; s.Jobs[0].Nodes.May[8] = true }},
		"no node":                  {0, plan.NodeMismatch, func(s *State) { s.Jobs[0].Nodes = &Nodes{} }},
		"more than a node has":     {0, plan.TooLarge, func(s *State) { s.Jobs[0].GPUs, s.Jobs[0].Together = 3, 3 }},
		"more than its node has": {0, plan.TooLarge, func(s *State) {
			s.Jobs[0].Nodes = &Nodes{[]bool{true}}
			s.GPUs = append(s.GPUs, GPU{Usable: unit.GiB})
		}},
		"not a multiple":         {1, "", func(s *State) { s.Jobs[0].GPUs = 3 }},
		"more than it has":       {1, "", func(s *State) { s.Jobs[0].Together = 1 << 40 }},
		"less than none":         {1, "", func(s *State) { s.Jobs[0].Together = -4 }},
		"a node below the first": {1, "", func(s *State) { s.GPUs[0].Node = -3 }},
		"nodes with gaps":        {1, "", func(s *State) { s.GPUs[2].Node, s.GPUs[3].Node = 70, 70 }},
		"held natively":          {0, plan.Gang, func(s *State) { s.GPUs[0].Closed, s.GPUs[2].Closed = plan.Native, plan.Native }},
		"held natively, all of one": {0, plan.Gang, func(s *State) {
			s.GPUs[0].Closed, s.GPUs[1].Closed, s.GPUs[2].Closed = plan.Native, plan.Native, plan.Native
		}},
		"all held natively": {0, plan.Native, func(s *State) {
			for g := range s.GPUs {
				s.GPUs[g].Closed = plan.Native
			}
		}},
		"runs where it may not be": {1, "", func(s *State) {
			s.Jobs = append(s.Jobs, Job{ID: 2, GPUs: 2, Together: 2, On: []int{0, 3}, Floor: 0.9, Migratable: true, Nodes: &Nodes{}, Memory: profile.Flat(1)})
			s.GPUs = append(s.GPUs, GPU{Node: 4, Usable: unit.GiB}, GPU{Node: 4, Usable: unit.GiB})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &State{Now: epoch, Jobs: []Job{{ID: 1, GPUs: 2, Together: 2, Floor: 0.9, Memory: profile.Flat(unit.GiB)}}}
			for g := range 4 {
				s.GPUs = append(s.GPUs, GPU{Node: 1 + g/2, Usable: unit.GiB})
			}
			c.change(s)
			d := Plan(s)
			if len(d.Starts) != c.starts || c.starts == 0 && d.Waits[0].Reason.Code != c.code {
				t.Errorf("%+v, want %d to start, or %s", d, c.starts, c.code)
			}
			for _, w := range d.Waits {
				if e, ok := Explain(s, w.Job); !ok || !reflect.DeepEqual(e.Wait, w) || len(e.Refusals) != len(s.GPUs) {
					t.Errorf("%+v of %+v", e, w)
				}
			}
			for g := range s.GPUs {
				Evacuate(s, g)
			}
			Consolidate(s, 10)
		})
	}
}

// TestRefusalsNameNodes: each GPU says what keeps a job off it by its own node selector, a native Pod, or a node that is too small.
func TestRefusalsNameNodes(t *testing.T) {
	job := Job{ID: 1, GPUs: 2, Together: 2, Floor: 0.9, Memory: profile.Flat(unit.GiB), Nodes: &Nodes{[]bool{true, true, true, false}}}
	s := &State{Now: epoch, Jobs: []Job{job}}
	for node, closed := range [][]plan.Code{{""}, {plan.Native, ""}, {plan.Drained, plan.GPUUnhealthy}, {"", ""}} {
		for _, c := range closed {
			s.GPUs = append(s.GPUs, GPU{Node: node, Usable: unit.GiB, Closed: c})
		}
	}
	e, _ := Explain(s, 1)
	slices.SortFunc(e.Refusals, func(a, b Refusal) int { return cmp.Compare(a.GPU, b.GPU) })
	var got []string
	for _, r := range e.Refusals {
		got = append(got, r.Reason.String())
	}
	want := []string{"TooLarge 2 > 1", "Native", "Gang 2 > 1", "Drained", "GPUUnhealthy", "NodeMismatch", "NodeMismatch"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if e.Wait.Reason.String() != "Gang 2 > 1" || e.Wait.GPU != 2 {
		t.Errorf("waits for %+v", e.Wait)
	}
}
