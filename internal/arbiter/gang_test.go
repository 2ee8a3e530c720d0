package arbiter

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weft.dev/weft/internal/unit"
)

// TestGangsProgress: gangs of one process and of several, on random GPUs, with random kernels and gaps: all of one class
// progress, none waits longer than the others need to make up for its lead, and whoever is killed is not missed.
func TestGangsProgress(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		m, r := newMachine(t, 4, Options{}), rand.New(rand.NewPCG(seed, 1))
		var jobs []*process
		for range rapid.IntRange(2, 8).Draw(t, "jobs") {
			gpus := r.Perm(4)[:1+r.IntN(4)]
			sets := [][]int{gpus}
			if r.IntN(2) == 0 {
				sets = nil
				for _, g := range gpus {
					sets = append(sets, []int{g})
				}
			}
			longest := r.Float64() * 1e7
			jobs = append(jobs, m.start(&process{
				class: Burstable, weight: 1 + r.IntN(3), kernel: time.Duration(1e5 + r.Float64()*5e6), kernels: 1 + r.IntN(40),
				gap: func() time.Duration { return time.Duration(r.Float64() * longest) },
			}, sets...))
		}
		m.run(unit.Seconds(1))
		killed := jobs[0]
		killed.stop()
		m.run(unit.Seconds(3))
		most := 300 * time.Millisecond // a round
		for _, j := range jobs {
			most += time.Duration(j.weight) * lead
		}
		for _, j := range jobs[1:] {
			waits := append(j.waits, 0)
			if j.wanted > 0 {
				waits = append(waits, m.now.Sub(j.wanted))
			}
			if longest := slices.Max(waits); longest > most || j.ran == 0 {
				t.Errorf("job %s ran %v and waited up to %v, want at most %v", j.id, j.ran, longest, most)
			}
		}
	})
}

// TestGangBesideSingles: four ranks on two GPUs beside a single job on each get half of both.
func TestGangBesideSingles(t *testing.T) {
	m := newMachine(t, 2, Options{})
	gang := m.start(&process{id: "gang", kernel: time.Millisecond, kernels: 30, gap: every(0)}, []int{0}, []int{1}, []int{0}, []int{1})
	var singles []*process
	for g := range 2 {
		singles = append(singles, m.start(&process{
			id: JobID(fmt.Sprint("single ", g)), kernel: time.Duration(1+2*g) * time.Millisecond, kernels: 25, gap: every(0),
		}, []int{g}))
	}
	m.run(unit.Seconds(30))
	for _, s := range singles {
		share := float64(gang.ran) / float64(gang.ran+s.ran)
		t.Logf("the gang gets %.3f beside %s, busy %.3f", share, s.id, (gang.ran+s.ran).Seconds()/30)
		if math.Abs(share-0.5) > 0.05 {
			t.Errorf("the gang gets %.3f of the GPU of %s, want a half within 10 %%", share, s.id)
		}
	}
	if longest := slices.Max(gang.waits); longest > time.Second {
		t.Errorf("the gang waits %v", longest)
	}
}

// TestGangStarvesNobody: a gang that is held up on a GPU of many leaves the other GPU to its only neighbour, and makes
// no debt there that it would collect later.
func TestGangStarvesNobody(t *testing.T) {
	m := newMachine(t, 2, Options{})
	gang := m.start(&process{kernel: time.Millisecond, kernels: 30, gap: every(0)}, []int{0, 1})
	alone := m.start(&process{kernel: time.Millisecond, kernels: 30, gap: every(0)}, []int{0})
	for range 4 {
		m.start(&process{kernel: time.Millisecond, kernels: 30, gap: every(0)}, []int{1})
	}
	m.run(unit.Seconds(30))
	t.Logf("gang %.3f, neighbour %.3f", gang.ran.Seconds()/30, alone.ran.Seconds()/30)
	if gang.ran < 5*time.Second || alone.ran < 20*time.Second {
		t.Errorf("the gang runs %v and its neighbour %v of 30 s, want about 6 s and 24 s", gang.ran, alone.ran)
	}
}
