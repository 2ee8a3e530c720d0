package local

import (
	"fmt"
	"time"

	"weft.dev/weft/internal/agent"
	"weft.dev/weft/internal/box"
)

// Bounds of the events that are kept.
const (
	eventsKept   = 20_000 // on the disk
	eventsShown  = 5_000  // in memory
	eventsAtOnce = 512    // written in one transaction
)

// eventLog is the last events. They become durable a little later than they are shown: an event is no promise.
type eventLog struct {
	ring    []box.Event
	next    uint64 // number of the next one, from 1
	unsaved []box.Event
	ahead   uint64 // numbers below are taken by this daemon, so that the next one uses none of them again
	seen    int    // of the agent's
}

// numbersAhead are taken at a time: more than are noted between two writes.
const numbersAhead = 10_000

// note files an event. The mutex is held.
func (b *Box) note(e box.Event) {
	l := &b.events
	if l.next == 0 {
		l.next = 1
	}
	e.Seq = l.next
	l.next++
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	e.Time = e.Time.UTC().Round(0)
	if e.Job != 0 && e.Name == "" {
		if j := b.jobs[e.Job]; j != nil {
			e.Name = j.Name
		}
	}
	l.ring = append(l.ring, e)
	if len(l.ring) > eventsShown+eventsShown/4 {
		l.ring = append([]box.Event(nil), l.ring[len(l.ring)-eventsShown:]...)
	}
	if len(l.unsaved) < eventsShown {
		l.unsaved = append(l.unsaved, e)
	}
	b.touch()
}

// Events are those after a number, and not before a time, oldest first.
func (b *Box) Events(after uint64, since time.Time) []box.Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := []box.Event{}
	for _, e := range b.events.ring {
		if e.Seq > after && !e.Time.Before(since) {
			list = append(list, e)
		}
	}
	return list
}

// changes are what makes the oldest new events durable, and how many those are.
func (l *eventLog) changes() ([]change, int) {
	n := min(len(l.unsaved), eventsAtOnce)
	var changes []change
	for _, e := range l.unsaved[:n] {
		changes = append(changes, change{bucketEvents, numbered(e.Seq), mustJSON(e)})
		if e.Seq > eventsKept {
			changes = append(changes, change{bucketEvents, numbered(e.Seq - eventsKept), nil})
		}
	}
	return changes, n
}

// saveEvents makes new events durable. It says whether some are left.
func (b *Box) saveEvents() bool {
	b.mu.Lock()
	changes, n := b.events.changes()
	ahead := b.events.ahead
	if b.events.next+numbersAhead/2 > ahead {
		ahead = b.events.next + numbersAhead
		changes = append(changes, metaChange(metaEvents, ahead))
	}
	b.mu.Unlock()
	if len(changes) == 0 {
		return false
	}
	if err := b.store.write(changes...); err != nil {
		b.setDegraded("events", fmt.Sprintf("events cannot be written: %v", err))
		return false
	}
	b.setDegraded("events", "")
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events.ahead = ahead
	b.events.unsaved = append([]box.Event(nil), b.events.unsaved[n:]...)
	return len(b.events.unsaved) > 0
}

// closeEvents makes all events durable that are left, and gives the numbers back that were not used.
func (b *Box) closeEvents() error {
	for b.saveEvents() {
	}
	b.mu.Lock()
	next := b.events.next
	b.mu.Unlock()
	return b.store.write(metaChange(metaEvents, next))
}

// hearAgent takes over what the agent noted since. Its allocations are the jobs' own affair.
func (b *Box) hearAgent() {
	b.mu.Lock()
	after := b.events.seen
	b.mu.Unlock()
	answer, err := b.agent.Ask(b.ctx, agent.Request{Op: agent.OpEvents, After: after})
	if err != nil {
		return // it is asked again
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events.seen = answer.Count
	for _, e := range answer.Events {
		switch e.Type {
		case agent.EventAllocated, agent.EventReleased, agent.EventRestored:
			continue
		}
		b.note(box.Event{Time: e.Time, Type: box.EventType(e.Type), Job: b.holderOf(e.ID), Name: e.Job, GPU: e.GPU, Text: agentText(e)})
	}
}

func agentText(e agent.Event) string {
	if e.PID != 0 {
		return fmt.Sprintf("pid %d: %s", e.PID, e.Text)
	}
	return e.Text
}

// holderOf is the job of an allocation, 0 for none. The mutex is held.
func (b *Box) holderOf(alloc uint64) box.ID {
	if alloc == 0 {
		return 0
	}
	for _, id := range b.order {
		if b.jobs[id].Alloc == alloc {
			return id
		}
	}
	return 0
}
