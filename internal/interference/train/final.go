package train

import (
	"math"
	"slices"

	"weft.dev/weft/internal/interference/model"
)

// finalFit gathers the held-out predictions that the bounds of a model rest on: of the default learner on all pairs,
// with pairs held out at random and with models held out.
type finalFit struct {
	d              *Data
	random, models *held
}

// tasks are those that the study of single sources does not already hold.
func (f *finalFit) tasks(seed uint64, planned []task) []task {
	l := Learners()[0]
	var more []task
	for _, t := range planned {
		if f.wants(t) {
			return nil // one source: its splits are those of all pairs
		}
	}
	if len(f.d.Pairs) >= LeastPairs {
		more = append(more, task{f.d, l, "", randomly(f.d, seed)})
		more = appendSplit(more, task{f.d, l, "", foldsBy(f.d, byModel)})
	}
	return more
}

func (f *finalFit) wants(t task) bool {
	return t.learner.Name == Learners()[0].Name && len(t.d.Pairs) == len(f.d.Pairs) &&
		(t.split == "" || t.split == RandomPairs || t.split == LeaveModel)
}

func (f *finalFit) keep(t task, h *held) {
	if t.folds.random {
		f.random = h
		return
	}
	f.models = h
}

// fit makes the model: the mean over all pairs, and each bound from the predictions that stood before its question.
func (f *finalFit) fit(o Options) *model.Model {
	m := &model.Model{Version: model.Version, Coverage: o.Coverage, Seed: o.Seed, Pairs: len(f.d.Pairs), Layout: f.d.Layout,
		Sources: f.d.distinct(func(p *Pair) string { return p.Source }), Jobs: f.d.Book.Entries(),
		Mean: Boost(f.d.x, f.d.y, meanOptions(o.Seed))}
	for _, feature := range f.d.Layout.Features() {
		m.Names = append(m.Names, feature.Name)
	}
	for k := range m.Names {
		m.Ranges = append(m.Ranges, f.rangeOf(k))
	}
	m.Prior = f.prior(o)
	for range m.Layout.GPUs {
		nothing := model.Bound{Knots: []model.Knot{{Score: 0, Low: m.Prior.Least}}, High: 1}
		m.Known, m.New = append(m.Known, nothing), append(m.New, nothing)
	}
	if f.random != nil {
		m.Known = calibrateEach(f.d, pool(f.random.tests), calibrationOf(f.random.folds, o.Coverage))
	}
	if f.models != nil && f.models.folds.calibrated() {
		c := calibrationOf(f.models.folds, o.Coverage)
		tests := pool(f.models.tests)
		m.New = calibrateEach(f.d, tests, c)
		m.Kappa = kappaOf(f.d, f.models.folds, tests, o.Seed)
		for count := 1; count <= mostProbes; count++ {
			m.Probed = append(m.Probed, calibrateEach(f.d, probed(f.d, f.models.folds, tests, count, m.Kappa, o.Seed), c))
		}
	}
	return m
}

// pool joins the predictions of all groups.
func pool(byGroup [][]judged) []judged {
	var all []judged
	for _, some := range byGroup {
		all = append(all, some...)
	}
	return all
}

func (f *finalFit) prior(o Options) model.Spread {
	return model.Spread{Least: priorOf(f.d.y), Mean: round(meanOf(f.d.y)), Most: Quantile(slices.Clone(f.d.y), o.Coverage)}
}

// priorOf is the bound where no held-out error speaks for the question: half of the least rate that was measured.
// Half, because what was not seen was worse than the least of what was: of the Gavel K80 pairs, one in four is below
// every Titan pair, and none below half of the least.
func priorOf(rates []float64) float64 {
	if len(rates) == 0 {
		return 0
	}
	return round(slices.Min(rates) / 2)
}

// rangeOf is the least and most of a feature; a range with least above most where it is unknown everywhere.
func (f *finalFit) rangeOf(feature int) model.Range {
	r := model.Range{Least: 1}
	seen := false
	for _, x := range f.d.x {
		v := x[feature]
		if math.IsNaN(v) {
			continue
		}
		if !seen {
			r, seen = model.Range{Least: v, Most: v}, true
		}
		r.Least, r.Most = min(r.Least, v), max(r.Most, v)
	}
	return r
}
