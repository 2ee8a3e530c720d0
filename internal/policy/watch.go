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

// watches is the observations to come, the earliest first. One that was overtaken by a change stays until its time and
// is skipped then.
type watches []watchAt

type watchAt struct {
	at      unit.Time
	gpu     cluster.GPU
	version uint32
}

// Len implements heap.Interface.
func (w watches) Len() int { return len(w) }

// Less implements heap.Interface.
func (w watches) Less(i, j int) bool {
	return w[i].at < w[j].at || w[i].at == w[j].at && w[i].gpu < w[j].gpu
}

// Swap implements heap.Interface.
func (w watches) Swap(i, j int) { w[i], w[j] = w[j], w[i] }

// Push implements heap.Interface.
func (w *watches) Push(x any) { *w = append(*w, x.(watchAt)) }

// Pop implements heap.Interface.
func (w *watches) Pop() any {
	last := len(*w) - 1
	x := (*w)[last]
	*w = (*w)[:last]
	return x
}

// due takes the GPUs whose observation has come, in order of time and index, and files the next one of each.
func (w *watches) due(now unit.Time, state []watched) []cluster.GPU {
	var due []cluster.GPU
	for len(*w) > 0 && (*w)[0].at <= now {
		x := heap.Pop(w).(watchAt)
		s := &state[x.gpu]
		if x.version != s.version {
			continue
		}
		due = append(due, x.gpu)
		s.interval = min(maxInterval, 2*s.interval)
		heap.Push(w, watchAt{now.Add(s.interval), x.gpu, s.version})
	}
	return due
}

// next is the time of the earliest observation that is not void.
func (w *watches) next(state []watched) unit.Time {
	for len(*w) > 0 && (*w)[0].version != state[(*w)[0].gpu].version {
		heap.Pop(w)
	}
	if len(*w) == 0 {
		return unit.Never
	}
	return (*w)[0].at
}

// watch begins to observe a GPU anew, for its residents changed.
func (a *Adjusting) watch(g cluster.GPU) {
	s := &a.state[g]
	s.version++
	if len(a.packer.Residents(g)) < 2 {
		return
	}
	s.interval = a.o.Window
	heap.Push(&a.watches, watchAt{a.now.Add(s.interval), g, s.version})
}
