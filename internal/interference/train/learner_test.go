package train

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
	"weft.dev/weft/internal/interference"
	"weft.dev/weft/internal/interference/model"
)

// cluster makes pairs of jobs whose rate beside each other falls with the partner's utilisation and their own: known
// in full by their features, with noise.
func cluster(models, batches int, noise float64, seed uint64) []Pair {
	random := rand.New(rand.NewPCG(seed, 3))
	type job struct {
		config interference.Config
		alone  model.Job
	}
	var jobs []job
	for m := range models {
		util := 0.2 + 0.7*random.Float64()
		for b := range batches {
			jobs = append(jobs, job{interference.Config{Model: fmt.Sprint("m", m), Batch: fmt.Sprint(8 << b)},
				model.Job{Rate: 10 / float64(b+1), GPUUtil: min(1, util+0.1*float64(b)), MemUtil: random.Float64()}})
		}
	}
	rate := func(self, other model.Job) float64 {
		r := 1 - 0.6*self.GPUUtil*other.GPUUtil + noise*(random.Float64()-0.5)
		return min(max(r, 0.05), 1)
	}
	var pairs []Pair
	for i, a := range jobs {
		for _, b := range jobs[i:] {
			pairs = append(pairs, Pair{Source: "s", GPU: "g", A: a.config, B: b.config, AloneA: a.alone, AloneB: b.alone,
				RateA: rate(a.alone, b.alone), RateB: rate(b.alone, a.alone)})
		}
	}
	return pairs
}

// Each learner beats the mean by far on pairs it has not seen of jobs it has.
func TestEveryLearnerLearns(t *testing.T) {
	d := NewData(cluster(6, 3, 0, 1))
	var fit, test []int
	for i := range d.y {
		if i/2%4 == 0 {
			test = append(test, i)
		} else {
			fit = append(fit, i)
		}
	}
	_, y := d.pick(fit)
	mean := meanOf(y)
	for _, l := range Learners() {
		predict := l.fit(d, fit, 1)
		var off, spread float64
		for _, i := range test {
			m, score := predict(i)
			if !(m > 0 && m <= 1 && score > 0 && score <= 1) {
				t.Fatalf("%s predicts %v, score %v", l.Name, m, score)
			}
			off += math.Abs(m - d.y[i])
			spread += math.Abs(mean - d.y[i])
		}
		if off > spread/2 {
			t.Errorf("%s: error %v, that of the mean %v", l.Name, off, spread)
		}
	}
}

func TestRidgeSolvesALinearProblem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := []float64{rapid.Float64Range(-2, 2).Draw(t, "w0"), rapid.Float64Range(-2, 2).Draw(t, "w1"), rapid.Float64Range(-2, 2).Draw(t, "w2")}
		z, _ := noisy(40, 0, rapid.Uint64().Draw(t, "seed"), steps)
		y := make([]float64, len(z))
		for i := range z {
			z[i] = z[i][:3]
			y[i] = dot(want, z[i])
		}
		for f, w := range ridge(z, y, 1e-9) {
			if math.Abs(w-want[f]) > 1e-5 {
				t.Fatalf("weight %d: %v, want %v", f, w, want[f])
			}
		}
	})
}

func TestNearestFindsTheNearest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		z, _ := noisy(rapid.IntRange(1, 30).Draw(t, "n"), 0, rapid.Uint64().Draw(t, "seed"), steps)
		if len(z) > 3 {
			z[2] = z[0] // a tie: the first comes first
		}
		point := []float64{0.5, 0.5, 0.5, 0.5}
		var all []neighbour
		for k := range z {
			all = append(all, neighbour{distance(point, z[k]), k})
		}
		slices.SortStableFunc(all, func(a, b neighbour) int {
			switch {
			case a.distance < b.distance:
				return -1
			case a.distance > b.distance:
				return 1
			}
			return 0
		})
		if got := nearest(point, z, 8); !slices.Equal(got, all[:min(8, len(all))]) {
			t.Fatalf("%v, want %v", got, all[:min(8, len(all))])
		}
	})
}

// A matrix of rank two beside row and column effects is completed from 60 % of its entries, and a job without any gets
// its partner's effect.
func TestCompletionFillsALowRankMatrix(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 4))
	const n = 16
	var trait [n][5]float64
	for i := range trait {
		for k := range trait[i] {
			trait[i][k] = random.Float64() - 0.5
		}
	}
	rate := func(i, l int) float64 {
		return 0.6 + 0.2*trait[i][0] + 0.2*trait[l][1] + 0.3*trait[i][2]*trait[l][3] + 0.2*trait[i][4]*trait[l][4]
	}
	var pairs []Pair
	for i := range n {
		for l := i; l < n; l++ {
			pairs = append(pairs, Pair{Source: "s", GPU: "g", A: interference.Config{Model: fmt.Sprint(i)},
				B: interference.Config{Model: fmt.Sprint(l)}, RateA: rate(i, l), RateB: rate(l, i)})
		}
	}
	d := NewData(pairs)
	var fit, test []int
	for i := range d.y {
		q := d.query(i)
		switch fresh := q.Self.Model == "0" || q.Partner.Model == "0"; {
		case fresh:
		case random.Float64() < 0.6:
			fit = append(fit, i)
		default:
			test = append(test, i)
		}
	}
	predict := fitCompletion(d, fit, 1)
	_, y := d.pick(fit)
	off, spread := 0.0, 0.0
	for _, i := range test {
		m, _ := predict(i)
		off += math.Abs(m - d.y[i])
		spread += math.Abs(meanOf(y) - d.y[i])
	}
	if off > spread/2 {
		t.Errorf("error %v, that of the mean %v", off, spread)
	}
	for i := range d.y {
		if q := d.query(i); q.Self.Model == "0" {
			if m, _ := predict(i); !(m > 0.3 && m < 0.9) {
				t.Errorf("an unmeasured job is predicted %v", m)
			}
		}
	}
}
