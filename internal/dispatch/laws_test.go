package dispatch

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/interference"
	"weft.dev/weft/internal/placement"
	"weft.dev/weft/internal/plan"
	"weft.dev/weft/internal/profile"
	"weft.dev/weft/internal/unit"
)

// TestDecisionsHoldTheRules: whatever starts may be where it starts, by an independent judge; gangs are whole; every waiting
// job either starts or has a reason; quotas hold.
func TestDecisionsHoldTheRules(t *testing.T) {
	checkStates(t, func(t *rapid.T, s *State, r dice) {
		for _, user := range []string{"ana", "ben"} {
			s.Users[user] = User{MaxGPUs: r.up(0, 5), MaxRunning: r.up(0, 5), Used: 1e6 * r.Float64()}
		}
		running := usage(s)
		d := Plan(s)
		seen := map[box.ID]int{}
		for _, start := range d.Starts {
			j := s.find(start.Job)
			seen[start.Job]++
			if len(j.On) > 0 || j.Waits != "" || len(start.GPUs) != j.GPUs || len(unique(start.GPUs)) != j.GPUs {
				t.Fatalf("job %d of %d GPUs, which waits for %q, starts on %v", j.ID, j.GPUs, j.Waits, start.GPUs)
			}
			j.On = start.GPUs
			if !together(s, j, j.On) {
				t.Fatalf("job %d, of which %d are together, starts on %v of nodes %v", j.ID, j.Together, j.On, s.GPUs)
			}
			for _, g := range j.On {
				if !mayShare(s, g, s.there(g)) {
					t.Fatalf("job %d starts on GPU %d against the rules", j.ID, g)
				}
			}
			u, has := s.Users[j.User], running[j.User]
			has[0], has[1] = has[0]+1, has[1]+j.GPUs
			running[j.User] = has
			if u.MaxRunning > 0 && has[0] > u.MaxRunning || u.MaxGPUs > 0 && has[1] > u.MaxGPUs {
				t.Fatalf("user %s gets %d jobs on %d GPUs, allowed %+v", j.User, has[0], has[1], u)
			}
		}
		for i, w := range d.Waits {
			seen[w.Job]++
			if !w.Reason.Refused() || d.Order[i] != w.Job || w.GPU < -1 || w.GPU >= len(s.GPUs) || w.Reason.Code == plan.Priority && w.After == 0 {
				t.Fatalf("job %d (%d in order) waits for %+v", w.Job, d.Order[i], w)
			}
		}
		for i := range s.Jobs {
			if want := b2i(len(s.Jobs[i].On) == 0 || seen[s.Jobs[i].ID] > 0); seen[s.Jobs[i].ID] != want {
				t.Fatalf("job %d is told of %d times", s.Jobs[i].ID, seen[s.Jobs[i].ID])
			}
		}
	})
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// usage is the jobs and GPUs of each user.
func usage(s *State) map[string][2]int {
	has := map[string][2]int{}
	for i := range s.Jobs {
		if j := &s.Jobs[i]; len(j.On) > 0 {
			u := has[j.User]
			has[j.User] = [2]int{u[0] + 1, u[1] + len(j.On)}
		}
	}
	return has
}

func unique(list []int) []int { return slices.Compact(slices.Sorted(slices.Values(list))) }

// TestOrderOfInputIsIrrelevant: a shuffled list of jobs gives the same decision, and so does the same state again.
func TestOrderOfInputIsIrrelevant(t *testing.T) {
	checkStates(t, func(t *rapid.T, s *State, r dice) {
		d := Plan(s)
		shuffled := s.clone()
		r.Shuffle(len(s.Jobs), func(i, l int) { shuffled.Jobs[i], shuffled.Jobs[l] = shuffled.Jobs[l], shuffled.Jobs[i] })
		if again := Plan(shuffled); !reflect.DeepEqual(d, again) {
			t.Fatalf("%+v\nshuffled %+v", d, again)
		}
		for _, w := range d.Waits {
			a, _ := Explain(s, w.Job)
			if b, _ := Explain(shuffled, w.Job); !reflect.DeepEqual(a, b) {
				t.Fatalf("%+v\nshuffled %+v", a, b)
			}
		}
	})
}

// TestNobodyIsInTheWay is the law of passing, by its definition: whoever starts while others wait before it for room is on
// GPUs where every set of residents and of those others, with one of these at least, that may share the GPU may share it
// with the new one too; or it has ended when the first of them starts at the latest. The others are those that are higher, and
// those that keep the GPU; every one that waits keeps as many as it asks for, while some are kept by few.
func TestNobodyIsInTheWay(t *testing.T) {
	passed := 0
	checkStates(t, func(t *rapid.T, s *State, _ dice) {
		p := newPlanner(s)
		order := pickOrder(s)
		p.run()
		d := p.decision()
		var before []*Job
		for _, id := range order {
			if at := slices.IndexFunc(d.Starts, func(x Start) bool { return x.Job == id }); at >= 0 {
				start := d.Starts[at]
				j := s.find(id)
				if end, ok := p.end(p.number[id]); len(before) > 0 {
					passed++
					if promise := d.Promised[before[0].ID]; s.Options.Strict || !ok || promise.IsZero() || end.After(promise) {
						inTheWay(t, p, j, start.GPUs, before)
					}
				}
				j.On = start.GPUs
				continue
			}
			w := d.Waits[slices.Index(d.Order, id)]
			if w.Reason.Code != plan.Quota {
				before = append(before, s.find(id))
				if kept := p.claims[p.number[id]]; len(kept) != s.find(id).GPUs && len(before) == 1 {
					t.Fatalf("job %d is first in line and keeps %v", id, kept)
				}
			}
		}
	})
	t.Logf("%d passed others", passed)
	if passed == 0 {
		t.Error("nobody ever passed another: the law was not tried")
	}
}

// pickOrder is the queue without those that nothing on the machine can start.
func pickOrder(s *State) []box.ID {
	p := newPlanner(s)
	var order []box.ID
	for job, _ := p.q.next(); job >= 0; job, _ = p.q.next() {
		p.q.pick(job)
		order = append(order, p.jobs[job].ID)
	}
	return order
}

func inTheWay(t *rapid.T, p *planner, joining *Job, gpus []int, ahead []*Job) {
	t.Helper()
	s := p.s
	for _, g := range gpus {
		var before []*Job
		for _, j := range ahead {
			higher := j.Priority+age(j, s.Now) > joining.Priority+age(joining, s.Now)
			if s.Options.Strict || higher || slices.Contains(p.claims[p.number[j.ID]], cluster.GPU(g)) {
				before = append(before, j)
			}
		}
		all := append(slices.Clone(before), s.there(g)...)
		for set := 1; set < 1<<len(all); set++ {
			var jobs []*Job
			ahead := false
			for i, j := range all {
				if set>>i&1 == 1 {
					jobs = append(jobs, j)
					ahead = ahead || i < len(before)
				}
			}
			if ahead && mayShare(s, g, jobs) && !mayShare(s, g, append(jobs, joining)) {
				t.Fatalf("job %d on GPU %d is in the way of one of %v", joining.ID, g, idsOf(jobs))
			}
		}
	}
}

func idsOf(jobs []*Job) []box.ID {
	var list []box.ID
	for _, j := range jobs {
		list = append(list, j.ID)
	}
	return list
}

// TestTheFirstStartsAsIfNobodyPassed replays the machine twice from an instant at which a job waits first in line: once
// with jobs passing it, once without. Under strict rules it starts at the end of the same job; else not later than it was
// promised.
func TestTheFirstStartsAsIfNobodyPassed(t *testing.T) {
	waited, promised := 0, 0
	checkStates(t, func(t *rapid.T, s *State, r dice) {
		equals := r.one(2)
		for i := range s.Jobs {
			if s.Jobs[i].Submitted = s.Now; equals { // no age within the replay, and no change of order
				s.Jobs[i].User, s.Jobs[i].Priority = "ana", 0
			}
		}
		d := Plan(s)
		at := slices.IndexFunc(d.Waits, func(w Wait) bool { return w.Reason.Code != plan.Quota })
		if at < 0 || !inQueue(s, d.Waits[at].Job) {
			return
		}
		first := d.Waits[at].Job
		if s.find(first).Submitted = s.Now.Add(-time.Second); !equals {
			s.find(first).Priority = 1000
		}
		ends := map[box.ID]time.Duration{}
		for i := range s.Jobs {
			j := &s.Jobs[i]
			ends[j.ID] = time.Duration(r.up(1, 60)) * time.Minute
			if end, ok := newPlanner(s).end(newPlanner(s).number[j.ID]); ok {
				ends[j.ID] = min(ends[j.ID], end.Sub(s.Now))
			}
		}
		promise := Plan(s).Promised[first]
		with, without := replay(s, first, ends, true), replay(s, first, ends, false)
		waited++
		if s.Options.Strict && with != without {
			t.Fatalf("job %d starts after %v, without anybody passing after %v", first, with, without)
		}
		if !promise.IsZero() {
			promised++
			if with < 0 || s.Now.Add(with).After(promise) {
				t.Fatalf("job %d starts after %v, promised %v", first, with, promise.Sub(s.Now))
			}
		}
	})
	t.Logf("%d waited first in line, %d of them with a promise", waited, promised)
	if waited == 0 || promised == 0 {
		t.Errorf("%d waited, %d of them with a promise", waited, promised)
	}
}

func inQueue(s *State, id box.ID) bool { return slices.Contains(pickOrder(s), id) }

// replay runs a machine until a job starts, and says after how long; -1 for never. Jobs end a time after they start.
func replay(s *State, first box.ID, runs map[box.ID]time.Duration, passing bool) time.Duration {
	s = s.clone()
	began := s.Now
	ends := map[box.ID]time.Time{}
	for i := range s.Jobs {
		if len(s.Jobs[i].On) > 0 {
			ends[s.Jobs[i].ID] = s.Now.Add(runs[s.Jobs[i].ID])
		}
	}
	for {
		d := Plan(s)
		for _, start := range d.Starts {
			if start.Job == first {
				return s.Now.Sub(began)
			}
		}
		if passing {
			apply(s, d, s.Now)
			for _, start := range d.Starts {
				ends[start.Job] = s.Now.Add(runs[start.Job])
			}
		}
		next, at := box.ID(0), time.Time{}
		for id, end := range ends {
			if next == 0 || end.Before(at) || end.Equal(at) && id < next {
				next, at = id, end
			}
		}
		if next == 0 {
			return -1
		}
		delete(ends, next)
		for i := range s.Jobs {
			if len(s.Jobs[i].On) > 0 {
				s.Jobs[i].Ran += at.Sub(s.Now)
			}
		}
		s.Now = at
		s.Jobs = slices.DeleteFunc(s.Jobs, func(j Job) bool { return j.ID == next })
	}
}

// TestExplanationsAreTrue: a job starts with the peak or the floor that it was told of, and fits when the jobs that it was
// told of have ended; a GPU that would take it is not said to refuse it, and the other way round.
func TestExplanationsAreTrue(t *testing.T) {
	told := map[string]int{}
	checkStates(t, func(t *rapid.T, s *State, _ dice) {
		d := Plan(s)
		for ; len(d.Starts) > 0; d = Plan(s) { // with new residents that end in time, more may pass
			apply(s, d, s.Now)
		}
		for _, w := range d.Waits {
			e, ok := Explain(s, w.Job)
			if !ok || !reflect.DeepEqual(e.Wait, w) || len(e.Refusals) != len(s.GPUs) {
				t.Fatalf("job %d: %t, %+v, planned %+v", w.Job, ok, e, w)
			}
			j := s.find(w.Job)
			refused := map[plan.Code]int{}
			for _, r := range e.Refusals {
				if r.Reason.Refused() && r.Reason.Code != plan.Priority {
					refused[r.Reason.Code]++
				}
			}
			for code, n := range w.Refused { // of a job that cannot start whoever is there, those that are closed to it
				if refused[code] != n {
					t.Fatalf("job %d: GPUs refuse it %v, said is %v", j.ID, refused, w.Refused)
				}
			}
			if code := w.Reason.Code; w.GPU >= 0 && code != plan.Gang && w.Refused[code] == 0 {
				t.Fatalf("job %d waits for %s, GPUs refuse it %v", j.ID, code, w.Refused)
			}
			for _, r := range e.Refusals {
				taken := !r.Reason.Refused() || r.Reason.Code == plan.Priority
				if fits := mayShare(s, r.GPU, append(s.there(r.GPU), j)); taken != fits {
					t.Fatalf("job %d on GPU %d: %+v, by the rules %t", j.ID, r.GPU, r, fits)
				}
			}
			if e.Peak > 0 {
				told["peak"]++
				c := s.clone()
				c.find(j.ID).Memory = placement.WithPeak(memoryOf(j), e.Peak)
				started(t, c, j.ID)
			}
			if e.Floor > 0 {
				told["floor"]++
				c := s.clone()
				c.find(j.ID).Floor = e.Floor
				started(t, c, j.ID)
			}
			if len(e.Ends) > 0 {
				told["ends"]++
				c := s.clone()
				c.Jobs = slices.DeleteFunc(c.Jobs, func(x Job) bool { return slices.Contains(e.Ends, x.ID) || len(x.On) == 0 && x.ID != j.ID })
				c.Users = nil
				started(t, c, j.ID)
			}
		}
	})
	t.Logf("told of peaks, floors, ends: %v", told)
	if told["ends"] == 0 {
		t.Error("nobody was ever told whose end makes room")
	}
}

func started(t *rapid.T, s *State, id box.ID) {
	t.Helper()
	if !slices.ContainsFunc(Plan(s).Starts, func(x Start) bool { return x.Job == id }) {
		t.Fatalf("job %d does not start", id)
	}
}

// TestSharesConverge: users who always have jobs waiting get GPU time by their weights, whatever the length of their jobs;
// one who wants less gets that, and the others share the rest.
func TestSharesConverge(t *testing.T) {
	weights := map[string]float64{"ana": 1, "ben": 2, "carl": 5}
	lengths := map[string]time.Duration{"ana": 95 * time.Minute, "ben": 25 * time.Minute, "carl": 7 * time.Minute}
	s := &State{Now: epoch, Users: map[string]User{}, GPUs: make([]GPU, 8)}
	for g := range s.GPUs {
		s.GPUs[g].Usable = 16
	}
	had, id := map[string]float64{}, box.ID(0)
	const step, days = time.Minute, 10
	for minute := range days * 24 * 60 {
		for user, weight := range weights {
			gpus := usage(s)[user][1]
			s.Users[user] = User{Weight: weight, Used: Grow(s.Users[user].Used, gpus, step)}
			if minute > 24*60 {
				had[user] += float64(gpus)
			}
		}
		s.Now = s.Now.Add(step)
		s.Jobs = slices.DeleteFunc(s.Jobs, func(j Job) bool { return len(j.On) > 0 && s.Now.Sub(j.Started) >= lengths[j.User] })
		for _, user := range []string{"carl", "ben", "ana"} {
			for range 12 - countOf(s, user) {
				id++
				s.Jobs = append(s.Jobs, Job{ID: id, User: user, Floor: 0.9, GPUs: 1, Submitted: s.Now, Memory: profile.Flat(1)})
			}
		}
		apply(s, Plan(s), s.Now)
	}
	total := had["ana"] + had["ben"] + had["carl"]
	for user, weight := range weights {
		if got := had[user] / total; got < weight/8-0.01 || got > weight/8+0.01 {
			t.Errorf("%s has %.3f of the GPUs, its weight is %.3f", user, got, weight/8)
		}
	}
	if total < 0.99*8*60*24*(days-1) {
		t.Errorf("GPUs idle: %.0f of %d GPU minutes", total, 8*60*24*(days-1))
	}
}

func countOf(s *State, user string) int {
	n := 0
	for i := range s.Jobs {
		if s.Jobs[i].User == user {
			n++
		}
	}
	return n
}

// TestGrow: steps of any length come to the same, and a steady use to that times the mean age.
func TestGrow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		used, gpus := rapid.Float64Range(0, 1e6).Draw(t, "used"), rapid.IntRange(0, 16).Draw(t, "GPUs")
		whole := time.Duration(rapid.Int64Range(0, int64(100*time.Hour)).Draw(t, "time"))
		part := time.Duration(rapid.Int64Range(0, int64(whole)).Draw(t, "part"))
		a, b := Grow(used, gpus, whole), Grow(Grow(used, gpus, part), gpus, whole-part)
		if d := a - b; d > 1e-3 || d < -1e-3 || a < 0 {
			t.Fatalf("%g at once, %g in two steps", a, b)
		}
	})
	if got := Grow(0, 1, time.Second); got < 0.999 || got > 1 {
		t.Errorf("a GPU for a second is %g GPU-seconds", got)
	}
}

