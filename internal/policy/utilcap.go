package policy

import (
	"math"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/interference"
)

// newUtilCap is the rule of Horus (Yeung et al., IEEE TPDS 2022): jobs share a GPU while their utilisations add up to at
// most one GPU. The paper predicts the utilisation of a job from its network; here it is what utilisations says.
func newUtilCap(c cluster.Cluster, jobs []cluster.Job, o BaselineOptions) Placer {
	util := o.utilisations(jobs)
	o.Admit = func(configs []int) bool {
		sum := 0.0
		for _, i := range configs {
			sum += util[i]
		}
		return sum <= 1+utilTolerance
	}
	return o.sharing(c, jobs)
}

// utilTolerance is the rounding of a sum of a few utilisations.
const utilTolerance = 1e-9

// utilisations is the share of a GPU that each configuration of the table keeps busy alone: what its jobs
// state, the most where they differ; else what the caller knows; else what the pairs tell.
func (o *BaselineOptions) utilisations(jobs []cluster.Job) []float64 {
	util := make([]float64, o.Table.Len())
	for j := range jobs {
		if i, ok := o.Table.Lookup(interference.Config{Model: jobs[j].Model, Batch: jobs[j].Batch}); ok {
			util[i] = max(util[i], jobs[j].GPUUtil)
		}
	}
	for i := range util {
		if util[i] == 0 && o.Utilisation != nil {
			util[i] = o.Utilisation(o.Table.Config(i))
		}
		if util[i] <= 0 {
			util[i] = pairUtilisation(o.Table, i)
		}
	}
	return util
}

// pairUtilisation reads a utilisation u off pair rates, where a GPU is taken to serve its jobs in turn, each in
// proportion to what it asks for. Beside its twin a job runs at r = min(1, 1/(2u)), so u is at most 1/(2r). A partner
// that would keep the GPU busy alone is slowed to 1/(1+u), and any other by less, so u is at least the most that the
// job adds to the slowdown of a partner. Among many partners some are busy, so that is the estimate, up to the first. A
// job that nobody measured beside its twin is taken to fill the GPU: the memory of most such twins did not fit.
func pairUtilisation(t *interference.Table, i int) float64 {
	twin := t.Added(i, i)
	if math.IsInf(twin, 1) {
		return 1
	}
	taken := 0.0
	for l := range t.Len() {
		if added := t.Added(l, i); !math.IsInf(added, 1) {
			taken = max(taken, added)
		}
	}
	return min(1, (1+twin)/2, taken)
}
