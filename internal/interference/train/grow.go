package train

import (
	"math"
	"math/rand/v2"

	"weft.dev/weft/internal/interference/model"
)

// grower grows one tree after the other on what the ones before left over.
type grower struct {
	*binned
	o        BoostOptions
	random   *rand.Rand
	residual []float64
	gradient []float64
	columns  []int
	t        model.Tree
	count    [maxBins + 1]float64
	sum      [maxBins + 1]float64
}

// grow draws the samples and features of a tree and grows it.
func (g *grower) grow() model.Tree {
	for i, r := range g.residual {
		g.gradient[i] = r
		if q := g.o.Quantile; q > 0 {
			if g.gradient[i] = q; r < 0 {
				g.gradient[i] = q - 1
			}
		}
	}
	rows := draw(g.random, len(g.residual), g.o.Rows)
	g.columns = draw(g.random, len(g.bins), g.o.Columns)
	g.t = model.Tree{}
	g.node(rows, g.o.Depth, math.Inf(-1), math.Inf(1))
	return g.t
}

// draw picks a share of the numbers below n, at least one, in ascending order.
func draw(random *rand.Rand, n int, share float64) []int {
	var picked []int
	for i := range n {
		if share >= 1 || random.Float64() < share {
			picked = append(picked, i)
		}
	}
	if len(picked) == 0 && n > 0 {
		picked = append(picked, random.IntN(n))
	}
	return picked
}

// node adds the tree over some samples, its values within bounds, and returns the number of its root.
func (g *grower) node(rows []int, depth int, least, most float64) int {
	n := len(g.t.Value)
	g.t.Feature, g.t.Threshold = append(g.t.Feature, 0), append(g.t.Threshold, 0)
	g.t.Left, g.t.Right = append(g.t.Left, 0), append(g.t.Right, 0)
	g.t.Missing = append(g.t.Missing, false)
	g.t.Value = append(g.t.Value, 0)
	s, ok := cut{}, false
	if depth > 0 && len(rows) >= 2*g.o.MinLeaf {
		s, ok = g.best(rows)
	}
	if !ok || g.o.Quantile == 0 { // inner nodes need their value for contributions, and a quantile is dear
		g.t.Value[n] = round(min(max(g.leaf(rows), least), most))
	}
	if !ok {
		return n
	}
	left, right := g.split(rows, s)
	leftMost, rightLeast := most, least
	leftLeast, rightMost := least, most
	if c := g.constraint(s.feature); c != 0 {
		middle := (g.leaf(left) + g.leaf(right)) / 2
		middle = min(max(middle, least), most)
		if c > 0 {
			leftMost, rightLeast = middle, middle
		} else {
			leftLeast, rightMost = middle, middle
		}
	}
	g.t.Feature[n], g.t.Threshold[n], g.t.Missing[n] = s.feature, g.edges[s.feature][s.bin-1], s.missingLeft
	l := g.node(left, depth-1, leftLeast, leftMost)
	r := g.node(right, depth-1, rightLeast, rightMost)
	g.t.Left[n], g.t.Right[n] = l, r
	return n
}

// round keeps five decimals, far finer than a rate is known: model files stay small and read back as they were.
func round(v float64) float64 { return math.Round(v*1e5) / 1e5 }

// leaf is the shrunk value of a leaf with some samples.
func (g *grower) leaf(rows []int) float64 {
	values := make([]float64, len(rows))
	sum := 0.0
	for i, row := range rows {
		values[i] = g.residual[row]
		sum += values[i]
	}
	n := float64(len(rows))
	if g.o.Quantile > 0 {
		return g.o.Rate * Quantile(values, g.o.Quantile) * n / (n + g.o.Ridge)
	}
	return g.o.Rate * sum / (n + g.o.Ridge)
}

func (g *grower) constraint(feature int) int {
	if feature >= len(g.o.Monotone) {
		return 0
	}
	return g.o.Monotone[feature]
}

// cut is a split: samples whose bin is at most bin go left, and missing ones if missingLeft.
type cut struct {
	feature, bin int
	missingLeft  bool
	gain         float64
}

// best is the split of largest gain, the first one found among equals. It is false when no split gains.
func (g *grower) best(rows []int) (cut, bool) {
	var found cut
	for _, f := range g.columns {
		bins := len(g.edges[f]) + 1
		clear(g.count[:bins])
		clear(g.sum[:bins])
		column := g.bins[f]
		for _, row := range rows {
			g.count[column[row]]++
			g.sum[column[row]] += g.gradient[row]
		}
		g.scan(f, bins, &found)
	}
	return found, found.gain > minGain
}

// minGain is what a split must gain to be more than rounding.
const minGain = 1e-9

// scan tries every split of one feature, with missing samples on either side.
func (g *grower) scan(f, bins int, found *cut) {
	n, sum := 0.0, 0.0
	for b := range bins {
		n += g.count[b]
		sum += g.sum[b]
	}
	for _, missingLeft := range [2]bool{true, false} {
		leftN, leftSum := 0.0, 0.0
		if missingLeft {
			leftN, leftSum = g.count[0], g.sum[0]
		}
		for b := 1; b < bins; b++ {
			leftN += g.count[b]
			leftSum += g.sum[b]
			if int(leftN) < g.o.MinLeaf || int(n-leftN) < g.o.MinLeaf {
				continue
			}
			c := cut{f, b, missingLeft, g.gain(leftN, leftSum, n, sum)}
			if g.count[0] == 0 { // no sample says: with the many
				c.missingLeft = leftN >= n-leftN
			}
			if c.gain > found.gain && g.allowed(f, leftN, leftSum, n, sum) {
				*found = c
			}
		}
		if g.count[0] == 0 {
			return
		}
	}
}

func (g *grower) gain(leftN, leftSum, n, sum float64) float64 {
	right := sum - leftSum
	return leftSum*leftSum/(leftN+g.o.Ridge) + right*right/(n-leftN+g.o.Ridge) - sum*sum/(n+g.o.Ridge)
}

// allowed says whether a split keeps the feature's direction.
func (g *grower) allowed(f int, leftN, leftSum, n, sum float64) bool {
	rise := (sum-leftSum)/(n-leftN) - leftSum/leftN
	switch g.constraint(f) {
	case 1:
		return rise >= 0
	case -1:
		return rise <= 0
	}
	return true
}

// split parts the samples, in order.
func (g *grower) split(rows []int, s cut) (left, right []int) {
	for _, row := range rows {
		b := int(g.bins[s.feature][row])
		if b == 0 && s.missingLeft || b > 0 && b <= s.bin {
			left = append(left, row)
		} else {
			right = append(right, row)
		}
	}
	return left, right
}