// TestRepairsRelieve: who is moved may move, goes where the rules allow it with the pair apart, and leaves fewer below.
func TestRepairsRelieve(t *testing.T) {
	done := map[string]int{}
	checkStates(t, func(t *rapid.T, s *State, dice dice) {
		apply(s, Plan(s), s.Now)
		for i := range s.Jobs {
			s.Jobs[i].Migratable = !dice.one(4)
		}
		worse := dice.Float64() / 2
		mean := func(i, l box.ID) float64 {
			return worse + float64(len(s.find(i).Config.Model)+int(s.find(l).Config.Model[1]))/200
		}
		gpu := 0 // the one with most residents
		for g := range s.GPUs {
			if len(s.there(g)) > len(s.there(gpu)) {
				gpu = g
			}
		}
		before := belowOn(s, gpu, mean)
		r, ok := Repair(s, mean, gpu)
		if ok != (len(before) > 0) || !slices.Equal(r.Below, before) {
			t.Fatalf("below %v, repair says %v", before, r.Below)
		}
		if !ok || r.Move.Job == 0 {
			return
		}
		j := s.find(r.Move.Job)
		if !j.Migratable || j.NoMove || j.Stopping || !slices.Equal(r.Move.From, j.On) || r.Move.To == nil && j.Class != cluster.BestEffort {
			t.Fatalf("moves %+v of %+v", r.Move, j)
		}
		j.On = r.Move.To
		done[fmt.Sprint(r.Move.To == nil)]++
		s.Bans = append(s.Bans, Ban{s.find(r.Apart[0]).Config, s.find(r.Apart[1]).Config, s.Now.Add(time.Hour)})
		alone := j.Together <= 1
		for i, g := range r.Move.To {
			if g == gpu || !together(s, j, r.Move.To) || g != r.Move.From[i] && (alone && r.Move.From[i] != gpu || !mayShare(s, g, s.there(g))) {
				t.Fatalf("job %d moves %v -> %v", j.ID, r.Move.From, r.Move.To)
			}
		}
		if after := belowOn(s, gpu, mean); len(after) >= len(before) {
			t.Fatalf("below %v before, %v after", before, after)
		}
	})
	t.Logf("to the queue or not: %v", done)
	if done["false"] == 0 {
		t.Error("nobody ever moved")
	}
}

