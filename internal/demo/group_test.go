package demo

import (
	"math"
	"slices"
	"testing"
	"time"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/catalogue"
	"weft.dev/weft/internal/emugpu"
	"weft.dev/weft/internal/unit"

	"pgregory.net/rapid"
)

// device is a GPU like those of the demo.
func device() emugpu.GPU {
	g, _ := emugpu.Model("a10")
	g.Total, g.Usable = 16*unit.GiB, 15*unit.GiB
	return g
}

// group is the demo's own, or one like it.
func group(t testing.TB, mix Mix, jobs int, seed uint64) []Job {
	t.Helper()
	g, err := Group(mix, jobs, 7*time.Second, 15*time.Second, device(), seed)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestGroupIsOfTheCatalogue holds every job against the figures that it is said to have.
func TestGroupIsOfTheCatalogue(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		mix := rapid.SampledFrom(Mixes()).Draw(r, "mix")
		jobs := rapid.IntRange(1, 64).Draw(r, "jobs")
		seed := rapid.Uint64().Draw(r, "seed")
		g := group(t, mix, jobs, seed)
		if len(g) != jobs || !slices.Equal(g, group(t, mix, jobs, seed)) {
			r.Fatalf("%d jobs, and another group the second time", len(g))
		}
		names := map[string]bool{}
		for _, j := range g {
			e, ok := measured(&j)
			busy := float64(j.Kernels) * j.Kernel.Seconds() / j.Iteration().Seconds()
			switch {
			case !ok || !mix.within(e.GPUUtil):
				r.Fatalf("%+v is not of the mix", j)
			case math.Abs(busy-e.GPUUtil) > 0.001:
				r.Fatalf("%s: kernels run %v of the time, by the catalogue %v", j.Name, busy, e.GPUUtil)
			case math.Abs(j.Iteration().Seconds()*e.Rate-SlowMotion) > 0.001:
				r.Fatalf("%s: iterations of %v at %v a second", j.Name, j.Iteration(), e.Rate)
			case j.Alone() > 15*time.Second || j.Alone() < 7*time.Second-j.Iteration():
				r.Fatalf("%s takes %v alone", j.Name, j.Alone())
			case j.Kernel < time.Millisecond || j.Kernel > 5*time.Millisecond:
				r.Fatalf("%s: kernels of %v", j.Name, j.Kernel)
			case j.Peak != e.Peak || j.Peak > device().Usable || j.Peak < j.Persistent+j.Context || names[j.Name]:
				r.Fatalf("%+v", j)
			}
			names[j.Name] = true
		}
	})
}

// measured is the entry that a job's figures are of; the catalogue has others of the same names that know memory only.
func measured(j *Job) (catalogue.Entry, bool) {
	all := catalogue.All()
	i := slices.IndexFunc(all, func(e catalogue.Entry) bool {
		return e.Model == j.Model && e.Batch == j.Batch && e.GPU == j.GPU && e.Rate > 0 && e.Peak == j.Peak
	})
	if i < 0 {
		return catalogue.Entry{}, false
	}
	return all[i], true
}

func TestGroupHasThreeClasses(t *testing.T) {
	count := map[box.Class]int{}
	for _, j := range group(t, Typical, 16, 42) {
		count[j.Class]++
		if want := map[box.Class]float64{box.Guaranteed: guaranteedFloor, box.Burstable: burstableFloor, box.BestEffort: besteffortFloor}[j.Class]; j.Floor != want {
			t.Errorf("%s is %v with floor %v, want %v", j.Name, j.Class, j.Floor, want)
		}
	}
	if count[box.Guaranteed] != 4 || count[box.Burstable] != 6 || count[box.BestEffort] != 6 {
		t.Errorf("classes %v", count)
	}
}

func TestGroupRefusesWhatNothingFits(t *testing.T) {
	small := device()
	small.Usable = unit.GiB
	if g, err := Group(Typical, 4, time.Second, 2*time.Second, small, 1); err == nil {
		t.Errorf("drew %v", g)
	}
}
