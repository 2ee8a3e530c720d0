package dispatch

import (
	"cmp"
	"math"
	"slices"
	"time"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/placement"
	"weft.dev/weft/internal/plan"
	"weft.dev/weft/internal/unit"
)

// Explanation is why a job waits and what would have to change.
type Explanation struct {
	Wait     Wait
	Refusals []Refusal // of each GPU, the nearest first
	Ahead    []box.ID  // waiting jobs that come before it
	Promised time.Time // when it starts at the latest; zero for unknown

	// Ends are jobs after whose end it would fit, those ahead aside; EndsBy is when they have ended at the latest, zero for
	// unknown.
	Ends   []box.ID
	EndsBy time.Time

	// Peak is the largest peak, and Floor the largest floor, with which it would start now, on that GPU; 0 where nothing would
	// help, or it starts as it is.
	Peak     unit.Bytes
	PeakGPU  int
	Floor    float64
	FloorGPU int
}

// Refusal is why a GPU does not take a job. A GPU that would take it has no reason.
type Refusal struct {
	GPU      int
	Beside   []box.ID
	Reason   plan.Reason
	Resident box.ID     // whose floor it is, or who is banned beside it; 0 for nobody
	After    box.ID     // with Priority: the job that it could be in the way of
	Rate     float64    // that the job would have there, of its speed alone; 0 for unknown
	Held     unit.Bytes // persistent parts of the residents
	Most     unit.Bytes // with MemoryReserved: the greatest ephemeral part, where it is what does not fit beside all persistent ones
	Room     unit.Bytes // that residents may use there
}

// Explain says why a job that waits does so. It is false for a job that does not wait.
func Explain(s *State, id box.ID) (Explanation, bool) {
	p := newPlanner(s)
	p.run()
	job, ok := p.number[id]
	if !ok || p.runs(job) {
		return Explanation{}, false
	}
	d := p.decision()
	e := Explanation{Wait: Wait{Job: id, GPU: -1}, Promised: d.Promised[id]}
	if at := slices.Index(d.Order, id); at >= 0 {
		e.Wait, e.Ahead = d.Waits[at], slices.Clone(d.Order[:at])
	}
	if p.packer == nil {
		return e, true
	}
	p.steps = p.harmSteps()
	e.Refusals = p.refusals(job)
	if e.Wait.Reason.Refused() && !slices.Contains(p.last, job) && e.Wait.Reason.Code != plan.Quota {
		e.Ends, e.EndsBy = p.way(job, e.Wait.GPU)
		e.Peak, e.PeakGPU = p.lowerPeak(job)
		e.Floor, e.FloorGPU = p.lowerFloor(job)
	}
	return e, true
}

// refusals asks every GPU.
func (p *planner) refusals(job int) []Refusal {
	var list []Refusal
	before := p.before(job)
	for g := range cluster.GPU(len(p.s.GPUs)) {
		r := Refusal{GPU: int(g), Rate: p.packer.RateAt(job, g), Room: p.free[g]}
		for _, w := range p.packer.Residents(g) {
			other := p.problem.Job(w)
			r.Beside = append(r.Beside, p.jobs[other].ID)
			r.Held = r.Held.Add(memoryOf(p.jobs[other]).Persistent)
		}
		var resident int
		r.Reason, resident = p.packer.Why(job, g)
		r.Resident = p.idOf(resident)
		if r.Reason.Code == plan.MemoryReserved {
			r.Most = unit.Bytes(r.Reason.Got) - r.Held - memoryOf(p.jobs[job]).Persistent
		}
		if !r.Reason.Refused() {
			p.priority(job, g, before, &r)
		}
		list = append(list, r)
	}
	slices.SortStableFunc(list, func(a, b Refusal) int { return nearer(a.Reason, b.Reason) })
	return list
}

// before is those ahead of a job that are higher than it; nil where it need not mind anybody.
func (p *planner) before(job int) *placement.Ahead {
	at := slices.Index(p.ahead, job)
	if at <= 0 || p.inTime(job) {
		return nil
	}
	list := p.packer.Ahead()
	for _, other := range p.ahead[:at] {
		if p.higher(other, p.aged(job)) {
			list.Add(other)
		}
	}
	return list
}

// priority says whom a job would be in the way of on a GPU that takes it: those before it that are higher, and those that keep
// the GPU.
func (p *planner) priority(job int, g cluster.GPU, before *placement.Ahead, r *Refusal) {
	if before == nil {
		return
	}
	keepers := p.packer.Ahead()
	for _, other := range p.kept.jobs[g] {
		if p.place[other] < p.place[job] {
			keepers.Add(other)
		}
	}
	if other := p.packer.InTheWayOf(job, g, [2]*placement.Ahead{before, keepers}, &p.steps); other >= 0 {
		r.Reason = plan.Reason{Code: plan.Priority, Got: float64(p.levels[job]), Limit: float64(p.levels[other])}
		r.After = p.jobs[other].ID
	}
}

