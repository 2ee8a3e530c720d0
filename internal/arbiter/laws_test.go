package arbiter

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weft.dev/weft/internal/unit"
)

func (w *world) pass(d time.Duration) { w.now = w.now.Add(d) }

func (w *world) join() {
	job := JobID(rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(w.t, "job"))
	if _, ok := w.classOf[job]; !ok {
		w.classOf[job] = Class(rapid.IntRange(0, 2).Draw(w.t, "class"))
	}
	w.next++
	s := Session{
		ID: w.next, Job: job, Class: w.classOf[job], Weight: 1 + len(job),
		GPUs: rapid.SliceOfNDistinct(rapid.IntRange(0, w.gpus-1), 1, w.gpus, rapid.ID[int]).Draw(w.t, "gpus"),
	}
	d, err := w.a.Join(w.now, s)
	if err != nil {
		w.t.Fatal(err)
	}
	w.sessions = append(w.sessions, &believer{Session: s, by: unit.Never})
	w.judge(d)
}

func (w *world) leave(s *believer) {
	w.sessions = slices.DeleteFunc(w.sessions, func(x *believer) bool { return x == s })
	w.judge(w.a.Leave(w.now, s.ID))
}

func (w *world) request(s *believer) {
	s.wants = s.live == 0
	w.judge(w.a.Request(w.now, s.ID))
}

func (w *world) release(s *believer) {
	r := Release{Epoch: s.live, Used: time.Millisecond, Launched: true}
	if s.ahead { // it came back from its gap, or not
		r.Launched = rapid.Bool().Draw(w.t, "launched")
		r.Rested = time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(w.t, "rested"))
	}
	s.live, s.by = 0, unit.Never
	w.judge(w.a.Released(w.now, s.ID, r))
}

// restart replaces the arbiter. Sessions join again, and those that believe they hold a token say so, hung ones of
// overruns included.
func (w *world) restart() {
	w.settled = w.now.Add(w.o.Settle)
	w.a = Restore(w.now, w.gpus, w.o, w.a.Epoch())
	old := w.sessions
	w.sessions = nil
	for _, i := range rapid.Permutation(indices(len(old))).Draw(w.t, "order") {
		s := old[i]
		s.Epoch, s.wants, s.told, s.by = max(s.live, s.revoked), false, false, unit.Never
		s.live, s.revoked = s.Epoch, 0
		w.sessions = append(w.sessions, s)
		d, err := w.a.Join(w.now, s.Session)
		if err != nil {
			w.t.Fatal(err)
		}
		w.judge(d)
	}
}

func indices(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// step is one arbitrary event.
func (w *world) step() {
	w.pass(time.Duration(rapid.SampledFrom([]int{0, 1, 50, 300, 3000, 30000, 300000}).Draw(w.t, "us")) * time.Microsecond)
	if next := w.a.Next(); next < w.now { // an arbiter is called when it asks to be
		now := w.now
		for ; next <= now; next = w.a.Next() {
			w.now = next
			w.judge(w.a.Tick(next))
		}
		w.now = now
	}
	w.judge(w.a.Tick(w.now))
	what := rapid.IntRange(0, 19).Draw(w.t, "what")
	if len(w.sessions) == 0 || what == 0 && len(w.sessions) < 8 {
		w.join()
		return
	}
	s := rapid.SampledFrom(w.sessions).Draw(w.t, "session")
	if what > 16 { // who was told to leave does so
		for _, other := range w.sessions {
			if other.live > 0 && other.told {
				s = other
			}
		}
	}
	switch {
	case what == 1:
		w.leave(s)
	case what == 2:
		w.restart()
	case what == 3:
		w.judge(w.a.Released(w.now, s.ID, Release{Epoch: s.live + uint64(1+what), Used: time.Hour, Overrun: time.Hour, Launched: true}))
	case what < 6:
		w.judge(w.a.Idle(w.now, s.ID))
	case what < 12:
		w.request(s)
	case s.live > 0:
		w.release(s)
	}
}

// finish lets every session that wants run once, with sessions that obey, and none ask again.
func (w *world) finish() {
	for range 5000 {
		left := false
		for _, s := range slices.Clone(w.sessions) {
			if s.live > 0 {
				w.pass(10 * time.Microsecond)
				w.release(s)
			}
			left = left || s.wants
		}
		if !left {
			return
		}
		if next := w.a.Next(); next < unit.Never {
			w.now = max(w.now, next)
			w.judge(w.a.Tick(w.now))
		}
	}
	w.t.Fatalf("at %d jobs still wait: %+v", w.now, fmt.Sprint(w.a.waiting))
}

// TestLaws: whatever sessions do, a GPU has one holder, epochs rise, gangs are granted whole, the silent are overrun in
// time, a restart grants nothing twice, no free GPU is kept from its only claimant; and in the end everybody has run.
func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Options{}.withDefaults()
		if rapid.Bool().Draw(t, "minimum") {
			o.Minimum = 0.2
		}
		gpus := rapid.IntRange(1, 3).Draw(t, "gpus")
		w := &world{t: t, a: New(gpus, o), o: o, gpus: gpus, classOf: map[JobID]Class{}}
		for range rapid.IntRange(1, 500).Draw(t, "steps") {
			w.step()
		}
		w.finish()
	})
}
