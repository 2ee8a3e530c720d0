package estimate

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Figures of the pilots. A pilot that fails costs about a window below the floor on the GPUs that it came to.
const (
	maxPilots         = 4         // pairs tried out at once
	pilotObservations = 64        // of each direction, after which a pair in doubt is left at that
	pilotTime         = time.Hour // after which a pair gives way to another for as long
	maxResting        = 4096      // pairs that had their time
)

// pilot is until when a pair is tried out.
type pilot struct{ until time.Time }

// resting is until when a pair that was tried out gives way; for good where it was observed often enough.
type resting struct {
	until   time.Time
	forever bool
}

// Count is the jobs of a kind, running or waiting, and the least floor among them.
type Count struct {
	Kind  Kind
	Jobs  int
	Floor float64
}

// crowd is the jobs of one row.
type crowd struct {
	row, jobs int
	floor     float64
}

// Review lifts bans that are over and ends and begins pilots: pairs that may be hoped to hold their floors but are not safe
// to share by what can be hoped of them, so that they are observed at all. Call it about once a window with the jobs that run
// or wait. It says whether the table of Safe has changed so that it is worth planning anew, by that or by what was learned of jobs
// alone. O(kinds^2).
func (b *Book) Review(now time.Time, jobs []Count) (changed bool) {
	crowds := b.crowds(jobs)
	b.refresh()
	changed = b.moved > News
	b.moved = 0
	for p, until := range b.bans {
		if !until.After(now) {
			b.Lift(p.a, p.b)
			changed = true
		}
	}
	for _, p := range b.trials() {
		if b.endPilot(now, p, crowds) {
			changed = true
		}
	}
	for p, r := range b.resting {
		if !r.forever && (!r.until.After(now) || r.until.After(now.Add(pilotTime))) {
			delete(b.resting, p)
		}
	}
	for len(b.pilots) < maxPilots {
		p, ok := b.choose(crowds)
		if !ok {
			break
		}
		i, l, _ := b.indexes(p)
		b.belief.Pilot(i, l)
		b.pilots[p] = pilot{now.Add(pilotTime)}
		changed = true
	}
	return changed
}

// Piloted says whether two kinds are being tried out.
func (b *Book) Piloted(i, l Kind) bool {
	_, ok := b.pilots[pairOf(b.rowKind(i), b.rowKind(l))]
	return ok
}

// trials are the pairs that are tried out, in order.
func (b *Book) trials() []pair { return slices.SortedFunc(maps.Keys(b.pilots), pair.compare) }

// crowds counts the jobs of each row, in order of kind; of very many, the largest.
func (b *Book) crowds(jobs []Count) []crowd {
	at := map[Kind]*Count{}
	for _, c := range jobs {
		if !c.Kind.named() || c.Jobs <= 0 {
			continue
		}
		if !(c.Floor > 0 && c.Floor <= 1) {
			c.Floor = 1
		}
		c.Kind = b.rowKind(c.Kind)
		if x := at[c.Kind]; x != nil {
			x.Jobs, x.Floor = x.Jobs+c.Jobs, min(x.Floor, c.Floor)
			continue
		}
		at[c.Kind] = &c
	}
	counts := slices.SortedFunc(maps.Values(at), func(x, y *Count) int { return cmp.Or(y.Jobs-x.Jobs, x.Kind.compare(y.Kind)) })
	counts = counts[:min(len(counts), maxRows/2)]
	slices.SortFunc(counts, func(x, y *Count) int { return x.Kind.compare(y.Kind) })
	for _, c := range counts {
		b.own(c.Kind) // a new row may number the others anew
	}
	list := make([]crowd, len(counts))
	for n, c := range counts {
		list[n] = crowd{b.own(c.Kind), c.Jobs, c.Floor}
	}
	return list
}

// endPilot ends a pilot that is done: seen often enough, not in doubt any more, or over. A pair without jobs is over.
func (b *Book) endPilot(now time.Time, p pair, crowds []crowd) bool {
	i, l, _ := b.indexes(p)
	b.belief.End(i, l)
	x, y := among(crowds, i), among(crowds, l)
	until := b.pilots[p].until
	switch {
	case min(b.belief.Seen(i, l), b.belief.Seen(l, i)) >= pilotObservations:
		b.rest(p, resting{forever: true})
	case x == nil || y == nil || !b.inDoubt(*x, *y):
	case !until.After(now), until.After(now.Add(pilotTime)): // or a clock that stepped back
		b.rest(p, resting{until: now.Add(pilotTime)})
	default:
		b.belief.Pilot(i, l)
		return false
	}
	delete(b.pilots, p)
	return true
}

func (b *Book) rest(p pair, r resting) {
	if len(b.resting) >= maxResting {
		clear(b.resting)
	}
	b.resting[p] = r
}

// among is the jobs of a row.
func among(crowds []crowd, row int) *crowd {
	for n := range crowds {
		if crowds[n].row == row {
			return &crowds[n]
		}
	}
	return nil
}

// choose is the pair with most jobs on both sides that is worth a try. Ties go to the first in order of kind.
func (b *Book) choose(crowds []crowd) (best pair, ok bool) {
	most := 0
	for n, x := range crowds {
		for _, y := range crowds[:n+1] {
			value := x.jobs * y.jobs
			if x.row == y.row {
				value = x.jobs * (x.jobs - 1)
			}
			if value > most && b.worth(x, y) {
				best, most, ok = pairOf(b.rows[x.row].kind, b.rows[y.row].kind), value, true
			}
		}
	}
	return best, ok
}

// worth says whether a pair could be tried out.
func (b *Book) worth(x, y crowd) bool {
	i, l := b.rows[x.row].kind, b.rows[y.row].kind
	if i.Class != l.Class && rank(i.Class)+rank(l.Class) == 3 || rank(i.Class) == 2 && rank(l.Class) == 2 {
		return false // a guaranteed job shares with a besteffort one only
	}
	p := pairOf(i, l)
	_, tried := b.pilots[p]
	_, rests := b.resting[p]
	return !tried && !rests && !b.Banned(i, l) && b.inDoubt(x, y)
}

// inDoubt says whether a pair that is not tried out may be hoped to hold its floors but is not safe to.
func (b *Book) inDoubt(x, y crowd) bool {
	holds := func(added func(i, l int) float64) bool {
		return 1/(1+added(x.row, y.row)) >= x.floor && 1/(1+added(y.row, x.row)) >= y.floor
	}
	return holds(b.belief.Hoped) && !holds(b.belief.Safe().Added)
}
