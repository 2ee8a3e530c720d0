package ledger

import (
	"math/rand/v2"
	"slices"
	"testing"

	"weft.dev/weft/internal/unit"
)

// script is a job of a random schedule: its terms, and the steps of one iteration, which it repeats.
type script struct {
	terms Terms
	steps []step
}

// step allocates bytes under a handle, or frees it where bytes is 0.
type step struct {
	handle uint64
	bytes  unit.Bytes
}

const (
	iterations = 3
	mib        = unit.MiB
)

// drawScripts makes 2 to 5 jobs with sum b <= M and b + v <= M for each: C1 holds, and each fits alone. If all shall fit
// together, so that all can be open at once, sum b + max v <= M (C1').
func drawScripts(rng *rand.Rand, together bool) []script {
	jobs := make([]script, 2+rng.IntN(4))
	left := testUsable
	for i := range jobs {
		b := unit.Bytes(rng.Int64N(int64(left/mib/unit.Bytes(len(jobs)-i))))*mib + 1
		left -= b
		jobs[i].terms = Terms{Reserved: b, Class: Class(rng.IntN(3)), Cooperates: true}
	}
	for i := range jobs {
		if !together {
			left = testUsable - jobs[i].terms.Reserved
		}
		jobs[i].draw(rng, 1+unit.Bytes(rng.Int64N(int64(left))))
	}
	return jobs
}

// draw makes the steps of an iteration that never uses more than peak at once, and declares what it uses.
func (s *script) draw(rng *rand.Rand, peak unit.Bytes) {
	live := map[uint64]unit.Bytes{}
	var used unit.Bytes
	for h := range uint64(4 + rng.IntN(5)) {
		if size := 1 + unit.Bytes(rng.Int64N(int64(peak))); used+size <= peak {
			s.steps = append(s.steps, step{h, size})
			live[h], used = size, used+size
			s.terms.Peak = max(s.terms.Peak, used)
		} else if first := slices.IndexFunc(s.steps, func(p step) bool { return live[p.handle] > 0 }); first >= 0 {
			freed := s.steps[first].handle
			s.steps = append(s.steps, step{freed, 0})
			used -= live[freed]
			delete(live, freed)
		}
	}
	for h := range uint64(10) {
		if live[h] > 0 {
			s.steps = append(s.steps, step{h, 0})
		}
	}
}

// memory is how the jobs of a schedule come to their memory. alloc answers Granted, Waits or OutOfMemory; after a wait the
// job asks again once it is resumed.
type memory interface {
	open(job int, t Terms) bool
	alloc(job int, p step) Outcome
	free(job int, h uint64)
	yield(job int)
	close(job int)
	resumed() []int // jobs whose wait ended
}

// play runs a schedule, one step of a random job that can run at a time, until all are done or none can run.
func play(rng *rand.Rand, m memory, jobs []script) (end Outcome, refused int) {
	const unopened, runs, waits, done = 0, 1, 2, 3
	state, at := make([]int, len(jobs)), make([]int, len(jobs))
	for {
		for _, j := range m.resumed() {
			state[j] = runs
		}
		var able []int
		for j := range jobs {
			if state[j] == unopened && m.open(j, jobs[j].terms) {
				state[j] = runs
			} else if state[j] == unopened {
				refused++
			}
			if state[j] == runs {
				able = append(able, j)
			}
		}
		if len(able) == 0 {
			if slices.ContainsFunc(state, func(s int) bool { return s != done }) {
				return Waits, refused
			}
			return Granted, refused
		}
		j := able[rng.IntN(len(able))]
		steps := jobs[j].steps
		if p := steps[at[j]%len(steps)]; p.bytes == 0 {
			m.free(j, p.handle)
		} else if got := m.alloc(j, p); got == Waits {
			state[j] = waits
			continue
		} else if got == OutOfMemory {
			return OutOfMemory, refused
		}
		at[j]++
		if at[j]%len(steps) == 0 {
			m.yield(j)
		}
		if at[j] == iterations*len(steps) {
			m.close(j)
			state[j] = done
		}
	}
}

// TestRandomSchedules: 10,000 schedules end without deadlock and without running out of memory under the ledger; the same
// ones overflow without it, and with a plain queue in its place jobs wait for each other for ever.
func TestRandomSchedules(t *testing.T) {
	const schedules = 10_000
	for _, c := range []struct {
		rule     string
		together bool
	}{{"C1'", true}, {"C1 and each fits alone", false}} {
		var overflows, deadlocks, late int
		for seed := range uint64(schedules) {
			jobs := drawScripts(rand.New(rand.NewPCG(seed, 1)), c.together)
			order := func() *rand.Rand { return rand.New(rand.NewPCG(seed, 2)) }
			end, refused := play(order(), &managed{t: t, l: New(testUsable, 0)}, jobs)
			if end != Granted {
				t.Fatalf("%s, schedule %d under the ledger: %v", c.rule, seed, end)
			}
			if refused > 0 {
				late++
			}
			if end, _ := play(order(), newUnmanaged(false), jobs); end == OutOfMemory {
				overflows++
			}
			if end, _ := play(order(), newUnmanaged(true), jobs); end == Waits {
				deadlocks++
			}
		}
		t.Logf("%d schedules with %s: ledger 0 out of memory, 0 deadlocks (in %d a job was opened late); without %d out of memory; plain queue %d deadlocks",
			schedules, c.rule, late, overflows, deadlocks)
		if overflows < schedules/10 || deadlocks < schedules/100 {
			t.Error("these schedules prove little")
		}
	}
}
