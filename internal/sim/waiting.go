package sim

// place is where a live job stands in the order: lower queue first, then lower rank, then lower job.
type place struct {
	rank  int64
	queue int32
	job   int32
}

func (a place) before(b place) bool {
	if a.queue != b.queue {
		return a.queue < b.queue
	}
	if a.rank != b.rank {
		return a.rank < b.rank
	}
	return a.job < b.job
}

// waiting is a heap of waiting jobs, the first in order on top. Four children to a node: half the cache misses of two
// when the queue is deep.
type waiting []place

const arity = 4

func (w *waiting) push(p place) {
	*w = append(*w, p)
	h := *w
	i := len(h) - 1
	for i > 0 && p.before(h[(i-1)/arity]) {
		h[i] = h[(i-1)/arity]
		i = (i - 1) / arity
	}
	h[i] = p
}

// pop removes the top; there must be one.
func (w *waiting) pop() {
	h := *w
	last := len(h) - 1
	p := h[last]
	h = h[:last]
	*w = h
	if last == 0 {
		return
	}
	i := 0
	for first := 1; first < last; first = i*arity + 1 {
		best := first
		for c := first + 1; c < min(first+arity, last); c++ {
			if h[c].before(h[best]) {
				best = c
			}
		}
		if !h[best].before(p) {
			break
		}
		h[i] = h[best]
		i = best
	}
	h[i] = p
}
