package policy

import (
	"container/heap"
	"time"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/unit"
)

// watched is when a GPU is next to be observed. A watch of another version is void.
type watched struct {
	version  uint32
	interval time.Duration
}

// watches says when the residents of each GPU are to be observed: a window after they came together, and again after
// twice as long each time.
type watches struct {
	queue watchQueue
	state []watched // of each GPU
}

func newWatches(gpus int) watches { return watches{state: make([]watched, gpus)} }

// watchQueue is the observations to come, the earliest first. One that was overtaken by a change stays until its time
// and is skipped then.
type watchQueue []watchAt

type watchAt struct {
	at      unit.Time
	gpu     cluster.GPU
	version uint32
}

// Len implements heap.Interface.
func (w watchQueue) Len() int { return len(w) }

// Less implements heap.Interface.
func (w watchQueue) Less(i, j int) bool {
	return w[i].at < w[j].at || w[i].at == w[j].at && w[i].gpu < w[j].gpu
}

// Swap implements heap.Interface.
func (w watchQueue) Swap(i, j int) { w[i], w[j] = w[j], w[i] }

// Push implements heap.Interface.
func (w *watchQueue) Push(x any) { *w = append(*w, x.(watchAt)) }

// Pop implements heap.Interface.
func (w *watchQueue) Pop() any {
	last := len(*w) - 1
	x := (*w)[last]
	*w = (*w)[:last]
	return x
}

// due takes the GPUs whose observation has come, in order of time and index, and files the next one of each.
func (w *watches) due(now unit.Time) []cluster.GPU {
	var due []cluster.GPU
	for len(w.queue) > 0 && w.queue[0].at <= now {
		x := heap.Pop(&w.queue).(watchAt)
		s := &w.state[x.gpu]
		if x.version != s.version {
			continue
		}
		due = append(due, x.gpu)
		s.interval = min(maxInterval, 2*s.interval)
		heap.Push(&w.queue, watchAt{now.Add(s.interval), x.gpu, s.version})
	}
	return due
}

// next is the time of the earliest observation that is not void.
func (w *watches) next() unit.Time {
	for len(w.queue) > 0 && w.queue[0].version != w.state[w.queue[0].gpu].version {
		heap.Pop(&w.queue)
	}
	if len(w.queue) == 0 {
		return unit.Never
	}
	return w.queue[0].at
}

// renew begins to observe a GPU anew, for its residents changed.
func (w *watches) renew(g cluster.GPU, residents int, now unit.Time, window time.Duration) {
	s := &w.state[g]
	s.version++
	if residents < 2 {
		return
	}
	s.interval = window
	heap.Push(&w.queue, watchAt{now.Add(s.interval), g, s.version})
}
