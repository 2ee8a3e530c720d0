package train

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"weft.dev/weft/internal/interference/model"
)

// Options of a study and of a fit.
type Options struct {
	Coverage float64 // nominal share of rates at or above their lower bound, in (0.5, 1)
	Seed     uint64
	Learners []string // names of those to judge; none: all
	// Progress is told after each fit how many are done of how many, one call at a time; nil is told nothing.
	Progress func(done, total int)
}

// Split is the figures of one learner on data of one source and GPU model that was held out in one way.
type Split struct {
	Split, Source, GPU, Learner string // GPU is "all" for pooled figures
	Figures
	Outcomes []Outcome // of pooled figures
}

// AllGPUs is the GPU of pooled figures.
const AllGPUs = "all"

// LeastPairs is the fewest pairs of a source that are split: fewer leave folds of a handful.
const LeastPairs = 20

// task is one learner on one split of one source's pairs, or of all of them.
type task struct {
	d       *Data
	learner Learner
	split   string
	folds   *folds
}

// Study judges the learners on the pairs of each source by itself, held out at random, by model and by GPU model,
// and across sources. Figures of probes are of the same fits as those of held-out models. It also fits the default
// learner on all pairs, with bounds from the same predictions. O(learners * groups^2) fits.
func Study(ctx context.Context, pairs []Pair, o Options) ([]Split, *model.Model, error) {
	all := NewData(pairs)
	tasks := plan(all, o)
	final := &finalFit{d: all}
	tasks = append(tasks, final.tasks(o.Seed, tasks)...)
	count := &counter{tell: o.Progress}
	for _, t := range tasks {
		count.total += len(t.folds.fits())
	}
	splits, err := judgeAll(ctx, tasks, final, o, count.add)
	if err != nil {
		return nil, nil, err
	}
	return splits, final.fit(o), nil
}

// counter tells how many fits are done, one call at a time.
type counter struct {
	sync.Mutex
	done, total int
	tell        func(done, total int)
}

func (c *counter) add() {
	c.Lock()
	defer c.Unlock()
	c.done++
	if c.tell != nil {
		c.tell(c.done, c.total)
	}
}

// judgeAll runs the tasks and turns what they give into figures.
func judgeAll(ctx context.Context, tasks []task, final *finalFit, o Options, fitted func()) ([]Split, error) {
	var splits []Split
	for _, t := range tasks {
		h, err := cross(ctx, t.d, t.learner, t.folds, o.Seed, fitted)
		if err != nil {
			return nil, fmt.Errorf("train: %w", err)
		}
		if final.wants(t) {
			final.keep(t, h)
		}
		if t.split == "" {
			continue // for the final fit alone
		}
		splits = append(splits, figuresOf(t, t.split, h, o)...)
		if t.split == LeaveModel && t.folds.calibrated() && t.learner.probes {
			splits = append(splits, figuresOf(t, OneProbe, h.after(t.d, 1, o.Seed), o)...)
			splits = append(splits, figuresOf(t, TwoProbes, h.after(t.d, 2, o.Seed), o)...)
		}
	}
	return splits, nil
}

// after is what a split would give once so many pairs of each new job were measured. What weight probes have is estimated
// from the calibration alone.
func (h *held) after(d *Data, count int, seed uint64) *held {
	out := &held{h.folds, make([][]judged, len(h.tests)), make([][]judged, len(h.calibs))}
	for g := range h.tests {
		kappa := kappaOf(d, h.folds, h.calibs[g], seed)
		out.tests[g] = probed(d, h.folds, h.tests[g], count, kappa, seed)
		out.calibs[g] = probed(d, h.folds, h.calibs[g], count, kappa, seed)
	}
	return out
}

// plan lists the splits of every source with enough pairs, and the one across sources.
func plan(all *Data, o Options) []task {
	var tasks []task
	learners := slices.DeleteFunc(Learners(), func(l Learner) bool {
		return len(o.Learners) > 0 && !slices.Contains(o.Learners, l.Name)
	})
	for _, source := range all.distinct(func(p *Pair) string { return p.Source }) {
		var some []Pair
		for _, p := range all.Pairs {
			if p.Source == source {
				some = append(some, p)
			}
		}
		if len(some) < LeastPairs {
			continue
		}
		d := NewData(some)
		for _, l := range learners {
			tasks = append(tasks, task{d, l, RandomPairs, randomly(d, o.Seed)})
			tasks = appendSplit(tasks, task{d, l, LeaveModel, foldsBy(d, byModel)})
			tasks = appendSplit(tasks, task{d, l, LeaveGPU, foldsBy(d, byGPU)})
		}
	}
	for _, l := range learners {
		tasks = appendSplit(tasks, task{all, l, LeaveSource, foldsBy(all, bySource)})
	}
	return tasks
}

// appendSplit adds a task that has something to hold out.
func appendSplit(tasks []task, t task) []task {
	if t.folds.groups < 2 {
		return tasks
	}
	return append(tasks, t)
}

// figuresOf pools the outcomes of all groups, and of each GPU model. Across sources each source is told by itself.
func figuresOf(t task, split string, h *held, o Options) []Split {
	byKey := map[[2]string][]Outcome{}
	for g := range h.tests {
		lower := h.lower(t.d, g, o.Coverage)
		for _, s := range h.tests[g] {
			p := &t.d.Pairs[s.row/2]
			out := Outcome{s.row, t.d.y[s.row], s.mean, min(lower(p.GPU, s.score), s.mean)}
			for _, gpu := range [2]string{p.GPU, AllGPUs} {
				byKey[[2]string{p.Source, gpu}] = append(byKey[[2]string{p.Source, gpu}], out)
			}
		}
	}
	var splits []Split
	for _, source := range t.d.distinct(func(p *Pair) string { return p.Source }) {
		for _, gpu := range append([]string{AllGPUs}, t.d.distinct(func(p *Pair) string { return p.GPU })...) {
			if outcomes := byKey[[2]string{source, gpu}]; len(outcomes) > 0 {
				s := Split{Split: split, Source: source, GPU: gpu, Learner: t.learner.Name, Figures: Summarise(outcomes)}
				if gpu == AllGPUs {
					s.Outcomes = outcomes
				}
				splits = append(splits, s)
			}
		}
	}
	return splits
}

// lower is the bound that a held-out group is judged by: calibrated on the other groups, or the prior of the others
// where they are too few.
func (h *held) lower(d *Data, g int, coverage float64) func(gpu string, score float64) float64 {
	if h.folds.calibrated() {
		bounds := calibrateEach(d, h.calibs[g], calibrationOf(h.folds, coverage))
		return func(gpu string, score float64) float64 {
			return bounds[slices.Index(d.Layout.GPUs, gpu)].Lower(score)
		}
	}
	var others []float64
	for i, y := range d.y {
		if !h.folds.in(i, g) {
			others = append(others, y)
		}
	}
	least := priorOf(others)
	return func(string, float64) float64 { return least }
}

// Pooled are the pooled figures of a learner on a split, per source.
func Pooled(splits []Split, split, learner string) []Split {
	var list []Split
	for _, s := range splits {
		if s.Split == split && s.Learner == learner && s.GPU == AllGPUs {
			list = append(list, s)
		}
	}
	return slices.Clip(list)
}
