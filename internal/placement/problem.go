// Package placement decides which workers share which GPU: the fewest GPUs on which every job keeps its performance
// floor. It holds the constraints C1..C5, a greedy, a heuristic, an exact and an LP-based algorithm, and lower
// bounds that tell how far each is from the optimum. Everything here is pure and deterministic.
package placement

import (
	"cmp"
	"slices"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/interference"
	"weft.dev/weft/internal/profile"
	"weft.dev/weft/internal/unit"
)

// MaxMaxResidents is the largest number of residents a GPU may be allowed. Beyond it measured pairs say little, and
// configurations become too many to enumerate.
const MaxMaxResidents = 8

// Options are the rules of a problem that are not the jobs' own.
type Options struct {
	GPUMemory    unit.Bytes // usable memory of each GPU; 0 means "not a limit"
	MaxResidents int        // C4: at least 1, at most MaxMaxResidents
	Epsilon      float64    // C2: accepted probability of exceeding GPUMemory at a random instant; 0 packs by peak
	NoFloors     bool       // ignore C3: share whatever fits in memory

	// Admit, when set, stands in for C3: it says whether workers of these configurations, numbers in the table,
	// ascending, may share a GPU. It is asked about two or more, of which every pair was measured. What may share must
	// stay allowed when one leaves. What it depends on may change when Packer.Refresh follows.
	Admit func(configs []int) bool

	// Apart, when set, says of two configurations, numbers in the table, that they may not share a GPU whatever their
	// rates. It is symmetric.
	Apart func(a, b int) bool
}

// Problem is a list of jobs with everything that decides whether they may share. Workers are numbered through in order
// of their jobs' IDs, so that no answer depends on the order of the list. A Problem is immutable but for its memory of
// which sets may share, so it is for one goroutine.
type Problem struct {
	// Progress, when set, is told now and then how many jobs a method has placed.
	Progress func(done, total int)

	options Options
	jobs    []cluster.Job
	first   []cluster.Worker // of each job
	job     []int32          // of each worker
	kind    []int32          // of each job
	kinds   []kind
	sets    *sets
}

// kind is everything about a worker that placement can see. Workers of one kind are interchangeable, but for C5.
type kind struct {
	group   int32
	profile profile.Profile
	size    float64 // effective memory in bytes: see sizeKinds
	util    float64
	workers int
}

// NewProblem numbers the jobs' workers and joins equal ones into kinds. profiles gives each job's memory; nil means
// that memory is unknown and never binds. O(n log n).
func NewProblem(jobs []cluster.Job, table *interference.Table, profiles []profile.Profile, o Options) *Problem {
	p := &Problem{options: o, jobs: jobs, first: make([]cluster.Worker, len(jobs)), kind: make([]int32, len(jobs))}
	p.sets = newSets(table, o)
	for _, j := range byID(jobs) {
		p.first[j] = cluster.Worker(len(p.job))
		for range jobs[j].Workers {
			p.job = append(p.job, j)
		}
	}
	p.internKinds(profiles)
	p.sizeKinds()
	return p
}

// byID is the indexes of jobs in order of ID; equal IDs keep their order.
func byID(jobs []cluster.Job) []int32 {
	order := make([]int32, len(jobs))
	for j := range order {
		order[j] = int32(j)
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(jobs[a].ID, jobs[b].ID) })
	return order
}

// internKinds numbers kinds in a total order that depends on the jobs only, not on the order of the list.
func (p *Problem) internKinds(profiles []profile.Profile) {
	all := make([]kind, len(p.jobs))
	order := make([]int32, len(p.jobs))
	group := p.sets.groupsOf(p.jobs)
	for j := range p.jobs {
		order[j] = int32(j)
		all[j] = kind{group: group[j], util: p.jobs[j].GPUUtil}
		if profiles != nil && p.options.GPUMemory > 0 {
			all[j].profile = profiles[j]
		}
	}
	slices.SortFunc(order, func(a, b int32) int { return compareKinds(&all[a], &all[b]) })
	for i, j := range order {
		if i == 0 || compareKinds(&all[order[i-1]], &all[j]) != 0 {
			p.kinds = append(p.kinds, all[j])
		}
		k := len(p.kinds) - 1
		p.kind[j] = int32(k)
		p.kinds[k].workers += p.jobs[j].Workers
	}
}

func compareKinds(a, b *kind) int {
	if c := cmp.Compare(a.group, b.group); c != 0 {
		return c
	}
	if c := a.profile.Compare(b.profile); c != 0 {
		return c
	}
	return cmp.Compare(a.util, b.util)
}

// Jobs of the problem.
func (p *Problem) Jobs() []cluster.Job { return p.jobs }

// Workers is the number of workers of all jobs.
func (p *Problem) Workers() int { return len(p.job) }

// Job of a worker.
func (p *Problem) Job(w cluster.Worker) int { return int(p.job[w]) }

// WorkersOf is the range of a job's workers.
func (p *Problem) WorkersOf(job int) (first, end cluster.Worker) {
	return p.first[job], p.first[job] + cluster.Worker(p.jobs[job].Workers)
}

func (p *Problem) kindOf(w cluster.Worker) *kind { return &p.kinds[p.kind[p.job[w]]] }

// Kind numbers what placement sees of a job's worker: jobs of one kind and as many workers fit where the other does, but
// for C5.
func (p *Problem) Kind(job int) int { return int(p.kind[job]) }

// TooLarge says whether a job's worker does not fit even an idle GPU.
func (p *Problem) TooLarge(job int) bool {
	limit := p.options.GPUMemory
	return limit > 0 && p.kinds[p.kind[job]].profile.Peak() > limit
}

// sameJob says whether a worker of w's job is among the residents (C5).
func (p *Problem) sameJob(residents []cluster.Worker, w cluster.Worker) bool {
	return slices.ContainsFunc(residents, func(r cluster.Worker) bool { return p.job[r] == p.job[w] })
}

// mayFit is false when one more worker certainly breaks C1 or C2: what a lower bound may rely on.
func (p *Problem) mayFit(load profile.Load, need profile.Profile) bool {
	limit := p.options.GPUMemory
	return limit == 0 || load.LeastOverflow(need, limit) <= p.options.Epsilon+probabilityTolerance
}

// fits verifies C1 and C2 for one more worker.
func (p *Problem) fits(load profile.Load, need profile.Profile) bool {
	limit := p.options.GPUMemory
	return limit == 0 || load.Overflow(need, limit) <= p.options.Epsilon
}
