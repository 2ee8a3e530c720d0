package policy

import "weft.dev/weft/internal/cluster"

// newClasses is the rule of Lucid (Hu et al., ASPLOS 2023): a job is tiny, medium or jumbo and scores 0, 1 or 2; two jobs
// share a GPU when their scores add up to at most 2. The paper grows a decision tree over utilisations that were
// measured while the job was tried out; here the class follows from GPU utilisation alone.
func newClasses(c cluster.Cluster, jobs []cluster.Job, o BaselineOptions) Placer {
	o.paired()
	util := o.utilisations(jobs)
	o.Admit = func(configs []int) bool {
		sum := 0
		for _, i := range configs {
			sum += sharingScore(util[i])
		}
		return sum <= maxScore
	}
	return o.sharing(c, jobs)
}

// maxScore is the score of a GPU in use by a jumbo job: only a tiny one may join it.
const maxScore = 2

// The borders of the classes, by GPU utilisation. A tiny job leaves 4/5 of its speed even to one that would keep the GPU
// busy alone: it takes a quarter of a GPU, and 1/(1+1/4) = 4/5. Two medium jobs do not ask for more than one GPU.
const (
	tinyUtilisation   = 0.25
	mediumUtilisation = 0.5
)

// sharingScore is 0 for a tiny, 1 for a medium and 2 for a jumbo job.
func sharingScore(util float64) int {
	switch {
	case util <= tinyUtilisation:
		return 0
	case util <= mediumUtilisation:
		return 1
	}
	return 2
}
