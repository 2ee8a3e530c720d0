package demo

import "sync"

// tracker tells how far a run is.
type tracker struct {
	setup *Setup
	mu    sync.Mutex
	done  map[int]int // iterations of each job
	jobs  int         // that ended
}

// progress says that a job has done so many iterations.
func (t *tracker) progress(job, iterations int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.set(job, iterations)
	t.tell()
}

// ended says that a job has ended.
func (t *tracker) ended(job int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.set(job, t.setup.Group[job].Iterations)
	t.jobs++
	t.tell()
}

func (t *tracker) set(job, iterations int) {
	if t.done == nil {
		t.done = map[int]int{}
	}
	t.done[job] = max(t.done[job], iterations)
}

// tell reports the share of the group's time alone that was done.
func (t *tracker) tell() {
	if t.setup.Told == nil {
		return
	}
	var done, all float64
	for i := range t.setup.Group {
		j := &t.setup.Group[i]
		all += j.Alone().Seconds()
		done += j.Alone().Seconds() * float64(t.done[i]) / float64(j.Iterations)
	}
	t.setup.Told(t.jobs, done/all)
}
