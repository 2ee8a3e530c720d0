// Package profile models the GPU memory of one worker over a training iteration: a persistent part that is always
// held and an ephemeral part that comes and goes. It answers how likely a set of workers is to want more than a GPU
// has, at one random instant.
package profile

import (
	"slices"

	"weft.dev/weft/internal/unit"
)

// Level is one step of a distribution: with probability Fraction the ephemeral demand is at most Bytes, and more
// than the level before.
type Level struct {
	Bytes    unit.Bytes
	Fraction float64
}

// Profile is one worker's memory: Persistent bytes always, plus a draw from Ephemeral. Levels ascend in Bytes and
// their fractions sum to 1; no levels means no ephemeral part. Levels are upper edges, so every answer errs on the
// safe side (first-order stochastic dominance).
type Profile struct {
	Persistent unit.Bytes
	Ephemeral  []Level
}

// Flat is a worker that holds its peak all the time: what a measurement from outside the process shows.
func Flat(peak unit.Bytes) Profile { return Profile{Persistent: peak} }

// New spreads the bytes between persistent and peak over a shape. A nil shape holds the peak all the time.
// peak below persistent counts as persistent.
func New(persistent, peak unit.Bytes, shape Shape) Profile {
	ephemeral := peak.Sub(persistent)
	if ephemeral == 0 || len(shape) == 0 {
		return Flat(max(persistent, peak))
	}
	p := Profile{Persistent: persistent, Ephemeral: make([]Level, 0, len(shape))}
	for i, fraction := range shape {
		edge, n := upperEdge(ephemeral, i, len(shape)), len(p.Ephemeral)
		switch {
		case fraction <= 0:
		case n > 0 && p.Ephemeral[n-1].Bytes == edge: // fewer bytes than levels
			p.Ephemeral[n-1].Fraction += fraction
		default:
			p.Ephemeral = append(p.Ephemeral, Level{edge, fraction})
		}
	}
	return p
}

// upperEdge is the upper edge of level i of n, rounded up to a whole byte, without forming the product with i.
func upperEdge(all unit.Bytes, i, n int) unit.Bytes {
	each, rest := all/unit.Bytes(n), all%unit.Bytes(n)
	return each*unit.Bytes(i+1) + (rest*unit.Bytes(i+1)+unit.Bytes(n)-1)/unit.Bytes(n)
}

// Peak is the most the worker ever holds.
func (p Profile) Peak() unit.Bytes {
	if len(p.Ephemeral) == 0 {
		return p.Persistent
	}
	return p.Persistent.Add(p.Ephemeral[len(p.Ephemeral)-1].Bytes)
}

// Mean is the expected demand: Persistent plus the mean of Ephemeral.
func (p Profile) Mean() float64 {
	mean := float64(p.Persistent)
	for _, l := range p.Ephemeral {
		mean += float64(l.Bytes) * l.Fraction
	}
	return mean
}

// AtPeak is p without its valleys: the profile that packing by peak memory assumes.
func (p Profile) AtPeak() Profile { return Flat(p.Peak()) }

// Compare orders profiles totally: by peak, persistent, then levels. It is 0 only for equal profiles.
func (p Profile) Compare(q Profile) int {
	if c := compare(p.Peak(), q.Peak()); c != 0 {
		return c
	}
	if c := compare(p.Persistent, q.Persistent); c != 0 {
		return c
	}
	return slices.CompareFunc(p.Ephemeral, q.Ephemeral, func(a, b Level) int {
		if c := compare(a.Bytes, b.Bytes); c != 0 {
			return c
		}
		return compare(a.Fraction, b.Fraction)
	})
}

func compare[T unit.Bytes | float64](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
