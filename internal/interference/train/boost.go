package train

import (
	"math"
	"math/rand/v2"
	"slices"

	"weft.dev/weft/internal/interference/model"
)

// BoostOptions shape a boosted ensemble.
type BoostOptions struct {
	Trees    int
	Depth    int     // most splits on a path
	Rate     float64 // shrinkage of each tree, in (0, 1]
	MinLeaf  int     // fewest samples in a leaf
	Ridge    float64 // added to the count of a leaf: shrinks small leaves to 0
	Rows     float64 // share of the samples that a tree sees, in (0, 1]
	Columns  float64 // share of the features that a tree sees, in (0, 1]
	Quantile float64 // 0 fits the mean by squared loss, otherwise this quantile by pinball loss
	Monotone []int   // per feature: -1 the prediction never rises with it, 1 it never falls, 0 free
	Seed     uint64
}

// maxBins is how many value ranges a feature is cut into: with a few thousand samples more would hold a handful each.
const maxBins = 64

// binned is a matrix of bin numbers, by feature. Bin 0 holds missing values; bin b > 0 holds values up to edges[b-1].
type binned struct {
	bins  [][]uint8
	edges [][]float64
}

// bin cuts every feature at its quantiles.
func bin(x [][]float64) *binned {
	b := &binned{}
	for f := range x[0] {
		edges := edgesOf(x, f)
		column := make([]uint8, len(x))
		for i := range x {
			if v := x[i][f]; !math.IsNaN(v) {
				at, _ := slices.BinarySearch(edges, v)
				column[i] = uint8(min(at, len(edges)-1) + 1)
			}
		}
		b.bins, b.edges = append(b.bins, column), append(b.edges, edges)
	}
	return b
}

// edgesOf are ascending upper limits of at most maxBins ranges of a feature: midway between neighbouring values, the
// last one above all (JSON has no infinity).
func edgesOf(x [][]float64, f int) []float64 {
	var values []float64
	for i := range x {
		if v := x[i][f]; !math.IsNaN(v) {
			values = append(values, v)
		}
	}
	slices.Sort(values)
	values = slices.Compact(values)
	var edges []float64
	step := max(1, float64(len(values))/maxBins)
	for at := step; int(at) < len(values); at += step {
		i := int(at)
		edges = append(edges, round(values[i-1]+(values[i]-values[i-1])/2))
	}
	return append(slices.Compact(edges), math.MaxFloat32)
}

// Boost fits an ensemble to targets y of feature vectors x (missing values are NaN): histogram gradient boosting
// (Friedman 2001; the histograms as in LightGBM, Ke et al. 2017). With the pinball loss each leaf holds the
// quantile of its residuals. Monotone constraints bound the children of a split by its midpoint (XGBoost). The same
// input and seed give the same ensemble. O(trees * depth * samples * features).
func Boost(x [][]float64, y []float64, o BoostOptions) model.Ensemble {
	if len(y) == 0 {
		return model.Ensemble{}
	}
	g := &grower{o: o, binned: bin(x), random: rand.New(rand.NewPCG(o.Seed, 0x9e3779b97f4a7c15))}
	e := model.Ensemble{Base: startOf(y, o.Quantile)}
	g.residual = make([]float64, len(y))
	g.gradient = make([]float64, len(y))
	for i := range y {
		g.residual[i] = y[i] - e.Base
	}
	for range o.Trees {
		t := g.grow()
		for i := range x {
			g.residual[i] -= t.Predict(x[i])
		}
		e.Trees = append(e.Trees, t)
	}
	return e
}

func startOf(y []float64, quantile float64) float64 {
	if quantile > 0 {
		return Quantile(slices.Clone(y), quantile)
	}
	return meanOf(y)
}

func meanOf(y []float64) float64 {
	if len(y) == 0 {
		return 0
	}
	sum := 0.0
	for _, v := range y {
		sum += v
	}
	return sum / float64(len(y))
}

// Quantile is the q-quantile of values, which it sorts: the smallest one that at least the share q does not exceed.
// It is 0 when there are none.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	at := int(math.Ceil(q*float64(len(values)))) - 1
	return values[min(max(at, 0), len(values)-1)]
}
