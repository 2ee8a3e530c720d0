package adjust

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/dispatch"
	"weft.dev/weft/internal/estimate"
	"weft.dev/weft/internal/kube/queue"
)

// observe makes of a window what a job keeps of its speed, and corrects what is believed by it.
func (l *look) observe(s *seen) {
	w := windowOf(s)
	news := s.window.End.After(l.known)
	l.learn(s, w)
	if news {
		l.book.Learn(s.job.Key, w)
	}
	rate, noise, ok := l.rateOf(s, w)
	if !ok {
		return
	}
	v := l.views[viewOf(s.job)]
	if v == nil {
		v = &view{}
		l.views[viewOf(s.job)] = v
	}
	v.rate = rate
	v.windows++
	v.mean += (rate - v.mean) / float64(v.windows)
	if rate < s.state.Floor-noise {
		v.below, v.spent = v.below+w.Length, v.spent+w.Length
	} else {
		v.below = 0
	}
	l.fresh = append(l.fresh, s)
	if news && l.together(s) {
		l.found.News = max(l.found.News, l.book.Observe(s.job.Kind, l.kinds(s.others), rate, noise))
	}
}

// rateOf is the rate that a window shows, with its noise: alone a job has its whole speed, whatever it does with it.
func (l *look) rateOf(s *seen, w estimate.Window) (rate, noise float64, ok bool) {
	if w.Alone {
		return 1, 0, true
	}
	return l.book.Rate(s.job.Key, w)
}

// Rates are what jobs keep of their speed by the last window of each, for who knows no earlier one. Nothing is corrected by it.
func Rates(q *queue.Queue, b *estimate.Book) map[box.ID]float64 {
	l := &look{Adjuster: New(), q: q, book: b}
	rates := map[box.ID]float64{}
	for _, s := range l.placed() {
		if !l.hear(s) {
			continue
		}
		if rate, _, ok := l.rateOf(s, windowOf(s)); ok {
			rates[s.job.ID] = rate
		}
	}
	return rates
}

// windowOf is a window as the book takes it. A job is alone where nobody is beside any of its workers.
func windowOf(s *seen) estimate.Window {
	w := s.window
	duration := func(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }
	e := estimate.Window{Length: duration(w.Seconds), Wait: duration(w.Wait), Stall: duration(w.Stall), Held: duration(w.Held), Used: duration(w.Used),
		Age: duration(w.Age), Iterations: uint64(max(0, w.Iterations)), Alone: w.Beside == 0 && len(s.others) == 0}
	if e.Alone {
		e.Utilisation = w.Utilisation
	}
	return e
}

// together says whether a window was seen beside just the jobs that are there by their claims: claims and windows come on ways of
// their own, and a rate beside others than these would be held against the wrong ones.
func (l *look) together(s *seen) bool {
	if len(s.others) == 0 || s.window.Beside != len(s.others) {
		return false
	}
	for _, id := range s.others {
		if d := l.stateOf(id); d == nil || d.Started.After(s.window.End.Time) {
			return false
		}
	}
	return true
}

// stateOf is a job of the question; nil for none.
func (l *look) stateOf(id box.ID) *dispatch.Job {
	if i := int(id) - 1; i >= 0 && i < len(l.q.State.Jobs) && l.q.State.Jobs[i].ID == id {
		return &l.q.State.Jobs[i]
	}
	return nil
}

func (l *look) kinds(ids []box.ID) []estimate.Kind {
	var kinds []estimate.Kind
	for _, id := range ids {
		kinds = append(kinds, l.q.Jobs[id].Kind)
	}
	return kinds
}

// began is when a window began.
func began(w *v1alpha1.Window) time.Time {
	return w.End.Add(-time.Duration(w.Seconds * float64(time.Second)))
}

// running says whether a Pod runs and is to go on.
func running(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil
}
