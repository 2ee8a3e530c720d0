package train

import (
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
func probed(d *Data, f *folds, list []judged, count int, seed uint64) []judged {
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
		mean := model.Correct(s.mean, deviations)
		out = append(out, judged{s.row, s.group, mean, mean})
	}
	return out
}

// jobOf is the side of a sample that was held out; false when both were.
func jobOf(d *Data, f *folds, s judged) (newJob, bool) {
	q := d.query(s.row)
	name := f.groups[s.group]
	switch {
	case q.Self.Model == name && q.Partner.Model == name:
		return newJob{}, false
	case q.Self.Model == name:
		return newJob{q.Source, q.GPU, q.Self, false}, true
	}
	return newJob{q.Source, q.GPU, q.Partner, true}, true
}
