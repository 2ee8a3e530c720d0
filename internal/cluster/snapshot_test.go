package cluster

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// model is what an overlay should hold, copied in full at every checkpoint.
type model struct {
	place    []GPU
	gpus     int
	changes  int // since the last commit
	revision Revision
}

func (m *model) clone() model {
	c := *m
	c.place = slices.Clone(m.place)
	return c
}

// mark is a checkpoint with the state that it was taken in.
type mark struct {
	at    Mark
	state model
}

// machine drives an overlay and its model in step.
type machine struct {
	o      *Overlay
	m      model
	marks  []mark
	frozen []frozen // snapshots taken, which must never change
}

type frozen struct {
	s     *Snapshot
	state model
}

func TestOverlay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gpus, workers := rapid.IntRange(0, 4).Draw(t, "GPUs"), rapid.IntRange(0, 6).Draw(t, "workers")
		x := &machine{o: NewOverlay(Empty(gpus), workers)}
		x.m.gpus = gpus
		for range workers {
			x.m.place = append(x.m.place, NoGPU)
		}
		t.Repeat(map[string]func(*rapid.T){
			"":           x.check,
			"add":        x.add,
			"remove":     x.remove,
			"checkpoint": x.checkpoint,
			"rollback":   x.rollback,
			"commit":     x.commit,
			"snapshot":   x.snapshot,
			"grow":       x.grow,
		})
	})
}

func (x *machine) drawWorker(t *rapid.T, placed bool) (Worker, bool) {
	var workers []Worker
	for w, g := range x.m.place {
		if (g != NoGPU) == placed {
			workers = append(workers, Worker(w))
		}
	}
	if len(workers) == 0 {
		return 0, false
	}
	return rapid.SampledFrom(workers).Draw(t, "worker"), true
}

func (x *machine) add(t *rapid.T) {
	w, ok := x.drawWorker(t, false)
	if !ok || x.m.gpus == 0 {
		t.Skip("nothing to add")
	}
	g := GPU(rapid.IntRange(0, x.m.gpus-1).Draw(t, "GPU"))
	x.o.Add(w, g)
	x.m.place[w] = g
	x.m.changes++
}

func (x *machine) remove(t *rapid.T) {
	w, ok := x.drawWorker(t, true)
	if !ok {
		t.Skip("nothing to remove")
	}
	if got := x.o.Remove(w); got != x.m.place[w] {
		t.Fatalf("worker %d removed from GPU %d, it was on %d", w, got, x.m.place[w])
	}
	x.m.place[w] = NoGPU
	x.m.changes++
}

func (x *machine) checkpoint(*rapid.T) {
	x.marks = append(x.marks, mark{x.o.Checkpoint(), x.m.clone()})
}

// rollback returns to a checkpoint; those taken after it are void. GPUs and workers that were added stay.
func (x *machine) rollback(t *rapid.T) {
	if len(x.marks) == 0 {
		t.Skip("no checkpoint")
	}
	i := rapid.IntRange(0, len(x.marks)-1).Draw(t, "mark")
	undone := x.m.changes - x.marks[i].state.changes
	x.o.Rollback(x.marks[i].at, func(g GPU) {
		undone--
		if g < 0 || int(g) >= x.m.gpus {
			t.Fatalf("touched GPU %d of %d", g, x.m.gpus)
		}
	})
	if undone != 0 {
		t.Fatalf("%d undone changes were not told", undone)
	}
	before := x.m
	x.m = x.marks[i].state.clone()
	x.m.gpus = before.gpus
	for range len(before.place) - len(x.m.place) {
		x.m.place = append(x.m.place, NoGPU)
	}
	x.marks = x.marks[:i+1]
}

func (x *machine) commit(*rapid.T) {
	x.o.Commit()
	x.committed()
}

func (x *machine) committed() {
	if x.m.changes > 0 {
		x.m.revision++
	}
	x.m.changes, x.marks = 0, nil
}

func (x *machine) snapshot(t *rapid.T) {
	s := x.o.Snapshot()
	x.committed()
	x.frozen = append(x.frozen, frozen{s, x.m.clone()})
	if rapid.Bool().Draw(t, "reopen") {
		x.o = NewOverlay(s, len(x.m.place))
	}
}

func (x *machine) grow(t *rapid.T) {
	gpus := rapid.IntRange(0, 2).Draw(t, "more GPUs")
	x.o.Grow(gpus)
	x.m.gpus += gpus
}

