package train

import (
	"math"
	"math/rand/v2"

	"weft.dev/weft/internal/interference"
	"weft.dev/weft/internal/interference/model"
)

// newJob is a job of a held-out model as the one slowed down or the one that slows others.
type newJob struct {
	source, gpu string
	config      interference.Config
	partner     bool
}

// probed are predictions of held-out models as they would be after count other pairs of the new job were measured,
// drawn at random for each: its deviations there correct the prediction, by the rule that package model uses. Pairs
// of two new jobs and jobs with too few pairs are left out.
func probed(d *Data, f *folds, list []judged, count int, kappa float64, seed uint64) []judged {
	random := rand.New(rand.NewPCG(seed, 2))
	byJob := map[newJob][]judged{}
	for _, s := range list {
		if job, ok := jobOf(d, f, s); ok {
			byJob[job] = append(byJob[job], s)
		}
	}
	var out []judged
	for _, s := range list {
		job, ok := jobOf(d, f, s)
		others := byJob[job]
		if !ok || len(others) <= count {
			continue
		}
		var deviations []float64
		for _, k := range random.Perm(len(others)) {
			if o := others[k]; o.row != s.row && len(deviations) < count {
				deviations = append(deviations, model.Deviation(d.y[o.row], o.mean))
			}
		}
		mean := model.Correct(s.mean, deviations, kappa)
		out = append(out, judged{s.row, s.group, mean, mean})
	}
	return out
}

// kappas are those tried: from "one probe tells all" to "probes tell next to nothing".
var kappas = []float64{0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32}

// kappaOf is the kappa of least mean error over predictions of held-out models after one and after two probes, the
// first among equals.
func kappaOf(d *Data, f *folds, list []judged, seed uint64) float64 {
	best, least := 0.0, math.Inf(1)
	for _, kappa := range kappas {
		sum := 0.0
		for count := 1; count <= mostProbes; count++ {
			for _, s := range probed(d, f, list, count, kappa, seed) {
				sum += math.Abs(d.y[s.row] - s.mean)
			}
		}
		if sum < least {
			best, least = kappa, sum
		}
	}
	return best
}

// mostProbes is how many probes of a job are told apart: more are judged as that many.
const mostProbes = 2

// jobOf is the side of a sample that was held out; false when both were.
func jobOf(d *Data, f *folds, s judged) (newJob, bool) {
	q := d.query(s.row)
	self, partner := f.byName[q.Self.Model] == s.group, f.byName[q.Partner.Model] == s.group
	switch {
	case self && partner:
		return newJob{}, false
	case self:
		return newJob{q.Source, q.GPU, q.Self, false}, true
	}
	return newJob{q.Source, q.GPU, q.Partner, true}, true
}
