package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"weft.dev/weft/internal/agent"
	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/estimate"
	"weft.dev/weft/internal/shepherd"
)

// readCopy reads a record from a job's own folder.
func readCopy(path string) (*record, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r record
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, err
	}
	if r.ID == 0 {
		return nil, fmt.Errorf("%s names no job", path)
	}
	return &r, nil
}

// takeOver makes the records of the last daemon this one's jobs: those whose program runs are watched, those whose program has
// ended meanwhile are booked, and those whose start was cut short wait again.
func (b *Box) takeOver(records []*record) error {
	left := b.allocations() // first: a job that was to be moved, and has ended, is begun again meanwhile
	b.mu.Lock()
	for _, r := range records {
		b.insert(&job{record: *r, ended: make(chan struct{})})
		b.next = max(b.next, r.ID+1)
	}
	b.mu.Unlock()
	for _, r := range records {
		if !r.State.Live() {
			continue
		}
		if err := b.adopt(b.jobs[r.ID]); err != nil {
			return fmt.Errorf("take over job %d: %w", r.ID, err)
		}
	}
	b.forgetAllocations(left)
	return nil
}

// adopt finds out what became of a job that had GPUs.
func (b *Box) adopt(j *job) error {
	dir := b.dir(j.ID)
	process, err := shepherd.Adopt(dir, j.Attempt)
	if errors.Is(err, shepherd.ErrNone) {
		revoked, fault := shepherd.Revoke(dir, j.Attempt)
		switch {
		case fault != nil && !missing(fault):
			return fault
		case revoked || fault != nil: // it never began, and never will under this number
			b.mu.Lock()
			b.unbegun(j)
			b.mu.Unlock()
			return nil
		}
		process, err = shepherd.Adopt(dir, j.Attempt) // it was claimed meanwhile
	}
	if err != nil {
		return err
	}
	if copied, err := readCopy(dir + "/" + copyName); err == nil && j.Alloc == 0 && copied.Attempt == j.Attempt {
		j.Alloc = copied.Alloc
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	j.live = &attempt{process: process, began: time.Now().Add(-process.Age())}
	if j.State == box.Starting {
		j.State = box.Running
	}
	if j.Started == nil {
		now := time.Now().UTC()
		j.Started = &now
	}
	b.note(box.Event{Type: box.EventAdopted, Job: j.ID, Text: fmt.Sprintf("pid %d on %s", process.PID(), gpuNames(j.On))})
	cause := b.askedFor(j)
	b.workers.Go(func() {
		if cause != "" {
			b.ask(j, cause) // once more: it may not have heard of it
		}
		b.watch(j)
	})
	return nil
}

// askedFor is what the last daemon asked a job to end for, "" for nothing. One that was to move goes where its place was kept. The
// mutex is held.
func (b *Box) askedFor(j *job) string {
	switch {
	case j.StopAsked:
		return shepherd.Stopped
	case j.State != box.Stopping:
		return ""
	}
	j.live.asked = true
	if j.Operation != nil && j.Operation.Verb == box.Moved {
		j.live.target = j.Operation.To
	}
	return shepherd.Moved
}

// unbegun lets a job wait again whose start was cut short. The mutex is held.
func (b *Box) unbegun(j *job) {
	if j.StopAsked {
		b.finish(j, ending{outcome: box.Cancelled, fault: "it was stopped before it began", at: time.Now()})
		return
	}
	j.State, j.On, j.Alloc = box.Waiting, nil, 0
	b.unsaved[j.ID] = true
}

// allocations are what the agent holds of the last daemon's.
func (b *Box) allocations() []agent.Job {
	answer, err := b.agent.Ask(b.ctx, agent.Request{Op: agent.OpList})
	if err != nil {
		b.o.Log.Warn("the agent's allocations cannot be listed", "fault", err)
	}
	return answer.Jobs
}

// forgetAllocations gives back what of the last daemon's the agent holds for jobs that no longer run.
func (b *Box) forgetAllocations(left []agent.Job) {
	used := map[uint64]bool{}
	b.mu.Lock()
	for _, j := range b.jobs { // some of them may be ending already
		if j.live != nil {
			used[j.Alloc] = true
		}
	}
	b.mu.Unlock()
	for _, a := range left {
		if !used[a.ID] {
			if err := b.free(a.ID); err != nil {
				b.o.Log.Warn("an allocation was not given back", "allocation", a.ID, "fault", err)
			}
		}
	}
}

// restore reads what is kept beside jobs: events, what was learned, what was used, which GPUs are drained.
func (b *Box) restore() error {
	events, err := b.store.events(eventsShown)
	if err != nil {
		return err
	}
	b.events.ring, b.events.next = events, 1
	if n := len(events); n > 0 {
		b.events.next = events[n-1].Seq + 1
	}
	var ahead uint64
	if _, err := b.store.meta(metaEvents, &ahead); err != nil {
		return err
	}
	b.events.next = max(b.events.next, ahead)
	b.saveEvents() // the numbers that this daemon takes
	if _, err := b.store.meta(metaNext, &b.next); err != nil {
		return err
	}
	b.next = max(b.next, 1)
	if b.book, err = b.restoreBook(); err != nil {
		return err
	}
	var drained []string
	if _, err := b.store.meta(metaDrained, &drained); err != nil {
		return err
	}
	for g := range b.gpus {
		b.drained[g] = slices.Contains(drained, b.gpus[g].UUID.String())
	}
	_, err = b.store.meta(metaUsage, &b.used)
	return err
}

// save writes what is kept but of little moment.
func (b *Box) save() {
	b.mu.Lock()
	changes := []change{metaChange(metaUsage, b.used)}
	if text, err := b.book.Encode(); err == nil {
		changes = append(changes, metaChange(metaEstimate, json.RawMessage(text)))
	}
	b.mu.Unlock()
	if err := b.store.write(changes...); err != nil {
		b.o.Log.Warn("what was learned cannot be written", "fault", err)
	}
	b.keepUnsaved()
}

// keepUnsaved tries again to write records that could not be written.
func (b *Box) keepUnsaved() {
	b.mu.Lock()
	var jobs []*job
	for _, id := range slices.Sorted(maps.Keys(b.unsaved)) {
		if j := b.jobs[id]; j != nil {
			jobs = append(jobs, j)
		}
	}
	clear(b.unsaved)
	b.mu.Unlock()
	for _, j := range jobs {
		b.keep(j)
	}
}

// restoreBook makes the book of what is known of jobs. What cannot be read is begun anew, and said.
func (b *Box) restoreBook() (*estimate.Book, error) {
	var o estimate.Options
	if b.o.Estimate != nil {
		o = b.o.Estimate()
	}
	book := estimate.New(o)
	var text json.RawMessage
	known, err := b.store.meta(metaEstimate, &text)
	if err != nil || !known {
		return book, err
	}
	if err := book.Restore(text); err != nil {
		b.o.Log.Warn("what was learned of jobs cannot be read: it is begun anew", "fault", err)
	}
	return book, nil
}
