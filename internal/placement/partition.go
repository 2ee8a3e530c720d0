package placement

import (
	"cmp"
	"slices"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/profile"
	"weft.dev/weft/internal/unit"
)

// member is a kind with its workers.
type member struct {
	profile profile.Profile
	members []cluster.Worker
}

// part is kinds of one group that are to become one type.
type part struct {
	group int32
	kinds []member
}

// partition makes one part of each group, or one of all for a view without interference.
func (p *Problem) partition(v view) []part {
	var parts []part
	index := map[int32]int{}
	for k, workers := range p.workersByKind() {
		if len(workers) == 0 {
			continue
		}
		group := p.kinds[k].group
		if v == memoryOnly {
			group = 0
		}
		i, known := index[group]
		if !known {
			i = len(parts)
			index[group] = i
			parts = append(parts, part{group: group})
		}
		parts[i].add(member{p.kinds[k].profile, workers})
	}
	return parts
}

// add joins kinds of one profile, which differ in what a program does not see. Kinds come ordered by profile in a group.
func (q *part) add(m member) {
	if n := len(q.kinds); n > 0 && q.kinds[n-1].profile.Compare(m.profile) == 0 {
		q.kinds[n-1].members = append(q.kinds[n-1].members, m.members...)
		return
	}
	q.kinds = append(q.kinds, m)
}

// split cuts parts in two until there are so many, or no part has kinds that differ: always the one whose workers
// differ most in memory, at the median of what they differ most in, persistent memory or peak. So types are fine where
// many workers are, as the cells of a k-d tree. O(kinds log kinds) per level of cuts.
func split(parts []part, most int) []part {
	for len(parts) < most {
		widest, cost := -1, -1.0
		for i := range parts {
			if c := parts[i].cost(); len(parts[i].kinds) > 1 && c > cost {
				widest, cost = i, c
			}
		}
		if widest < 0 {
			return parts
		}
		low, high := parts[widest].halves()
		parts[widest] = low
		parts = append(parts, high)
	}
	return parts
}

// cost is how much memory is lost to joining: workers times the width of the part.
func (q *part) cost() float64 {
	workers := 0
	for _, k := range q.kinds {
		workers += len(k.members)
	}
	return float64(workers) * float64(max(q.width(persistentOf), q.width(peakOf)))
}

func persistentOf(k member) unit.Bytes { return k.profile.Persistent }

func peakOf(k member) unit.Bytes { return k.profile.Peak() }

func (q *part) width(of func(member) unit.Bytes) unit.Bytes {
	least, most := of(q.kinds[0]), of(q.kinds[0])
	for _, k := range q.kinds[1:] {
		least, most = min(least, of(k)), max(most, of(k))
	}
	return most - least
}

// halves cuts a part at the median of its wider side. Kinds are ordered totally, so the cut does not depend on theirs.
func (q *part) halves() (low, high part) {
	of := peakOf
	if q.width(persistentOf) > q.width(peakOf) {
		of = persistentOf
	}
	kinds := slices.Clone(q.kinds)
	slices.SortFunc(kinds, func(a, b member) int {
		return cmp.Or(cmp.Compare(of(a), of(b)), a.profile.Compare(b.profile), cmp.Compare(a.members[0], b.members[0]))
	})
	middle := len(kinds) / 2
	return part{q.group, kinds[:middle]}, part{q.group, kinds[middle:]}
}
