package agent

import (
	"fmt"
	"time"

	"weft.dev/weft/internal/unit"
)

// patience is how long others may wait for the memory of a job within an iteration until that is said: longer than the
// iterations of all but the largest models.
const patience = time.Minute

// lookAtBooks says which jobs others wait for in vain. Memory cannot be taken from a program; whoever moves jobs must act.
func (a *Agent) lookAtBooks(now unit.Time) {
	for _, g := range a.gpus {
		said := map[uint64]bool{}
		for _, id := range g.ledger.Stuck() {
			a.say(g, said, uint64(id), EventStuck, "it may never reach the end of its iteration: others keep memory that they did not reserve")
		}
		for _, id := range g.ledger.Overdue(now, patience) {
			a.say(g, said, uint64(id), EventOverdue, fmt.Sprintf("others wait for memory that it has held for more than %v", patience))
		}
		g.late = said
	}
}

// say files an event about a job's memory, once for as long as it is so.
func (a *Agent) say(g *gpu, said map[uint64]bool, id uint64, kind, text string) {
	al := a.allocs[id]
	if al == nil || said[id] {
		return
	}
	said[id] = true
	if !g.late[id] {
		a.note(Event{Type: kind, Job: al.spec.Name, ID: id, GPU: &g.number, Text: text})
	}
}
