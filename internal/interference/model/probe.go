package model

import (
	"math"

	"weft.dev/weft/internal/interference"
)

// Probe is a measured pair of a new job and another: the rates of both as shares of their rates alone.
type Probe struct {
	Source, GPU  string
	A, B         interference.Config
	RateA, RateB float64
}

// Correct shifts a predicted mean by the deviations e_k that n probes of the same job showed, in logit space, where a
// deviation near the ends of [0, 1] counts as much as it can: by sum(e_k) / (n + kappa). kappa is the number of probes
// that weigh as much as the prediction: many where deviations differ from pair to pair, few where they are the job's.
func Correct(mean float64, deviations []float64, kappa float64) float64 {
	if len(deviations) == 0 {
		return mean
	}
	sum := 0.0
	for _, e := range deviations {
		sum += e
	}
	return shiftBy(mean, sum/(float64(len(deviations))+kappa))
}

// Deviation is that of an observed rate from its prediction, in logit space.
func Deviation(observed, predicted float64) float64 { return logit(observed) - logit(predicted) }

// The logit of a rate is taken on an interval a little wider than [0, 1], so that a rate of 1, which a clipped
// measurement gives, stays finite: log((rate + below) / (1 + above - rate)).
const (
	logitBelow = 0.05
	logitAbove = 0.1
)

func logit(rate float64) float64 { return math.Log((rate + logitBelow) / (1 + logitAbove - rate)) }

func shiftBy(mean, by float64) float64 {
	e := math.Exp(logit(mean) + by)
	return clamp(((1+logitAbove)*e - logitBelow) / (1 + e))
}

// shiftKey is a job as the one slowed down, or as the one that slows others.
type shiftKey struct {
	job     bookKey
	partner bool
}

// probe gathers deviations of jobs that the model was not trained on. A pair of two such jobs tells of both.
func (p *Predictor) probe(probes []Probe) map[shiftKey][]float64 {
	shifts := map[shiftKey][]float64{}
	learn := func(q Query, rate float64) {
		q = p.resolve(q)
		e := Deviation(min(rate, 1), p.mean(q))
		for _, partner := range [2]bool{false, true} {
			if job := p.key(q, partner); !p.trained[job] {
				k := shiftKey{job, partner}
				shifts[k] = append(shifts[k], e)
			}
		}
	}
	for _, m := range probes {
		learn(Query{Source: m.Source, GPU: m.GPU, Self: m.A, Partner: m.B}, m.RateA)
		learn(Query{Source: m.Source, GPU: m.GPU, Self: m.B, Partner: m.A}, m.RateB)
	}
	return shifts
}

// hasShift says whether probes speak for a query: every one of its jobs is trained on or was probed, and at least one
// was probed.
func (p *Predictor) hasShift(q Query) bool {
	probed := false
	for _, partner := range [2]bool{false, true} {
		job := p.key(q, partner)
		_, ok := p.shifts[shiftKey{job, partner}]
		if !ok && !p.trained[job] {
			return false
		}
		probed = probed || ok
	}
	return probed && len(p.m.Probed) > 0
}

// shifted corrects a mean and says by how many probes of the job that has fewest.
func (p *Predictor) shifted(q Query, mean float64) (float64, int) {
	count := math.MaxInt
	for _, partner := range [2]bool{false, true} {
		if s, ok := p.shifts[shiftKey{p.key(q, partner), partner}]; ok {
			mean = Correct(mean, s, p.m.Kappa)
			count = min(count, len(s))
		}
	}
	return mean, count
}
