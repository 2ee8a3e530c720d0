package placement

import (
	"math"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/plan"
	"weft.dev/weft/internal/profile"
	"weft.dev/weft/internal/unit"
)

// Why is what refuses a job's worker a GPU of a packer made by NewPackerOn, and the job of the resident that is concerned,
// or -1. Of several constraints it names the one that is furthest from giving way: what the GPU is, C5, C4, the classes, C1, C3
// and C2. No reason: the GPU takes it.
func (k *Packer) Why(job int, g cluster.GPU) (plan.Reason, int) {
	first, _ := k.p.WorkersOf(job)
	residents := k.overlay.Residents(g)
	if k.p.jobs[job].Workers > 1 && k.p.sameJob(residents, first) {
		return plan.Reason{Code: plan.SameJob}, -1
	}
	if r := k.barred(job, g); r.Refused() {
		return r, -1
	}
	groups, kind := k.beside(job, g), k.p.kindOf(first)
	if n := len(groups); n > k.p.options.MaxResidents {
		return plan.Reason{Code: plan.MaxResidents, Got: float64(n), Limit: float64(k.p.options.MaxResidents)}, -1
	}
	if k.p.sets.classConflict(groups) {
		return plan.Reason{Code: plan.ClassConflict}, k.classmate(groups, residents)
	}
	memory := k.memory(g, kind.profile)
	if memory.Code == plan.MemoryReserved && memory.Got == float64(k.load[g].Persistent().Add(kind.profile.Persistent)) {
		return memory, -1
	}
	if r, who := k.floors(groups, residents); r.Refused() {
		return r, who
	}
	return memory, -1
}

// beside is the groups of a GPU's residents, in order, and last that of a job that would join them.
func (k *Packer) beside(job int, g cluster.GPU) []int32 {
	groups := make([]int32, 0, MaxMaxResidents+1)
	for _, r := range k.overlay.Residents(g) {
		groups = append(groups, k.p.kindOf(r).group)
	}
	return append(groups, k.p.kinds[k.p.kind[job]].group)
}

// classmate is the job of the guaranteed resident that a class conflict is about, or else of the first.
func (k *Packer) classmate(groups []int32, residents []cluster.Worker) int {
	for i, r := range residents {
		if k.p.sets.groups[groups[i]].class == cluster.Guaranteed {
			return k.p.Job(r)
		}
	}
	return k.p.Job(residents[0])
}

// floors is what C3 says of the last of the groups beside the residents before it: a pair that may not share at all, else
// the floor that is missed by the largest share of it.
func (k *Packer) floors(groups []int32, residents []cluster.Worker) (plan.Reason, int) {
	s, last := k.p.sets, len(groups)-1
	if last == 0 {
		return plan.Reason{}, -1
	}
	for i, r := range residents {
		switch g, l := groups[last], groups[i]; {
		case g == alone:
			return plan.Reason{Code: plan.ProfileUnknown}, -1
		case s.apart(g, l):
			return plan.Reason{Code: plan.PairBanned}, k.p.Job(r)
		case l == alone || math.IsInf(s.pair(g, l), 1) && math.IsInf(s.pair(l, g), 1):
			return plan.Reason{Code: plan.ProfileUnknown}, k.p.Job(r)
		}
	}
	var worst plan.Reason
	who, most := -1, -1.0
	for i := last; i >= 0; i-- {
		rate, floor := 1/(1+s.added(groups, i)), s.groups[groups[i]].floor
		if s.holds(rate, floor) || 1-rate/floor <= most {
			continue
		}
		most, worst, who = 1-rate/floor, plan.Reason{Code: plan.FloorSelf, Got: rate, Limit: floor}, -1
		if i < last {
			worst.Code, who = plan.FloorResident, k.p.Job(residents[i])
		}
	}
	if most < 0 && !s.admits(groups) {
		worst = plan.Reason{Code: plan.Rule}
	}
	return worst, who
}

// RateAt is the rate of a job's worker beside the residents of a GPU, as a share of its speed alone; 0 where a pair was
// never measured.
func (k *Packer) RateAt(job int, g cluster.GPU) float64 {
	groups := k.beside(job, g)
	return 1 / (1 + k.p.sets.added(groups, len(groups)-1))
}

// FloorAt is the largest floor with which a GPU would take a job's worker, all else equal: its rate there. It is false
// where something other than its own floor refuses it.
func (k *Packer) FloorAt(job int, g cluster.GPU) (float64, bool) {
	groups, s := k.beside(job, g), k.p.sets
	first, _ := k.p.WorkersOf(job)
	if len(groups) > k.p.options.MaxResidents || s.classConflict(groups) || !s.admits(groups) || !k.takes(g, first) ||
		k.p.sameJob(k.overlay.Residents(g), first) {
		return 0, false
	}
	for i := range len(groups) - 1 {
		if !s.holds(1/(1+s.added(groups, i)), s.groups[groups[i]].floor) {
			return 0, false
		}
	}
	rate := k.RateAt(job, g)
	return rate, rate > 0
}

// PeakAt is the largest peak, in whole units of step, with which a GPU would take a job's worker, all else equal; see
// WithPeak. It is false where something other than memory refuses it, or not even one step fits.
func (k *Packer) PeakAt(job int, g cluster.GPU, step unit.Bytes) (unit.Bytes, bool) {
	first, _ := k.p.WorkersOf(job)
	kind := k.p.kindOf(first)
	if !k.p.sets.mayJoin(k.set[g], kind.group) || k.p.sameJob(k.overlay.Residents(g), first) || k.barred(job, g).Refused() {
		return 0, false
	}
	low, high := unit.Bytes(0), kind.profile.Peak()/step+1 // low fits, high does not
	for low+1 < high {
		middle := (low + high) / 2
		if k.memory(g, WithPeak(kind.profile, middle*step)).Refused() {
			high = middle
		} else {
			low = middle
		}
	}
	return low * step, low > 0
}

// WithPeak is a profile with a lower peak: its ephemeral part shrinks, each level by the same factor, and below it its
// persistent part. What fits with a peak fits with every lower one.
func WithPeak(p profile.Profile, peak unit.Bytes) profile.Profile {
	if peak >= p.Peak() {
		return p
	}
	if peak <= p.Persistent {
		return profile.Flat(peak)
	}
	q := profile.Profile{Persistent: p.Persistent}
	factor := float64(peak-p.Persistent) / float64(ephemeral(p))
	for i, l := range p.Ephemeral {
		bytes := unit.Bytes(math.Ceil(float64(l.Bytes) * factor))
		if i == len(p.Ephemeral)-1 {
			bytes = peak - p.Persistent
		}
		bytes = min(bytes, peak-p.Persistent)
		if n := len(q.Ephemeral); n > 0 && q.Ephemeral[n-1].Bytes >= bytes {
			q.Ephemeral[n-1].Fraction += l.Fraction
			continue
		}
		q.Ephemeral = append(q.Ephemeral, profile.Level{Bytes: bytes, Fraction: l.Fraction})
	}
	return q
}
