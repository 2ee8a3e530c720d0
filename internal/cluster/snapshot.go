package cluster

import "slices"

// GPU is the index of a GPU in a cluster, nodes in order.
type GPU int32

// NoGPU is the place of a worker that has none.
const NoGPU GPU = -1

// Worker is the index of a worker in a fixed list of jobs: the workers of job 0 come first, then those of job 1.
type Worker int32

// Revision counts the changes a state has seen. A plan names the revision it was decided on.
type Revision uint64

// Snapshot is who resides where at one revision. It is never changed.
type Snapshot struct {
	revision  Revision
	residents [][]Worker
}

// Empty is a snapshot of idle GPUs at revision 0.
func Empty(gpus int) *Snapshot { return &Snapshot{residents: make([][]Worker, gpus)} }

// Revision of the snapshot.
func (s *Snapshot) Revision() Revision { return s.revision }

// GPUs is the number of GPUs.
func (s *Snapshot) GPUs() int { return len(s.residents) }

// Residents of a GPU in ascending order; the caller must not change the slice.
func (s *Snapshot) Residents(g GPU) []Worker { return s.residents[g] }

// Overlay tries changes on a snapshot. Rollback undoes them exactly; Snapshot freezes them. Add, Remove and each
// undone change cost O(residents of the GPU). An Overlay is for one goroutine.
type Overlay struct {
	revision  Revision
	residents [][]Worker
	place     []GPU // of each worker
	journal   []change
}

// change is one step that can be undone.
type change struct {
	worker Worker
	gpu    GPU
	added  bool
}

// Mark is a point to roll back to.
type Mark int

// NewOverlay opens an overlay over a snapshot for workers 0..workers-1.
func NewOverlay(s *Snapshot, workers int) *Overlay {
	o := &Overlay{revision: s.revision, residents: make([][]Worker, len(s.residents)), place: make([]GPU, workers)}
	for w := range o.place {
		o.place[w] = NoGPU
	}
	for g, residents := range s.residents {
		o.residents[g] = slices.Clone(residents)
		for _, w := range residents {
			o.place[w] = GPU(g)
		}
	}
	return o
}

// Grow appends idle GPUs.
func (o *Overlay) Grow(gpus int) { o.residents = append(o.residents, make([][]Worker, gpus)...) }

// GPUs is the number of GPUs.
func (o *Overlay) GPUs() int { return len(o.residents) }

// Workers is the number of workers, placed or not.
func (o *Overlay) Workers() int { return len(o.place) }

// Residents of a GPU in ascending order; valid until the next change, and not to be changed.
func (o *Overlay) Residents(g GPU) []Worker { return o.residents[g] }

// Place is the GPU of a worker, or NoGPU.
func (o *Overlay) Place(w Worker) GPU { return o.place[w] }

// Add puts a worker that has no GPU on one.
func (o *Overlay) Add(w Worker, g GPU) {
	o.insert(w, g)
	o.journal = append(o.journal, change{w, g, true})
}

// Remove takes a worker off its GPU and returns that GPU.
func (o *Overlay) Remove(w Worker) GPU {
	g := o.place[w]
	o.delete(w, g)
	o.journal = append(o.journal, change{w, g, false})
	return g
}

func (o *Overlay) insert(w Worker, g GPU) {
	at, _ := slices.BinarySearch(o.residents[g], w)
	o.residents[g] = slices.Insert(o.residents[g], at, w)
	o.place[w] = g
}

func (o *Overlay) delete(w Worker, g GPU) {
	at, _ := slices.BinarySearch(o.residents[g], w)
	o.residents[g] = slices.Delete(o.residents[g], at, at+1)
	o.place[w] = NoGPU
}

// Checkpoint is the present point.
func (o *Overlay) Checkpoint() Mark { return Mark(len(o.journal)) }

// Since calls yield for every worker that changed after the mark, once, in order of its first change, with the GPU it was
// on then.
func (o *Overlay) Since(m Mark, yield func(w Worker, from GPU)) {
	seen := map[Worker]bool{}
	for _, c := range o.journal[m:] {
		if seen[c.worker] {
			continue
		}
		seen[c.worker] = true
		from := c.gpu
		if c.added {
			from = NoGPU
		}
		yield(c.worker, from)
	}
}

// Rollback undoes every change since the mark, last first, and calls touched (which may be nil) with the GPU of
// each undone change.
func (o *Overlay) Rollback(m Mark, touched func(GPU)) {
	for len(o.journal) > int(m) {
		c := o.journal[len(o.journal)-1]
		o.journal = o.journal[:len(o.journal)-1]
		if c.added {
			o.delete(c.worker, c.gpu)
		} else {
			o.insert(c.worker, c.gpu)
		}
		if touched != nil {
			touched(c.gpu)
		}
	}
}

// Commit makes every change so far final: marks taken before are void, and the journal is empty.
func (o *Overlay) Commit() {
	if len(o.journal) > 0 {
		o.revision++
	}
	o.journal = o.journal[:0]
}

// Snapshot commits and freezes the present state.
func (o *Overlay) Snapshot() *Snapshot {
	o.Commit()
	s := &Snapshot{revision: o.revision, residents: make([][]Worker, len(o.residents))}
	for g, residents := range o.residents {
		s.residents[g] = slices.Clone(residents)
	}
	return s
}
