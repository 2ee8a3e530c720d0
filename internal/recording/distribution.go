package recording

import (
	"slices"

	"weft.dev/weft/internal/profile"
	"weft.dev/weft/internal/unit"
)

// distribution is how long each level was held: ascending levels, each once.
type distribution struct {
	levels []holding
	total  int64 // ns
}

type holding struct {
	bytes unit.Bytes
	ns    int64
}

// gather is the distribution of a curve over some spans of time; a level held in two of them counts twice.
func gather(c Curve, spans []Iteration) distribution {
	var d distribution
	for _, s := range spans {
		c.Each(s.Start, s.End, func(held unit.Bytes, ns int64) {
			d.levels = append(d.levels, holding{held, ns})
			d.total += ns
		})
	}
	slices.SortFunc(d.levels, func(a, b holding) int { return int(min(1, max(-1, a.bytes-b.bytes))) })
	joined := d.levels[:0]
	for _, h := range d.levels {
		if n := len(joined); n > 0 && joined[n-1].bytes == h.bytes {
			joined[n-1].ns += h.ns
			continue
		}
		joined = append(joined, h)
	}
	d.levels = joined
	return d
}

func (d distribution) least() unit.Bytes { return d.levels[0].bytes }
func (d distribution) most() unit.Bytes  { return d.levels[len(d.levels)-1].bytes }

func (d distribution) mean() float64 {
	sum := 0.0
	for _, h := range d.levels {
		sum += float64(h.bytes) * (float64(h.ns) / float64(d.total))
	}
	return sum
}

// median is the level that is not exceeded half of the time.
func (d distribution) median() unit.Bytes {
	passed := int64(0)
	for _, h := range d.levels {
		if passed += h.ns; passed >= d.total/2 {
			return h.bytes
		}
	}
	return d.most()
}

// quantise divides what lies above the least level into equal cells and counts each as its upper edge: at any instant
// the profile holds at least what was held, so it dominates the distribution. Its peak is the true one.
func quantise(d distribution, cells int) profile.Profile {
	p := profile.Profile{Persistent: d.least()}
	swing := d.most() - d.least()
	if swing == 0 {
		return p
	}
	k := unit.Bytes(min(max(cells, 1), MaxLevels))
	cell, edge, ns := unit.Bytes(0), unit.Bytes(0), int64(0)
	for _, h := range d.levels {
		x := h.bytes - p.Persistent
		for cell == 0 || x > edge {
			cell++
			edge = (swing*cell + k - 1) / k
		}
		n := len(p.Ephemeral)
		if n == 0 || p.Ephemeral[n-1].Bytes != edge {
			p.Ephemeral = append(p.Ephemeral, profile.Level{Bytes: edge})
			n, ns = n+1, 0
		}
		ns += h.ns
		p.Ephemeral[n-1].Fraction = float64(ns) / float64(d.total)
	}
	return p
}

// valley is the largest rectangle of memory and time that lies between the curve and its peak: Depth bytes are free for
// Share of the time at least.
type valley struct {
	Depth unit.Bytes
	Share float64
}

func (d distribution) valley() valley {
	var best valley
	most := d.most()
	passed := int64(0)
	for _, h := range d.levels {
		passed += h.ns
		v := valley{most - h.bytes, float64(passed) / float64(d.total)}
		if float64(v.Depth)*v.Share > float64(best.Depth)*best.Share {
			best = v
		}
	}
	return best
}
