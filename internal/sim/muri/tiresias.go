package muri

import (
	"cmp"
	"math"
	"slices"
)

// demoteAt are the attained services, in GPU-seconds, at which a job leaves the first and the second queue: the
// values of the published simulator.
var demoteAt = [...]float64{3250, 7200}

// tiresias is the discretised two-dimensional least-attained-service policy (Gu et al., NSDI 2019) as Muri's
// simulator has it: three queues, demotion only, and GPUs as one counter without placement.
type tiresias struct {
	total   int
	queues  [len(demoteAt) + 1][]*job
	waiting []*job // buffer
}

func (t *tiresias) arrive(j *job) { t.queues[0] = append(t.queues[0], j) }

func (t *tiresias) depart(j *job) { t.remove(j) }

func (t *tiresias) remove(j *job) {
	q := &t.queues[j.queue]
	i := slices.Index(*q, j) // near the front, as all running jobs are
	*q = slices.Delete(*q, i, i+1)
}

// schedule demotes, then runs the jobs of each queue in turn that the counter has room for. O(live).
func (t *tiresias) schedule(now float64, previous, next []*job) decision {
	for _, j := range previous {
		j.running = false
		if j.queue < len(demoteAt) && t.due(j, now) {
			t.remove(j)
			j.queue++
			t.queues[j.queue] = append(t.queues[j.queue], j)
		}
	}
	left := t.total
	for q := range t.queues {
		next, left = t.runQueue(t.queues[q], next, left)
	}
	slices.SortFunc(next, func(a, b *job) int { return cmp.Compare(a.rank, b.rank) })
	return decision{running: next, inUse: t.total - left, wake: wakeAt(next, now)}
}

// due says whether a job has attained the service that demotes it. A job whose wake time is no longer after now is
// due too: rounding may leave it a hair below the limit for ever.
func (t *tiresias) due(j *job, now float64) bool {
	return j.executed*float64(j.gpus) >= demoteAt[j.queue] || demotion(j)+now <= now
}

// runQueue runs what fits, in order, and moves it before what waits, each in unchanged order.
func (t *tiresias) runQueue(queue, next []*job, left int) ([]*job, int) {
	t.waiting = t.waiting[:0]
	ran, seen := 0, 0
	for i, j := range queue {
		if left == 0 {
			break
		}
		seen = i + 1
		if j.gpus > left {
			t.waiting = append(t.waiting, j)
			continue
		}
		j.running = true
		left -= j.gpus
		next = append(next, j)
		queue[ran] = j
		ran++
	}
	copy(queue[ran:seen], t.waiting)
	return next, left
}

// wakeAt is when the first of the running jobs attains the service that demotes it, in whole seconds of its run.
func wakeAt(running []*job, now float64) float64 {
	at := math.Inf(1)
	for _, j := range running {
		if j.queue < len(demoteAt) {
			at = min(at, max(demotion(j)+now, now))
		}
	}
	return at
}

// demotion is how long a job may run on before it leaves its queue.
func demotion(j *job) float64 {
	return math.Ceil(demoteAt[j.queue]/float64(j.gpus)) - j.executed
}
