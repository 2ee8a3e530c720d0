package placement

import (
	"cmp"
	"slices"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/plan"
)

// Limit is how often a constraint refused a worker a GPU in use, as a share of all refusals looked at.
type Limit struct {
	Code  plan.Code
	Share float64
}

// limitSample bounds the workers and the GPUs that Limits tries with each other: 40,000 questions, a few milliseconds,
// and a share then errs by less than a percentage point.
const limitSample = 200

// Limits says what keeps a packing from needing fewer GPUs: an evenly spread sample of its workers asks an evenly
// spread sample of the other GPUs for a place. Most frequent first.
func (p *Problem) Limits(q *Packing) []Limit {
	var workers []cluster.Worker
	for _, residents := range q.GPUs {
		workers = append(workers, residents...)
	}
	counts, total := map[plan.Code]int{}, 0
	for _, w := range spread(workers) {
		for _, residents := range spread(q.GPUs) {
			if r := p.refusal(w, residents); r.Refused() {
				counts[r.Code]++
				total++
			}
		}
	}
	var limits []Limit
	for code, n := range counts {
		limits = append(limits, Limit{code, float64(n) / float64(total)})
	}
	slices.SortFunc(limits, func(a, b Limit) int {
		return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(a.Code, b.Code))
	})
	return limits
}

// spread is at most limitSample elements, evenly spread over a list.
func spread[T any](list []T) []T {
	if len(list) <= limitSample {
		return list
	}
	sample := make([]T, limitSample)
	for i := range sample {
		sample[i] = list[i*len(list)/limitSample]
	}
	return sample
}

// refusal is why a worker may not join residents, or no reason when it may, or is one of them.
func (p *Problem) refusal(w cluster.Worker, residents []cluster.Worker) plan.Reason {
	if slices.Contains(residents, w) {
		return plan.Reason{}
	}
	if p.sameJob(residents, w) {
		return plan.Reason{Code: plan.SameJob}
	}
	set := empty
	for _, r := range residents {
		set = p.sets.join(set, p.kindOf(r).group)
	}
	if group := p.kindOf(w).group; p.sets.join(set, group) == refused {
		return p.sets.why(set, group)
	}
	return p.memoryReason(append(slices.Clone(residents), w))
}

// Lonely lists the jobs that can share with no other of the problem, memory aside: unmeasured ones have no pair in the
// table, incompatible ones would break a floor beside every other job there is.
func (p *Problem) Lonely() (unmeasured, incompatible []int) {
	jobs := make([]int, len(p.sets.groups))
	for j := range p.jobs {
		jobs[p.kinds[p.kind[j]].group]++
	}
	lonely := make([]bool, len(jobs))
	for g := range lonely {
		lonely[g] = p.sets.lonely(int32(g), jobs)
	}
	for j := range p.jobs {
		switch group := p.kinds[p.kind[j]].group; {
		case group == alone:
			unmeasured = append(unmeasured, j)
		case lonely[group]:
			incompatible = append(incompatible, j)
		}
	}
	return unmeasured, incompatible
}

// lonely says whether no worker of another job may join a worker of group g; jobs are counted by group.
func (s *sets) lonely(g int32, jobs []int) bool {
	single := s.join(empty, g)
	for other, n := range jobs {
		if (int32(other) != g || n > 1) && s.mayJoin(single, int32(other)) {
			return false
		}
	}
	return true
}
