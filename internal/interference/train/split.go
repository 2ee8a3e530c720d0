package train

import (
	"math/rand/v2"
	"slices"
)

// Splits are the ways to hold data out, by the names of reports.
const (
	RandomPairs = "random_pairs"            // five folds of pairs, both directions of a pair in one
	LeaveModel  = "leave_model_out"         // every pair of a model at any batch size
	OneProbe    = "leave_model_out_1_probe" // the same, after one measured pair of the job at hand
	TwoProbes   = "leave_model_out_2_probes"
	LeaveGPU    = "leave_gpu_out"
	LeaveSource = "leave_source_out"
)

// randomFolds is how many parts random pairs are split into.
const randomFolds = 5

// folds is a split: the groups that each pair belongs to. A pair of two models belongs to the groups of both, and no
// fit that a group is judged by has seen any pair of it.
type folds struct {
	groups int
	of     [][]int        // by pair
	byName map[string]int // nil for random folds
	random bool
}

func (f *folds) in(row, group int) bool { return slices.Contains(f.of[row/2], group) }

// maxGroups is the most groups that are held out one by one. More names are dealt out to that many groups in order of
// first appearance, each held out whole: fits grow with the square of the groups.
const maxGroups = 12

// foldsBy groups pairs by names that they have one or two of.
func foldsBy(d *Data, of func(*Pair) []string) *folds {
	f := &folds{byName: map[string]int{}}
	for i := range d.Pairs {
		var groups []int
		for _, name := range of(&d.Pairs[i]) {
			g, ok := f.byName[name]
			if !ok {
				g = len(f.byName) % maxGroups
				f.byName[name] = g
				f.groups = max(f.groups, g+1)
			}
			if !slices.Contains(groups, g) {
				groups = append(groups, g)
			}
		}
		f.of = append(f.of, groups)
	}
	return f
}

func byModel(p *Pair) []string  { return []string{p.A.Model, p.B.Model} }
func byGPU(p *Pair) []string    { return []string{p.GPU} }
func bySource(p *Pair) []string { return []string{p.Source} }

// randomly deals pairs out to folds of equal size.
func randomly(d *Data, seed uint64) *folds {
	f := &folds{groups: randomFolds, of: make([][]int, len(d.Pairs)), random: true}
	for n, i := range rand.New(rand.NewPCG(seed, 1)).Perm(len(d.Pairs)) {
		f.of[i] = []int{n % randomFolds}
	}
	return f
}
