package local

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/dispatch"
	"weft.dev/weft/internal/shepherd"
)

// movesAtOnce is how many jobs are on their way at a time to make GPUs free: each stands still meanwhile.
const movesAtOnce = 2

// settle moves jobs: off GPUs that are drained or broken, off GPUs where one is believed below its floor, and together where
// that frees a GPU. The belief changes at windows; what else there is to do is looked for as often as this is called, which costs next
// to nothing while nothing changed.
func (b *Box) settle(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	for g := range b.gpus {
		if code := b.state.gpus[g].closed(b.drained[g]); code != "" && len(b.residents(g)) > 0 {
			s := b.snapshot(now)
			for _, m := range dispatch.Evacuate(&s, g) {
				b.move(m, fmt.Sprintf("gpu%d is closed: %s", g, code), now)
			}
		}
	}
	for g := range b.gpus {
		b.repair(g, now)
	}
	if b.leftAt.IsZero() || b.moving() > 0 || b.anyWaiting() {
		return
	}
	s := b.snapshot(now)
	for _, m := range dispatch.Consolidate(&s, movesAtOnce) {
		b.move(m, "it frees "+gpuNames(m.From), now)
	}
	b.leftAt = time.Time{}
}

// repair relieves a GPU with a resident that is believed below its floor. The mutex is held.
func (b *Box) repair(g int, now time.Time) {
	if !b.settled(g) {
		return
	}
	s := b.snapshot(now)
	remedy, needed := dispatch.Repair(&s, b.mean, g)
	if !needed {
		return
	}
	until := now.Add(coolDown)
	if x, y := b.jobs[remedy.Apart[0]], b.jobs[remedy.Apart[1]]; !b.book.Banned(x.kind(), y.kind()) && b.book.Ban(x.kind(), y.kind(), until) {
		b.note(box.Event{Type: box.EventBanned, Job: x.ID, Text: x.Name + " and " + y.Name + " are kept apart until " + until.Local().Format("15:04")})
		b.plan()
	}
	if remedy.Move.Job != 0 {
		b.move(remedy.Move, b.whyMoved(remedy, g), now)
	}
}

// coolDown is how long a conflict keeps two kinds apart: until then a better prediction would only start it anew.
const coolDown = time.Hour

// settled says whether several jobs share a GPU, all of them run, and none is on its way to it or from it: else what was observed there
// is about to change. Before a window was observed, all that is believed is what they were placed on. The mutex is held.
func (b *Box) settled(g int) bool {
	residents, observed := b.residents(g), false
	for _, id := range residents {
		j := b.jobs[id]
		if j.live == nil || j.State != box.Running {
			return false
		}
		observed = observed || j.Windows > 0
	}
	return observed && len(residents) > 1 && !slices.ContainsFunc(b.order, func(id box.ID) bool {
		j := b.jobs[id]
		return j.live != nil && slices.Contains(j.live.target, g)
	})
}

// mean is the slowdown that one job is believed to add to another. The mutex is held.
func (b *Box) mean(i, l box.ID) float64 {
	return b.book.Mean(b.jobs[i].kind(), b.jobs[l].kind())
}

// whyMoved tells the story of a move for people. The mutex is held.
func (b *Box) whyMoved(r dispatch.Remedy, g int) string {
	var lines []string
	for _, id := range r.Below {
		j := b.jobs[id]
		lines = append(lines, fmt.Sprintf("%d was below its floor.", id))
		line := fmt.Sprintf("%d beside %s: ", id, idNames(b.beside(&j.record)))
		if j.view.rate != nil {
			line += fmt.Sprintf("observed %s, ", percent(*j.view.rate))
		}
		if j.Predicted != nil {
			line += fmt.Sprintf("predicted %s, ", percent(j.Predicted.Rate))
		}
		line += "floor " + percent(j.Floor)
		if j.Windows > 0 {
			line += fmt.Sprintf(", %d windows (%.0f s)", j.Windows, (time.Duration(j.Windows) * b.o.Window).Seconds())
		}
		lines = append(lines, line+".")
	}
	moved := b.jobs[r.Move.Job]
	return strings.Join(append(lines, fmt.Sprintf("%d was cheapest to move off gpu%d: %v.", moved.ID, g, moved.PeakBytes)), "\n")
}

// move asks a program for its checkpoint, to go on elsewhere or back to the queue. The mutex is held.
func (b *Box) move(m dispatch.Move, why string, now time.Time) {
	j := b.jobs[m.Job]
	if j == nil || j.live == nil || j.live.asked || j.State != box.Running {
		return
	}
	op := &box.Operation{Verb: box.Moved, Time: now.UTC().Round(0), From: m.From, To: m.To, Text: why}
	event := box.Event{Type: box.EventMoved, Job: j.ID, GPU: &m.From[0], Text: fmt.Sprintf("%s -> %s: %s", gpuNames(m.From), gpuNames(m.To), why)}
	if len(m.To) == 0 {
		op.Verb = box.Evicted
		event.Type, event.Text = box.EventEvicted, fmt.Sprintf("from %s: %s", gpuNames(m.From), why)
	}
	j.Operation, j.live.target, j.live.asked = op, m.To, true
	j.State = box.Stopping
	j.Moves++
	b.figures.Operations[box.OperationKey{Verb: op.Verb, Outcome: "ok"}]++
	b.note(event)
	b.workers.Go(func() {
		b.keep(j)
		b.ask(j, shepherd.Moved)
	})
}

// moving is how many jobs are on their way. The mutex is held.
func (b *Box) moving() int {
	n := 0
	for _, j := range b.jobs {
		if j.live != nil && j.live.asked {
			n++
		}
	}
	return n
}

// anyWaiting says whether a job waits for a place. The mutex is held.
func (b *Box) anyWaiting() bool {
	return slices.ContainsFunc(b.order, func(id box.ID) bool { return b.jobs[id].State == box.Waiting })
}

// takes says whether GPUs are still open to a job whose place there was kept. The mutex is held.
func (b *Box) takes(gpus []int) bool {
	return !b.closed && !slices.ContainsFunc(gpus, func(g int) bool { return b.state.gpus[g].closed(b.drained[g]) != "" })
}
