package train

import (
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// noisy draws n points of [0,1]^4 with y = f(x) and uniform noise.
func noisy(n int, noise float64, seed uint64, f func(x []float64) float64) (x [][]float64, y []float64) {
	random := rand.New(rand.NewPCG(seed, 9))
	for range n {
		v := []float64{random.Float64(), random.Float64(), random.Float64(), random.Float64()}
		x, y = append(x, v), append(y, f(v)+noise*(random.Float64()-0.5))
	}
	return x, y
}

func steps(v []float64) float64 {
	switch {
	case v[0] > 0.5 && v[1] > 0.3:
		return 0.9
	case v[0] > 0.5:
		return 0.6
	}
	return 0.1 + 0.2*v[2]
}

func maeOf(predict func([]float64) float64, x [][]float64, y []float64) float64 {
	sum := 0.0
	for i := range x {
		sum += math.Abs(predict(x[i]) - y[i])
	}
	return sum / float64(len(x))
}

func TestBoostLearnsAKnownFunction(t *testing.T) {
	x, y := noisy(1500, 0, 1, steps)
	e := Boost(x, y, BoostOptions{Trees: 200, Depth: 4, Rate: 0.1, MinLeaf: 3, Rows: 1, Columns: 1, Seed: 1})
	if mae := maeOf(e.Predict, x, y); mae > 0.005 {
		t.Errorf("error on what it was fitted to: %v", mae)
	}
	x, y = noisy(500, 0, 2, steps)
	if mae := maeOf(e.Predict, x, y); mae > 0.01 {
		t.Errorf("error on new points: %v", mae)
	}
}

func TestBoostIsTheSameForTheSameSeed(t *testing.T) {
	x, y := noisy(300, 0.1, 1, steps)
	o := BoostOptions{Trees: 20, Depth: 4, Rate: 0.1, MinLeaf: 3, Rows: 0.6, Columns: 0.5, Seed: 5}
	one, two := Boost(x, y, o), Boost(x, y, o)
	if !reflect.DeepEqual(one, two) {
		t.Error("two fits of one seed differ")
	}
	o.Seed = 6
	if reflect.DeepEqual(one, Boost(x, y, o)) {
		t.Error("fits of two seeds are the same")
	}
}

// Where a value is missing tells of the target: half of the points lack feature 0, and theirs is 1.
func TestBoostLearnsFromWhatIsMissing(t *testing.T) {
	x, y := noisy(400, 0, 1, func(v []float64) float64 { return v[0] / 2 })
	for i := range x {
		if i%2 == 0 {
			x[i][0], y[i] = math.NaN(), 1
		}
	}
	e := Boost(x, y, BoostOptions{Trees: 100, Depth: 3, Rate: 0.2, MinLeaf: 3, Rows: 1, Columns: 1, Seed: 1})
	if mae := maeOf(e.Predict, x, y); mae > 0.01 {
		t.Errorf("error %v", mae)
	}
}

// A value missing only in prediction follows the many.
func TestBoostSendsUnforeseenMissingWithTheMany(t *testing.T) {
	x, y := noisy(400, 0, 1, func(v []float64) float64 {
		if v[0] < 0.8 {
			return 0
		}
		return 1
	})
	e := Boost(x, y, BoostOptions{Trees: 1, Depth: 1, Rate: 1, MinLeaf: 3, Rows: 1, Columns: 1, Seed: 1})
	if v := e.Predict([]float64{math.NaN(), 0.5, 0.5, 0.5}); math.Abs(v) > 0.01 {
		t.Errorf("a missing value predicts %v, most are 0", v)
	}
}

func TestQuantileBoostHoldsItsShare(t *testing.T) {
	f := func(v []float64) float64 { return v[0] }
	x, y := noisy(2000, 0.4, 1, f)
	e := Boost(x, y, BoostOptions{Trees: 100, Depth: 3, Rate: 0.1, MinLeaf: 20, Rows: 0.7, Columns: 1, Quantile: 0.1, Seed: 1})
	x, y = noisy(2000, 0.4, 2, f)
	below := 0
	for i := range x {
		if y[i] < e.Predict(x[i]) {
			below++
		}
	}
	if share := float64(below) / float64(len(x)); share < 0.06 || share > 0.15 {
		t.Errorf("%v of new points are below the 10 %% quantile", share)
	}
	if mae := maeOf(e.Predict, x, y); mae > 0.25 { // the quantile is 0.16 below the mean
		t.Errorf("the quantile strays: %v", mae)
	}
}

// With a constraint the prediction never falls as the feature rises, whatever the data say.
func TestMonotoneConstraintHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		x, y := noisy(150, 0.5, seed, func(v []float64) float64 { return math.Sin(6*v[0]) * v[1] })
		e := Boost(x, y, BoostOptions{Trees: 15, Depth: 4, Rate: 0.3, MinLeaf: 2, Rows: 0.8, Columns: 0.8, Monotone: []int{1, -1}, Seed: seed})
		at := []float64{rapid.Float64Range(0, 1).Draw(t, "a"), rapid.Float64Range(0, 1).Draw(t, "b"), 0.5, 0.5}
		for f, sign := range []float64{1, -1} {
			more := append([]float64(nil), at...)
			more[f] += rapid.Float64Range(0, 1).Draw(t, "more")
			if sign*(e.Predict(more)-e.Predict(at)) < -2e-5*15 { // values are rounded to 1e-5
				t.Fatalf("feature %d from %v to %v: %v to %v", f, at[f], more[f], e.Predict(at), e.Predict(more))
			}
		}
	})
}

func TestBoostOfNothingAndOfAConstant(t *testing.T) {
	o := BoostOptions{Trees: 3, Depth: 3, Rate: 0.1, MinLeaf: 1, Rows: 1, Columns: 1}
	if e := Boost(nil, nil, o); e.Predict([]float64{1}) != 0 {
		t.Error("no data predicts something")
	}
	e := Boost([][]float64{{1}, {1}, {math.NaN()}}, []float64{0.4, 0.4, 0.4}, o)
	if v := e.Predict([]float64{7}); math.Abs(v-0.4) > 1e-9 {
		t.Errorf("a constant of 0.4 predicts %v", v)
	}
}

func TestQuantileIsTheSmallestThatHoldsTheShare(t *testing.T) {
	for _, x := range []struct{ q, want float64 }{{0, 1}, {0.2, 1}, {0.21, 2}, {0.5, 3}, {0.9, 5}, {1, 5}} {
		if got := Quantile([]float64{5, 3, 1, 4, 2}, x.q); got != x.want {
			t.Errorf("%v: %v, want %v", x.q, got, x.want)
		}
	}
}