func belowOn(s *State, gpu int, mean func(i, l box.ID) float64) []box.ID {
	var below []box.ID
	for _, j := range s.there(gpu) {
		slowdown := 1.0
		for _, other := range s.there(gpu) {
			if other != j && !other.Stopping {
				slowdown += mean(j.ID, other.ID)
			}
		}
		if !j.Stopping && 1/slowdown < j.Floor-floorTolerance {
			below = append(below, j.ID)
		}
	}
	return below
}

// TestMovesEmptyGPUs: consolidation moves only who may move, to where the rules allow it, within the budget, and empties a
// GPU; evacuation leaves only who may not move.
func TestMovesEmptyGPUs(t *testing.T) {
	emptied := 0
	checkStates(t, func(t *rapid.T, s *State, dice dice) {
		apply(s, Plan(s), s.Now)
		for i := range s.Jobs {
			j := &s.Jobs[i]
			j.Started, j.Ran, j.Pause, j.Rate = s.Now.Add(-time.Hour), time.Hour, time.Second, 1.01
		}
		c, budget := s.clone(), dice.up(0, 5)
		moves := Consolidate(c, budget)
		if len(moves) > budget {
			t.Fatalf("%d moves, allowed %d", len(moves), budget)
		}
		used := inUse(c)
		carryOut(t, c, moves)
		if len(moves) > 0 {
			emptied++
			if inUse(c) != used-1 {
				t.Fatalf("%d GPUs in use before, %d after", used, inUse(c))
			}
		}
		gpu := dice.IntN(len(s.GPUs))
		s.GPUs[gpu].Closed = plan.Drained
		carryOut(t, s, Evacuate(s, gpu))
		for _, j := range s.there(gpu) {
			if movable(j) {
				t.Fatalf("job %d is still there", j.ID)
			}
		}
	})
	t.Logf("%d GPUs emptied", emptied)
	if emptied == 0 {
		t.Error("no GPU was ever emptied")
	}
}

