package train

import "weft.dev/weft/internal/interference"

// Matrix completion knows no features: the rates measured on one GPU model by one source are a matrix of self by
// partner, and rate = m + self effect + partner effect + a product of completionRank hidden traits of both, fitted by
// alternating ridge regressions. A job with no measured pair gets effects of 0, the average job's.
const (
	completionRank    = 2
	completionRounds  = 12
	completionPenalty = 0.3 // in samples: a job with few pairs stays near the average
)

// matrixKey is a job on a GPU model of a source.
type matrixKey struct {
	source, gpu string
	config      interference.Config
}

// completion is the fitted matrices.
type completion struct {
	mean    map[[2]string]float64 // of a source and GPU model
	overall float64
	self    map[matrixKey][]float64 // own effect, 1, traits
	partner map[matrixKey][]float64 // 1, own effect, traits
}

func fitCompletion(d *Data, rows []int, _ uint64) predictor {
	c := &completion{mean: map[[2]string]float64{}, self: map[matrixKey][]float64{}, partner: map[matrixKey][]float64{}}
	bySelf, byPartner := map[matrixKey][]int{}, map[matrixKey][]int{}
	var selfOrder, partnerOrder []matrixKey
	groups := map[[2]string][]float64{}
	for _, i := range rows {
		s, p := matrixKeys(d, i)
		if bySelf[s] == nil {
			selfOrder = append(selfOrder, s)
		}
		if byPartner[p] == nil {
			partnerOrder = append(partnerOrder, p)
		}
		bySelf[s], byPartner[p] = append(bySelf[s], i), append(byPartner[p], i)
		g := [2]string{s.source, s.gpu}
		groups[g] = append(groups[g], d.y[i])
	}
	for g, y := range groups {
		c.mean[g] = meanOf(y)
	}
	_, y := d.pick(rows)
	c.overall = meanOf(y)
	for n, k := range selfOrder {
		c.self[k] = startTraits(n, 0)
	}
	for n, k := range partnerOrder {
		c.partner[k] = startTraits(n, 1)
	}
	for range completionRounds {
		c.improve(d, selfOrder, bySelf, c.self, 0)
		c.improve(d, partnerOrder, byPartner, c.partner, 1)
	}
	return func(i int) (float64, float64) {
		s, p := matrixKeys(d, i)
		m := unit(c.predict(s, p))
		return m, m
	}
}

func matrixKeys(d *Data, i int) (self, partner matrixKey) {
	q := d.query(i)
	return matrixKey{q.Source, q.GPU, q.Self}, matrixKey{q.Source, q.GPU, q.Partner}
}

// startTraits are small and differ from job to job, so that the traits of the rounds can part.
func startTraits(n, own int) []float64 {
	v := make([]float64, 2+completionRank)
	v[1-own] = 1
	for r := range completionRank {
		v[2+r] = 0.1 * float64((n*(r+3))%7-3) / 3
	}
	return v
}

// improve refits the effect and traits of every job on one side with those of the other side held. own is where in
// a vector the effect of this side stands; the other side holds 1 there.
func (c *completion) improve(d *Data, order []matrixKey, rowsOf map[matrixKey][]int, vectors map[matrixKey][]float64, own int) {
	for _, k := range order {
		var z [][]float64
		var y []float64
		for _, i := range rowsOf[k] {
			s, p := matrixKeys(d, i)
			other := c.partner[p]
			if own == 1 {
				other = c.self[s]
			}
			z = append(z, append([]float64{1}, other[2:]...))
			y = append(y, d.y[i]-c.mean[[2]string{k.source, k.gpu}]-other[1-own])
		}
		w := ridge(z, y, completionPenalty)
		v := vectors[k]
		v[own] = w[0]
		copy(v[2:], w[1:])
	}
}

func (c *completion) predict(s, p matrixKey) float64 {
	m, ok := c.mean[[2]string{s.source, s.gpu}]
	if !ok {
		m = c.overall
	}
	self, partner := c.self[s], c.partner[p]
	switch {
	case self != nil && partner != nil:
		return m + dot(self, partner)
	case self != nil:
		return m + self[0]
	case partner != nil:
		return m + partner[1]
	}
	return m
}
