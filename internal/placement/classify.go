package placement

import (
	"slices"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/profile"
)

// Bounds on the types of a configuration program. Its solution costs about the square of them per step, so more than
// maxTypes are refused; kinds that differ in memory only, of which a log may have one per job, are joined until so many
// are left. Where only memory is seen most pairs of types fit, and configurations to look at are many.
const (
	maxTypes       = 400
	joinedTypes    = 200
	joinedByMemory = 96
)

// itemType is one or more kinds that the configuration program does not tell apart.
type itemType struct {
	group   int32
	profile profile.Profile
	workers []cluster.Worker
}

// rounding says how kinds that are joined are represented.
type rounding bool

const (
	upward   rounding = true  // by a profile that dominates each: what fits for it fits for them
	downward rounding = false // by one that each dominates: what does not fit for it does not fit for them
)

// view says which differences between workers a program sees. Not to see interference relaxes it: all may share as far
// as memory allows.
type view bool

const (
	everything view = true
	memoryOnly view = false
)

// classify sorts the workers that may share into types. Workers that share with nobody or are too large are in none. It
// reports whether kinds were joined, and false in ok when there are more groups than types.
func (p *Problem) classify(r rounding, v view) (types []itemType, joined, ok bool) {
	parts := p.partition(v)
	kinds := 0
	for i := range parts {
		kinds += len(parts[i].kinds)
	}
	if kinds > maxTypes {
		if len(parts) > maxTypes {
			return nil, true, false
		}
		most := joinedTypes
		if v == memoryOnly {
			most = joinedByMemory
		}
		parts, joined = split(parts, max(most, len(parts))), true
	} else {
		parts = split(parts, kinds)
	}
	for _, part := range parts {
		types = append(types, p.typeOf(part, r))
	}
	return types, joined, true
}

// typeOf is the type of a part.
func (p *Problem) typeOf(part part, r rounding) itemType {
	t := itemType{group: part.group}
	profiles := make([]profile.Profile, len(part.kinds))
	for i, k := range part.kinds {
		profiles[i] = k.profile
		t.workers = append(t.workers, k.members...)
	}
	slices.Sort(t.workers)
	t.profile = represent(profiles, r)
	return t
}

// workersByKind lists the workers of each kind that may share, in order.
func (p *Problem) workersByKind() [][]cluster.Worker {
	members := make([][]cluster.Worker, len(p.kinds))
	for w := range p.job {
		k := p.kind[p.job[w]]
		if p.kinds[k].group != alone && !p.TooLarge(int(p.job[w])) {
			members[k] = append(members[k], cluster.Worker(w))
		}
	}
	return members
}

func represent(profiles []profile.Profile, r rounding) profile.Profile {
	if r == upward {
		return profile.Dominating(profiles)
	}
	return profile.Dominated(profiles)
}
