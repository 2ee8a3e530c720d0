package placement

import (
	"slices"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/profile"
	"weft.dev/weft/internal/unit"
)

// maxTypes bounds the types of a configuration program: its solution costs about the square of them per step. A log
// whose jobs all differ in memory has more kinds, which are then joined on a grid.
const maxTypes = 200

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

// classify sorts the workers that may share into at most maxTypes types. Workers that share with nobody or are too
// large are in none. It reports whether kinds were joined, and false in ok when there are more groups than types.
func (p *Problem) classify(r rounding) (types []itemType, joined, ok bool) {
	members := p.workersByKind()
	for cells := unit.Bytes(0); ; cells /= 2 {
		types = p.typesOnGrid(members, cells, r)
		if len(types) <= maxTypes {
			return types, cells > 0, true
		}
		switch cells {
		case 0:
			cells = 2 * finestGrid
		case 1:
			return nil, true, false
		}
	}
}

// finestGrid is the number of cells of GPU memory that kinds are first joined on: about a quarter of a GiB on usual
// GPUs.
const finestGrid = 64

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

// typesOnGrid joins the kinds of one group whose persistent memory and peak lie in the same cells. No cells joins
// only equal profiles.
func (p *Problem) typesOnGrid(members [][]cluster.Worker, cells unit.Bytes, r rounding) []itemType {
	type cell struct {
		group            int32
		persistent, peak unit.Bytes
		exact            int
	}
	var types []itemType
	var profiles [][]profile.Profile
	index := map[cell]int{}
	for k, workers := range members {
		if len(workers) == 0 {
			continue
		}
		kind := &p.kinds[k]
		at := cell{group: kind.group, exact: k}
		if cells > 0 {
			width := max(1, p.options.GPUMemory/cells)
			at = cell{kind.group, min(kind.profile.Persistent/width, cells-1), min(kind.profile.Peak()/width, cells-1), 0}
		}
		i, known := index[at]
		if !known {
			i = len(types)
			index[at] = i
			types = append(types, itemType{group: kind.group})
			profiles = append(profiles, nil)
		}
		types[i].workers = append(types[i].workers, workers...)
		profiles[i] = append(profiles[i], kind.profile)
	}
	for i := range types {
		types[i].profile = represent(profiles[i], r)
		slices.Sort(types[i].workers)
	}
	return types
}

func represent(profiles []profile.Profile, r rounding) profile.Profile {
	if r == upward {
		return profile.Dominating(profiles)
	}
	return profile.Dominated(profiles)
}