func inUse(s *State) int {
	n := 0
	for g := range s.GPUs {
		n += b2i(len(s.there(g)) > 0)
	}
	return n
}

// carryOut moves jobs at once and judges where they are then.
func carryOut(t *rapid.T, s *State, moves []Move) {
	t.Helper()
	for _, m := range moves {
		j := s.find(m.Job)
		if !movable(j) || !slices.Equal(j.On, m.From) || m.To != nil && len(unique(m.To)) != len(m.From) || !together(s, j, m.To) {
			t.Fatalf("%+v of %+v", m, j)
		}
		j.On = m.To
	}
	for _, m := range moves {
		for i, g := range m.To {
			if g != m.From[i] && (!fits(s, g, s.there(g)) || !onNode(s, s.GPUs[g].Node, s.find(m.Job))) {
				t.Fatalf("job %d moves to GPU %d against the rules", m.Job, g)
			}
		}
	}
}

// TestOddStates: what should not be does not bring the planner down, and starts nothing where it cannot run.
func TestOddStates(t *testing.T) {
	nan := math.NaN()
	odd := func(change func(s *State)) *State {
		s := &State{Now: epoch, GPUs: make([]GPU, 2), Users: map[string]User{"ana": {Weight: nan, Used: nan}}, Table: interference.NewTable()}
		s.Table.Add(configOf(0), configOf(0), 0.9, 0.9)
		for g := range s.GPUs {
			s.GPUs[g].Usable = 16 * unit.GiB
		}
		for id := range box.ID(3) {
			s.Jobs = append(s.Jobs, Job{ID: id + 1, User: "ana", GPUs: 1, Floor: 0.5, Config: configOf(0), Memory: profile.Flat(unit.GiB), Migratable: true})
		}
		s.Jobs[0].On = []int{0}
		change(s)
		return s
	}
	for name, c := range map[string]struct {
		starts int
		s      *State
	}{
		"no GPU":             {0, odd(func(s *State) { s.GPUs = nil })},
		"no table":           {1, odd(func(s *State) { s.Table = nil })},
		"no job":             {0, odd(func(s *State) { s.Jobs = nil })},
		"a lost GPU":         {2, odd(func(s *State) { s.Jobs[0].On = []int{7, -1} })},
		"twice on a GPU":     {2, odd(func(s *State) { s.Jobs[0].On = []int{0, 0} })},
		"a gang of none":     {2, odd(func(s *State) { s.Jobs[1].GPUs = 0 })},
		"a negative gang":    {2, odd(func(s *State) { s.Jobs[1].GPUs = -3 })},
		"a gang of millions": {1, odd(func(s *State) { s.Jobs[1].GPUs = 1 << 20 })},
		"no number as floor": {0, odd(func(s *State) { s.Jobs[1].Floor = nan; s.Jobs[2].On = []int{1} })},
		"nothing usable":     {0, odd(func(s *State) { s.GPUs[0].Usable, s.GPUs[1].Usable = 0, 0 })},
		"foreign everywhere": {0, odd(func(s *State) { s.GPUs[0].Foreign, s.GPUs[1].Foreign = math.MaxInt64, math.MaxInt64 })},
		"too many residents": {2, odd(func(s *State) { s.Options.MaxResidents = 1000 })},
		"the clock steps":    {2, odd(func(s *State) { s.Jobs[1].Submitted = epoch.Add(100 * 365 * 24 * time.Hour) })},
		"the beginning":      {2, odd(func(s *State) { s.Now = time.Time{} })},
		"a limit long over":  {2, odd(func(s *State) { s.Jobs[0].MaxTime, s.Jobs[0].Ran = 1, math.MaxInt64 })},
	} {
		t.Run(name, func(t *testing.T) {
			d := Plan(c.s)
			if len(d.Starts) != c.starts {
				t.Errorf("%d start, want %d: %+v", len(d.Starts), c.starts, d)
			}
			for id := range box.ID(5) {
				Explain(c.s, id)
			}
			for g := range 3 {
				Repair(c.s, func(_, _ box.ID) float64 { return nan }, g-1)
				Evacuate(c.s, g-1)
			}
			Consolidate(c.s, 3)
		})
	}
}
