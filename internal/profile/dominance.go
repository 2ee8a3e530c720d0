package profile

import (
	"slices"

	"weft.dev/weft/internal/unit"
)

// Dominating is the least profile of this form that needs at least as much memory as each of the given ones, with at
// least the same probability (first-order stochastic dominance): a set that fits with it fits with any of them.
func Dominating(profiles []Profile) Profile {
	persistent := unit.Bytes(0)
	for _, p := range profiles {
		persistent = max(persistent, p.Persistent)
	}
	return envelope(persistent, profiles, func(p Profile) unit.Bytes { return persistent - p.Persistent },
		func(a, b float64) float64 { return min(a, b) })
}

// Dominated is a profile that each of the given ones dominates: a set that does not fit with it fits with none.
func Dominated(profiles []Profile) Profile {
	persistent := profiles[0].Persistent
	for _, p := range profiles {
		persistent = min(persistent, p.Persistent)
	}
	return envelope(persistent, profiles, func(Profile) unit.Bytes { return 0 },
		func(a, b float64) float64 { return max(a, b) })
}

// envelope combines the distribution functions of the ephemeral parts, each first lowered by what shift says.
func envelope(persistent unit.Bytes, profiles []Profile, shift func(Profile) unit.Bytes,
	combine func(a, b float64) float64) Profile {
	edges := []unit.Bytes{0}
	for _, p := range profiles {
		for _, l := range p.Ephemeral {
			edges = append(edges, l.Bytes.Sub(shift(p)))
		}
	}
	slices.Sort(edges)
	out, before := Profile{Persistent: persistent}, 0.0
	for _, edge := range slices.Compact(edges) {
		below := profiles[0].atMost(edge.Add(shift(profiles[0])))
		for _, p := range profiles[1:] {
			below = combine(below, p.atMost(edge.Add(shift(p))))
		}
		if below > before {
			out.Ephemeral = append(out.Ephemeral, Level{edge, below - before})
			before = below
		}
	}
	if len(out.Ephemeral) == 1 && out.Ephemeral[0].Bytes == 0 {
		out.Ephemeral = nil
	}
	return out
}

// atMost is P[ephemeral <= b] for b >= 0.
func (p Profile) atMost(b unit.Bytes) float64 {
	return 1 - tail(p.Ephemeral, b)
}
