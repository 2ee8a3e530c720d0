package arbiter

import (
	"slices"

	"pgregory.net/rapid"

	"weft.dev/weft/internal/unit"
)

// world is what sessions believe under an arbiter that is handed arbitrary events, and judges every decision.
type world struct {
	t        *rapid.T
	a        *Arbiter
	o        Options
	gpus     int
	now      unit.Time
	settled  unit.Time
	sessions []*believer
	classOf  map[JobID]Class
	epoch    uint64
	next     SessionID
}

type believer struct {
	Session
	live    uint64 // epoch that it was granted and nobody took away
	told    bool   // to drop it, or to yield
	ahead   bool   // it did not ask for it
	by      unit.Time
	wants   bool
	revoked uint64 // epoch of an overrun that it does not know of
}

func (w *world) find(id SessionID) *believer {
	for _, s := range w.sessions {
		if s.ID == id {
			return s
		}
	}
	w.t.Fatalf("a decision is for session %d, which is not there", id)
	return nil
}

func (w *world) judge(decisions []Decision) {
	had := map[JobID]bool{}
	for _, s := range w.sessions {
		had[s.Job] = had[s.Job] || s.live > 0
	}
	granted := map[JobID]int{}
	before := w.epoch
	for _, d := range decisions {
		s := w.find(d.Session)
		switch d.Kind {
		case Grant:
			if d.Epoch <= before || d.Epoch < w.epoch || s.live > 0 || w.now < w.settled || d.Deadline <= w.now {
				w.t.Fatalf("at %d (settled %d, epoch %d) %+v for %+v", w.now, w.settled, w.epoch, d, *s)
			}
			if d.Ahead && slices.ContainsFunc(w.of(s.Job), func(x *believer) bool { return x.wants }) {
				w.t.Fatalf("%+v ahead, and the job waits", d)
			}
			w.epoch, s.live, s.told, s.wants, s.ahead, s.by = d.Epoch, d.Epoch, false, false, d.Ahead, unit.Never
			if d.Deadline < unit.Never {
				s.by = d.Deadline.Add(w.o.MaxDrain)
			}
			granted[s.Job]++
		case Yield, Narrow:
			if s.live != d.Epoch {
				w.t.Fatalf("%+v for %+v", d, *s)
			}
			s.told = s.told || d.Kind == Yield
		case Drop:
			if s.live != d.Epoch {
				w.t.Fatalf("%+v for %+v", d, *s)
			}
			s.told, s.by = true, min(s.by, w.now.Add(w.o.MaxDrain))
			if d.Reason == Stale {
				s.live = 0
			}
		case Overrun:
			if s.live != d.Epoch || w.now < s.by {
				w.t.Fatalf("at %d %+v for %+v", w.now, d, *s)
			}
			s.live, s.revoked = 0, d.Epoch
		}
	}
	for job, n := range granted {
		if all := len(w.of(job)); !had[job] && n != all {
			w.t.Fatalf("%d of %d sessions of job %s were granted", n, all, job)
		}
	}
	w.check()
}

func (w *world) of(job JobID) []*believer {
	var of []*believer
	for _, s := range w.sessions {
		if s.Job == job {
			of = append(of, s)
		}
	}
	return of
}

// check holds what is true at all times.
func (w *world) check() {
	holders := make([]JobID, w.gpus)
	for _, s := range w.sessions {
		for _, g := range s.GPUs {
			if s.live > 0 {
				if holders[g] != "" && holders[g] != s.Job {
					w.t.Fatalf("jobs %s and %s hold GPU %d", holders[g], s.Job, g)
				}
				holders[g] = s.Job
			}
			if s.live > 0 && (w.now >= s.by || w.a.Next() > s.by) {
				w.t.Fatalf("at %d, next call %d: %+v is not overrun in time", w.now, w.a.Next(), *s)
			}
		}
	}
	if w.a.Next() <= w.now {
		w.t.Fatalf("at %d the next call is wanted at %d", w.now, w.a.Next())
	}
	if w.now < w.settled {
		return
	}
	for _, s := range w.sessions {
		if s.wants && s.live == 0 && w.unrivalled(s.Job) {
			w.t.Fatalf("at %d job %s waits for free GPUs that nobody else wants", w.now, s.Job)
		}
	}
}

// unrivalled says whether nobody holds or wants a GPU of a job, and nobody of a higher class uses one.
func (w *world) unrivalled(job JobID) bool {
	for _, s := range w.of(job) {
		for _, g := range s.GPUs {
			for _, r := range w.sessions {
				if r.Job == job && r.live > 0 {
					return false
				}
				if r.Job != job && slices.Contains(w.gpusOf(r.Job), g) && (r.wants || r.Class < s.Class || r.live > 0) {
					return false
				}
			}
		}
	}
	return true
}

func (w *world) gpusOf(job JobID) []int {
	var gpus []int
	for _, s := range w.of(job) {
		gpus = append(gpus, s.GPUs...)
	}
	return gpus
}