// way is the jobs whose end makes room: one alone where there is one, the first to end at the latest, else those on the
// nearest GPU before others; else the first of that order that are enough together, without those that are not needed.
func (p *planner) way(job, nearest int) ([]box.ID, time.Time) {
	if p.packer.Finds(job) {
		return nil, time.Time{}
	}
	order := p.residents(nearest)
	var need []int
	if r := p.packer.OpensWithout(job, order); r >= 0 {
		need = []int{r}
	}
	if need == nil {
		n, on := p.packer.OpensAfter(job, order)
		if n < 0 {
			return nil, time.Time{}
		}
		need = slices.DeleteFunc(slices.Clone(order[:n]), func(r int) bool { return !p.isOn(r, on) })
		for i := 0; i < len(need); {
			less := slices.Delete(slices.Clone(need), i, i+1)
			if n, _ := p.packer.OpensAfter(job, less); n >= 0 {
				need = less
			} else {
				i++
			}
		}
	}
	return p.ends(need)
}

// isOn says whether a job has one of some GPUs.
func (p *planner) isOn(job int, gpus []cluster.GPU) bool {
	has := func(g cluster.GPU) bool { return slices.Contains(gpus, g) }
	return slices.ContainsFunc(p.on[job], has) || slices.ContainsFunc(p.placed[job], has)
}

// ends are the IDs of jobs, and when all of them have ended at the latest.
func (p *planner) ends(jobs []int) (ids []box.ID, by time.Time) {
	known := true
	for _, j := range jobs {
		ids = append(ids, p.jobs[j].ID)
		end, ok := p.end(j)
		known = known && ok
		if end.After(by) {
			by = end
		}
	}
	if !known {
		by = time.Time{}
	}
	slices.Sort(ids)
	return ids, by
}

// residents are the jobs on GPUs: those that end by a known time, the first first, then the others of a GPU, then the rest.
func (p *planner) residents(gpu int) []int {
	order := p.leaving()
	var there, rest []int
	for i := range p.jobs {
		if _, ok := p.end(i); ok || len(p.on[i])+len(p.placed[i]) == 0 {
			continue
		}
		if p.isOn(i, []cluster.GPU{cluster.GPU(gpu)}) {
			there = append(there, i)
		} else {
			rest = append(rest, i)
		}
	}
	return slices.Concat(order, there, rest)
}

// peakStep is the unit of what-ifs: a tenth of a GiB, as it is shown.
const peakStep = unit.GiB / 10

// lowerPeak is the largest peak with which a job would start now, and its first GPU.
func (p *planner) lowerPeak(job int) (unit.Bytes, int) {
	peak, ok := most(p, job, func(g cluster.GPU) (unit.Bytes, bool) { return p.packer.PeakAt(job, g, peakStep) })
	if ok && peak < p.jobs[job].Memory.Peak() {
		if gpu := p.whatIf(job, func(j *Job) { j.Memory = placement.WithPeak(memoryOf(j), peak) }); gpu >= 0 {
			return peak, gpu
		}
	}
	return 0, 0
}

// lowerFloor is the largest floor, in whole per cent, with which a job would start now, and its first GPU.
func (p *planner) lowerFloor(job int) (float64, int) {
	floor, ok := most(p, job, func(g cluster.GPU) (float64, bool) { return p.packer.FloorAt(job, g) })
	if floor = math.Floor(floor*100+floorTolerance) / 100; !ok || floor <= 0 || floor >= p.jobs[job].Floor {
		return 0, 0
	}
	if gpu := p.whatIf(job, func(j *Job) { j.Floor = floor }); gpu >= 0 {
		return floor, gpu
	}
	return 0, 0
}

// most is the largest of what GPUs would take that enough of them for a job would take.
func most[T cmp.Ordered](p *planner, job int, at func(cluster.GPU) (T, bool)) (T, bool) {
	type offer struct {
		value T
		node  int
	}
	var offers []offer
	for g := range cluster.GPU(len(p.s.GPUs)) {
		if v, ok := at(g); ok {
			offers = append(offers, offer{v, p.node(g)})
		}
	}
	slices.SortFunc(offers, func(a, b offer) int { return cmp.Compare(b.value, a.value) })
	enough := p.tally(job)
	for _, o := range offers {
		if enough.Add(o.node); enough.Enough(p.workers(job)) {
			return o.value, true
		}
	}
	var none T
	return none, false
}

// floorTolerance keeps a floor of 82 % from being shown as 81 % for the rounding of a product.
const floorTolerance = 1e-6

// whatIf plans anew with one job changed, and says on which GPU it starts; -1 for none.
func (p *planner) whatIf(job int, change func(*Job)) int {
	other := *p.s
	other.Jobs = slices.Clone(p.s.Jobs)
	for i := range other.Jobs {
		if other.Jobs[i].ID == p.jobs[job].ID {
			change(&other.Jobs[i])
		}
	}
	for _, s := range Plan(&other).Starts {
		if s.Job == p.jobs[job].ID {
			return s.GPUs[0]
		}
	}
	return -1
}
