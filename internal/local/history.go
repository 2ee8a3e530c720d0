package local

import (
	"slices"
	"time"

	"weft.dev/weft/internal/box"
)

// The past that is kept for charts.
const (
	historyStep  = 5 * time.Second
	historySteps = 720 // an hour
	lanesKept    = 2000
)

// history is the recent past in steps. It begins with the daemon.
type history struct {
	last  time.Time
	steps int // filled so far
	gpus  []gpuSeries
	jobs  map[box.ID]*jobSeries
	queue map[string]*series
	waits map[box.Class]*series
	lanes []lane
}

// series is values by step; NaN is unknown, kept as a nil pointer would be.
type series struct {
	values [historySteps]float32
	known  [historySteps]bool
	seen   int // the step of the last value
}

func (s *series) set(step int, v float64) {
	s.values[step%historySteps], s.known[step%historySteps], s.seen = float32(v), true, step
}

func (s *series) clear(step int) { s.known[step%historySteps] = false }

// list is the last so many values, the latest last.
func (s *series) list(now, n int) []*float64 {
	list := make([]*float64, n)
	for i := range n {
		if step := now - n + 1 + i; step > 0 && s.known[step%historySteps] {
			v := float64(s.values[step%historySteps])
			list[i] = &v
		}
	}
	return list
}

type gpuSeries struct{ reserved, inUse, busy series }

type jobSeries struct {
	name            string
	floor           float64
	rate, predicted series
}

// lane is one stay of a job on a GPU.
type lane struct {
	gpu      int
	job      box.ID
	name     string
	class    box.Class
	attempt  int
	from, to time.Time // to is zero while it is there
	moved    bool
	below    bool
}

func newHistory(gpus int) history {
	return history{gpus: make([]gpuSeries, gpus), jobs: map[box.ID]*jobSeries{}, queue: map[string]*series{}, waits: map[box.Class]*series{}}
}

// add files what is so now. The box's mutex is held.
func (h *history) add(b *Box, now time.Time) {
	h.follow(b, now)
	if now.Sub(h.last) < historyStep {
		return
	}
	h.last = now
	h.steps++
	for g := range h.gpus {
		s, x := &b.state.gpus[g], &h.gpus[g]
		x.reserved.set(h.steps, float64(s.reserved))
		x.inUse.set(h.steps, float64(s.inUse))
		if s.busy != nil {
			x.busy.set(h.steps, *s.busy)
		}
	}
	h.clearStep()
	for _, id := range b.order {
		h.addJob(b, b.jobs[id])
	}
	for id, x := range h.jobs {
		if h.steps-max(x.rate.seen, x.predicted.seen) > historySteps {
			delete(h.jobs, id)
		}
	}
}

// clearStep makes the present step of everything that may be unknown in it unknown.
func (h *history) clearStep() {
	for _, x := range h.jobs {
		x.rate.clear(h.steps)
		x.predicted.clear(h.steps)
	}
	for _, s := range h.queue {
		s.set(h.steps, 0)
	}
	for _, s := range h.waits {
		s.clear(h.steps)
	}
}

func (h *history) addJob(b *Box, j *job) {
	switch {
	case j.State == box.Waiting:
		code := "Planning"
		if w, ok := b.waits[j.ID]; ok && w.Reason.Code != "" {
			code = string(w.Reason.Code)
		}
		s := h.queue[code]
		if s == nil {
			s = &series{}
			h.queue[code] = s
		}
		count := float64(0)
		if s.known[h.steps%historySteps] && s.seen == h.steps {
			count = float64(s.values[h.steps%historySteps])
		}
		s.set(h.steps, count+1)
	case j.live != nil:
		x := h.jobs[j.ID]
		if x == nil {
			x = &jobSeries{name: j.Name, floor: j.Floor}
			h.jobs[j.ID] = x
		}
		if j.view.rate != nil {
			x.rate.set(h.steps, *j.view.rate)
		}
		if j.Predicted != nil {
			x.predicted.set(h.steps, j.Predicted.Rate)
		}
		h.addWait(j)
	}
}

