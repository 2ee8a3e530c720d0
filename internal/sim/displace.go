package sim

import (
	"slices"

	"weft.dev/weft/internal/policy"
)

// claim gets GPUs for a job: free ones, else such as only the runners from index next on hold.
func (l *preemptiveLine) claim(job int32, next int) bool {
	if l.seat(job) {
		return true
	}
	behind := l.heldBehind(next)
	if behind == 0 || l.rater == nil && l.held-behind+l.size[job] > l.capacity {
		return false
	}
	return l.displace(job, next)
}

// seat gets GPUs for a job that nobody needs to leave.
func (l *preemptiveLine) seat(job int32) bool {
	if l.rater == nil && l.held+l.size[job] > l.capacity {
		return false
	}
	slots, ok := l.placer.Place(int(job))
	if ok {
		l.take(job, slots)
	}
	return ok
}

func (l *preemptiveLine) take(job int32, slots []policy.Slot) {
	l.state[job].slots = slots
	l.held += l.size[job]
}

// heldBehind is what the runners from index next on hold; next never falls within a pass.
func (l *preemptiveLine) heldBehind(next int) int64 {
	if l.counted < 0 {
		l.behind, l.counted = 0, next
		for _, r := range l.running[next:] {
			l.behind += r.holds
		}
	}
	for ; l.counted < next; l.counted++ {
		l.behind -= l.running[l.counted].holds
	}
	return l.behind
}

// displace places a job at the cost of the runners furthest behind: as if the last few of the order held nothing,
// twice as many of them at each try, as far as index next; and gives back to these what is left. Few tries, since each
// may be dear to the placer; few runners, since each that is disturbed may disturb others in its turn.
func (l *preemptiveLine) displace(job int32, next int) bool {
	from, room := len(l.running), l.capacity-l.held
	var slots []policy.Slot
	ok := false
	for tail := 1; !ok && from > next; tail *= 2 {
		for ; from > next && (len(l.running)-from < tail || l.rater == nil && room < l.size[job]); from-- {
			if r := l.running[from-1]; r.holds > 0 {
				l.placer.Release(int(r.job), l.state[r.job].slots)
				room += r.holds
			}
		}
		slots, ok = l.placer.Place(int(job))
	}
	for i := from; i < len(l.running); i++ {
		if l.running[i].holds > 0 {
			l.restore(i)
		}
	}
	if ok {
		l.take(job, slots)
	}
	return ok
}

// restore gives a runner the GPUs back that displace released. From a placer that cannot do just that it takes what
// Place answers, which is a migration if it is something else.
func (l *preemptiveLine) restore(i int) {
	r := &l.running[i]
	s := &l.state[r.job]
	if l.retaker != nil {
		if !l.retaker.Retake(int(r.job), s.slots) {
			l.lose(r)
			return
		}
	} else {
		l.kept = append(l.kept[:0], s.slots...)
		slots, ok := l.placer.Place(int(r.job))
		if !ok {
			l.lose(r)
			return
		}
		if !slices.Equal(l.kept, slots) {
			l.unseat(r)
		}
		s.slots = slots
	}
	if r.resident && l.rater != nil {
		l.setRate(r.job, 1)
	}
}

// lose notes that a runner has no GPUs any more.
func (l *preemptiveLine) lose(r *runner) {
	l.unseat(r)
	l.held -= r.holds
	l.behind -= r.holds
	l.losing++
	r.holds = 0
	l.state[r.job].slots = nil
}

// unseat ends the stay of a runner on the GPUs that it had before the pass.
func (l *preemptiveLine) unseat(r *runner) {
	if !r.resident {
		return
	}
	r.resident = false
	l.advance(r.job)
	l.vacate(r.job)
	l.lost = append(l.lost, r.job)
}

// settle makes what the pass decided happen: all who had to leave have left, and now the others come.
func (l *preemptiveLine) settle() {
	if len(l.lost) > 0 {
		l.running = slices.DeleteFunc(l.running, func(r runner) bool { return r.holds == 0 })
		for i := range l.running {
			l.running[i].resident = true
		}
	}
	for _, job := range l.lost {
		s := &l.state[job]
		if s.slots != nil {
			s.migrations++
			l.start(job)
			continue
		}
		s.preemptions++
		l.events.remove(job)
		l.add(job)
	}
	for _, job := range l.started {
		l.start(job)
		l.insert(runner{job: job, resident: true, holds: l.size[job]})
	}
	l.started, l.lost = l.started[:0], l.lost[:0]
}
