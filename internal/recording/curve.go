package recording

import (
	"cmp"
	"slices"
	"strings"

	"weft.dev/weft/internal/unit"
)

// Point says that Bytes were held from At on.
type Point struct {
	At    unit.Time
	Bytes unit.Bytes
}

// Curve is memory over time: steps, ascending in time, up to End. The zero value is empty.
type Curve struct {
	Points []Point
	End    unit.Time
}

// Empty says whether nothing was recorded.
func (c Curve) Empty() bool { return len(c.Points) == 0 }

// Start is the first time; the curve must not be empty.
func (c Curve) Start() unit.Time { return c.Points[0].At }

// index is the point that holds at a time: the last one at or before it, the first one before the curve begins.
func (c Curve) index(at unit.Time) int {
	i, found := slices.BinarySearchFunc(c.Points, at, func(p Point, t unit.Time) int { return cmpTime(p.At, t) })
	for found && i+1 < len(c.Points) && c.Points[i+1].At == at {
		i++
	}
	if !found {
		i--
	}
	return max(i, 0)
}

// Each calls f with every level that is held in [from, to) and for how long. A level that something else replaced at the
// same instant was held for no measurable time; it counts as one nanosecond, so that no peak is lost.
func (c Curve) Each(from, to unit.Time, f func(held unit.Bytes, ns int64)) {
	for i := c.index(from); i < len(c.Points) && (c.Points[i].At < to || i == 0); i++ {
		end := to
		if i+1 < len(c.Points) {
			end = min(to, c.Points[i+1].At)
		}
		f(c.Points[i].Bytes, max(1, int64(end-max(from, c.Points[i].At))))
	}
}

// Range is the least and the most that is held in [from, to).
func (c Curve) Range(from, to unit.Time) (least, most unit.Bytes) {
	first := true
	c.Each(from, to, func(held unit.Bytes, _ int64) {
		if first {
			least, most, first = held, held, false
		}
		least, most = min(least, held), max(most, held)
	})
	return least, most
}

// maxPoints bounds a curve: 32 MiB. A longer recording is thinned as it is read.
const maxPoints = 1 << 21

// Builder gathers points, which may come slightly out of order, in bounded memory.
type Builder struct {
	points    []Point
	last      unit.Time
	stride    int // how many points were thinned into one
	pending   int // points in the last one
	unordered bool
	thinned   bool
}

// Add records a level; equal levels in a row are one.
func (b *Builder) Add(at unit.Time, held unit.Bytes) {
	n := len(b.points)
	if n > 0 && at < b.points[n-1].At {
		b.unordered = true
	}
	b.last = max(b.last, at)
	switch {
	case n > 0 && b.points[n-1].Bytes == held && !b.unordered:
		return
	case b.pending > 0 && b.pending < b.stride:
		b.points[n-1].Bytes = max(b.points[n-1].Bytes, held)
		b.pending++
		return
	case n >= maxPoints:
		b.thin()
	}
	b.points = append(b.points, Point{at, held})
	b.pending = 1
}

// Points counts the points gathered.
func (b *Builder) Points() int { return len(b.points) }

// thin joins neighbours into the larger of both: the thinned curve is never below the true one.
func (b *Builder) thin() {
	b.sort()
	half := b.points[:0]
	for i := 0; i+1 < len(b.points); i += 2 {
		p := b.points[i]
		p.Bytes = max(p.Bytes, b.points[i+1].Bytes)
		half = append(half, p)
	}
	b.points = half
	b.stride = max(1, b.stride) * 2
	b.thinned = true
}

func (b *Builder) sort() {
	if b.unordered {
		slices.SortStableFunc(b.points, func(x, y Point) int { return cmpTime(x.At, y.At) })
		b.unordered = false
	}
}

// Curve is what was gathered, shifted by offset and so that nothing is negative, with end as the end of the recording
// where that is later than the last point. thinned says that neighbours were joined. The Builder must not be used
// afterwards.
func (b *Builder) Curve(offset unit.Bytes, end unit.Time) (c Curve, thinned bool) {
	b.sort()
	least := unit.Bytes(0)
	for _, p := range b.points {
		least = min(least, p.Bytes.Add(offset))
	}
	for i := range b.points {
		b.points[i].Bytes = max(0, b.points[i].Bytes.Add(offset).Add(-least))
	}
	return Curve{Points: b.points, End: max(end, b.last)}, b.thinned
}

func cmpTime(a, b unit.Time) int { return cmp.Compare(a, b) }

func join(list []string) string { return strings.Join(list, ", ") }
