package arbiter

import "time"

// gaps remembers how long a job's last gaps were, from its release of the token to its next request. A mean would not
// do: jobs have short gaps within an iteration and long ones between two, and the mean of both never happens.
type gaps struct {
	last [16]time.Duration // enough for one in eight to be left out as an outlier
	n    int               // ever
}

func (g *gaps) add(d time.Duration) {
	g.last[g.n%len(g.last)] = d
	g.n++
}

// full says whether all of the memory is in use.
func (g *gaps) full() bool { return g.n >= len(g.last) }

// shortest is the shortest gap remembered, 0 for none.
func (g *gaps) shortest() time.Duration {
	least, _ := g.longer(-1)
	return least
}

// beyond is how many of the gaps remembered were longer than that.
func (g *gaps) beyond(elapsed time.Duration) int {
	n := 0
	for _, d := range g.last[:min(g.n, len(g.last))] {
		if d > elapsed {
			n++
		}
	}
	return n
}

// longer is the shortest and the second shortest of the gaps remembered that were longer than elapsed, 0 where there
// is none.
func (g *gaps) longer(elapsed time.Duration) (first, second time.Duration) {
	for _, d := range g.last[:min(g.n, len(g.last))] {
		switch {
		case d <= elapsed:
		case first == 0 || d < first:
			first, second = d, first
		case second == 0 || d < second:
			second = d
		}
	}
	return first, second
}

// length predicts how long a gap will be that has lasted for elapsed: the second shortest of the remembered ones that
// were longer, so that about one gap in eight ends early; while there are few, the shortest. Longer than all of them,
// it is expected to last as long again. O(1).
func (g *gaps) length(elapsed time.Duration) time.Duration {
	first, second := g.longer(elapsed)
	switch {
	case first == 0:
		return 2 * elapsed
	case second == 0 || !g.full():
		return first
	}
	return second
}