// addWait keeps the longest of the waits for the token that jobs of a class see.
func (h *history) addWait(j *job) {
	if j.view.tokenWait == nil {
		return
	}
	s := h.waits[j.Class]
	if s == nil {
		s = &series{}
		h.waits[j.Class] = s
	}
	if i := h.steps % historySteps; !s.known[i] || float64(s.values[i]) < *j.view.tokenWait {
		s.set(h.steps, *j.view.tokenWait)
	}
}

// follow opens and closes lanes as jobs come and go.
func (h *history) follow(b *Box, now time.Time) {
	open := map[[3]int]bool{}
	for i := range h.lanes {
		l := &h.lanes[i]
		if !l.to.IsZero() {
			continue
		}
		j := b.jobs[l.job]
		if j == nil || !j.State.Live() || j.Attempt != l.attempt || !slices.Contains(j.On, l.gpu) {
			l.to = now
			continue
		}
		l.below = j.view.below
		open[[3]int{int(l.job), l.attempt, l.gpu}] = true
	}
	for _, id := range b.order {
		j := b.jobs[id]
		if j.live == nil {
			continue
		}
		for _, g := range j.On {
			if !open[[3]int{int(id), j.Attempt, g}] {
				h.lanes = append(h.lanes, lane{gpu: g, job: id, name: j.Name, class: j.Class, attempt: j.Attempt, from: j.live.began, moved: j.Moves > 0 && j.Attempt > 1})
			}
		}
	}
	if len(h.lanes) > lanesKept {
		h.lanes = append([]lane(nil), h.lanes[len(h.lanes)-lanesKept:]...)
	}
}

// History is the last span, at most an hour, for charts.
func (b *Box) History(span time.Duration) box.History {
	b.mu.Lock()
	defer b.mu.Unlock()
	h, now := &b.history, time.Now()
	n := int(min(max(span, historyStep), historySteps*historyStep) / historyStep)
	out := box.History{Schema: 1, Until: now.UTC(), Step: historyStep.Seconds(), Lanes: []box.Lane{}, Jobs: []box.JobHistory{}, GPUs: []box.GPUHistory{}, Queue: []box.QueueCount{}, Waits: []box.TokenWait{}}
	for _, l := range h.lanes {
		if !l.to.IsZero() && now.Sub(l.to) > span {
			continue
		}
		x := box.Lane{GPU: l.gpu, Job: l.job, Name: l.name, Class: l.class, From: now.Sub(l.from).Seconds(), Moved: l.moved, Below: l.below}
		if !l.to.IsZero() {
			to := now.Sub(l.to).Seconds()
			x.To = &to
		}
		out.Lanes = append(out.Lanes, x)
	}
	for _, id := range b.order {
		if x := h.jobs[id]; x != nil && h.steps-max(x.rate.seen, x.predicted.seen) < n {
			out.Jobs = append(out.Jobs, box.JobHistory{Job: id, Name: x.name, Floor: x.floor, Rate: x.rate.list(h.steps, n), Predicted: x.predicted.list(h.steps, n)})
		}
	}
	for g := range h.gpus {
		x := &h.gpus[g]
		out.GPUs = append(out.GPUs, box.GPUHistory{GPU: g, Usable: float64(b.gpus[g].Usable), Reserved: x.reserved.list(h.steps, n), InUse: x.inUse.list(h.steps, n), Busy: x.busy.list(h.steps, n)})
	}
	for _, code := range sortedKeys(h.queue) {
		out.Queue = append(out.Queue, box.QueueCount{Code: code, Count: h.queue[code].list(h.steps, n)})
	}
	for _, class := range []box.Class{box.Guaranteed, box.Burstable, box.BestEffort} {
		if s := h.waits[class]; s != nil {
			out.Waits = append(out.Waits, box.TokenWait{Class: class, P99: s.list(h.steps, n)})
		}
	}
	return out
}