func (x *machine) check(t *rapid.T) {
	if x.o.GPUs() != x.m.gpus || x.o.Workers() != len(x.m.place) {
		t.Fatalf("%d GPUs and %d workers, want %d and %d", x.o.GPUs(), x.o.Workers(), x.m.gpus, len(x.m.place))
	}
	for w, g := range x.m.place {
		if x.o.Place(Worker(w)) != g {
			t.Fatalf("worker %d is on %d, want %d", w, x.o.Place(Worker(w)), g)
		}
	}
	x.m.checkResidents(t, x.o.GPUs(), x.o.Residents)
	for _, f := range x.frozen {
		if f.s.Revision() != f.state.revision {
			t.Fatalf("snapshot has revision %d, want %d", f.s.Revision(), f.state.revision)
		}
		f.state.checkResidents(t, f.s.GPUs(), f.s.Residents)
	}
	for _, m := range x.marks {
		x.checkSince(t, m)
	}
}

func (m *model) checkResidents(t *rapid.T, gpus int, residents func(GPU) []Worker) {
	if gpus != m.gpus {
		t.Fatalf("%d GPUs, want %d", gpus, m.gpus)
	}
	for g := range GPU(gpus) {
		var want []Worker
		for w, at := range m.place {
			if at == g {
				want = append(want, Worker(w))
			}
		}
		if !slices.Equal(residents(g), want) {
			t.Fatalf("GPU %d holds %v, want %v", g, residents(g), want)
		}
	}
}

// checkSince: every worker whose place differs from that at the mark is told, once, with the place it had then; those
// told besides have been away and are back.
func (x *machine) checkSince(t *rapid.T, m mark) {
	told := map[Worker]bool{}
	x.o.Since(m.at, func(w Worker, from GPU) {
		was := NoGPU // of a worker that came later
		if int(w) < len(m.state.place) {
			was = m.state.place[w]
		}
		if told[w] || from != was {
			t.Fatalf("worker %d told from GPU %d (again: %t), it was on %d", w, from, told[w], was)
		}
		told[w] = true
	})
	for w, was := range m.state.place {
		if x.m.place[w] != was && !told[Worker(w)] {
			t.Fatalf("worker %d went from %d to %d and was not told", w, was, x.m.place[w])
		}
	}
	if x.m.changes == m.state.changes && len(told) > 0 {
		t.Fatalf("nothing changed, told %v", told)
	}
}

func TestClusterParts(t *testing.T) {
	c := Cluster{Nodes: []Node{{VC: "a", GPUs: 2}, {VC: "b", GPUs: 3}, {VC: "a", GPUs: 5}}}
	if a, b, none := c.Part("a"), c.Part("b"), c.Part("x"); a.GPUs() != 7 || b.GPUs() != 3 || none.GPUs() != 0 || c.GPUs() != 10 {
		t.Errorf("parts have %d, %d and %d GPUs of %d", a.GPUs(), b.GPUs(), none.GPUs(), c.GPUs())
	}
	if a := c.Part("a"); a.Nodes[0].GPUs != 2 || a.Nodes[1].GPUs != 5 {
		t.Errorf("nodes of a part out of order: %v", a.Nodes)
	}
	if u := Uniform(3, 4); len(u.Nodes) != 3 || u.GPUs() != 12 {
		t.Errorf("uniform cluster: %v", u)
	}
}

func TestClassesReturn(t *testing.T) {
	for _, c := range []Class{Burstable, Guaranteed, BestEffort} {
		if got, ok := ParseClass(c.String()); !ok || got != c {
			t.Errorf("%v reads as %v, %t", c, got, ok)
		}
	}
	if c, ok := ParseClass(""); c != Burstable || !ok {
		t.Errorf("no class reads as %v, %t", c, ok)
	}
	for _, s := range []string{"Guaranteed", "best-effort", " ", "0"} {
		if c, ok := ParseClass(s); ok {
			t.Errorf("%q reads as %v", s, c)
		}
	}
}

func TestJobAccepts(t *testing.T) {
	open, named := Job{}, Job{Models: []string{"V100", "P100"}}
	for _, c := range []struct {
		job   *Job
		model string
		want  bool
	}{{&open, "V100", true}, {&open, "", true}, {&named, "", true}, {&named, "P100", true}, {&named, "p100", false}, {&named, "T4", false}} {
		if got := c.job.Accepts(c.model); got != c.want {
			t.Errorf("%v accepts %q: %t", c.job.Models, c.model, got)
		}
	}
}
