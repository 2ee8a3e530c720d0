package policy

import (
	"time"

	"weft.dev/weft/internal/interference"
	"weft.dev/weft/internal/unit"
)

// Figures of the pilots. A pilot that fails costs about a window below the floor on the GPUs that it came to, so few at a
// time keep that loss far below a per cent.
const (
	maxPilots         = 8         // pairs tried out at once
	pilotObservations = 64        // of each direction, after which a pair in doubt is left at that
	pilotTime         = time.Hour // after which a pair gives way to another for as long
)

// pilots are the pairs of configurations that are being tried out.
type pilots struct {
	active  []pilot
	next    unit.Time            // when to look for others at the earliest
	running []int                // jobs of each configuration
	floor   []float64            // least floor of a job of each configuration
	resting map[[2]int]unit.Time // pairs that had their time, and until when they give way
}

type pilot struct {
	pair  [2]int
	until unit.Time
}

func newPilots(a *Adjusting) pilots {
	n := a.o.Belief.Safe().Len()
	p := pilots{running: make([]int, n), floor: make([]float64, n), resting: map[[2]int]unit.Time{}}
	for i := range p.floor {
		p.floor[i] = 1
	}
	jobs := a.problem.Jobs()
	for j, i := range a.config {
		if i >= 0 {
			p.floor[i] = min(p.floor[i], jobs[j].Floor)
		}
	}
	return p
}

// count notes that jobs of a configuration started or ended.
func (p *pilots) count(config, change int) {
	if config >= 0 {
		p.running[config] += change
	}
}

// review ends pilots that are done and begins others. It returns 1 when it did either: that is news to placement.
func (p *pilots) review(a *Adjusting) float64 {
	if a.now < p.next {
		return 0
	}
	p.next = a.now.Add(a.o.Window)
	news, b := 0.0, a.o.Belief
	kept := p.active[:0]
	for _, x := range p.active {
		i, l := x.pair[0], x.pair[1]
		b.End(i, l)
		switch {
		case min(b.Seen(i, l), b.Seen(l, i)) >= pilotObservations:
			p.resting[x.pair] = unit.Never
		case !p.inDoubt(b, i, l):
		case a.now >= x.until:
			p.resting[x.pair] = a.now.Add(pilotTime)
		default:
			b.Pilot(i, l)
			kept = append(kept, x)
			continue
		}
		news = 1
	}
	p.active = kept
	for len(p.active) < maxPilots {
		pair, ok := p.choose(a.now, b)
		if !ok {
			break
		}
		b.Pilot(pair[0], pair[1])
		p.active = append(p.active, pilot{pair, a.now.Add(pilotTime)})
		news = 1
	}
	return news
}

// choose is the pair with most running jobs on both sides among those that may be hoped to hold their floors and are not
// safe to. Ties go to the lowest numbers. O(configurations^2).
func (p *pilots) choose(now unit.Time, b *interference.Belief) (best [2]int, ok bool) {
	most := 0
	for i, n := range p.running {
		for l := 0; l <= i && n > 0; l++ {
			value := n * p.running[l]
			if i == l {
				value = n * (n - 1)
			}
			if value > most && p.worth(now, b, i, l) {
				best, most, ok = [2]int{i, l}, value, true
			}
		}
	}
	return best, ok
}

// worth says whether a pair could be tried out.
func (p *pilots) worth(now unit.Time, b *interference.Belief, i, l int) bool {
	pair := [2]int{i, l}
	for _, x := range p.active {
		if x.pair == pair {
			return false
		}
	}
	return now >= p.resting[pair] && !b.Banned(i, l) && p.inDoubt(b, i, l)
}

// inDoubt says whether a pair may be hoped to hold its floors but is not safe to. A pair that is tried out counts as safe,
// so its pilot must have ended.
func (p *pilots) inDoubt(b *interference.Belief, i, l int) bool {
	return p.holds(b.Hoped, i, l) && !p.holds(b.Safe().Added, i, l)
}

// holds says whether both directions of a pair hold the least floors there are.
func (p *pilots) holds(added func(i, l int) float64, i, l int) bool {
	return 1/(1+added(i, l)) >= p.floor[i] && 1/(1+added(l, i)) >= p.floor[l]
}
