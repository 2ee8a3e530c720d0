package local

import (
	"os"
	"testing"
	"time"

	"weft.dev/weft/internal/box"
)

// TestForgetsOldJobs: those that ended long ago go with their folders, their numbers are not used again, and what waits for one
// of them still knows of it.
func TestForgetsOldJobs(t *testing.T) {
	b := open(t, 1)
	old, needed, young := b.submit("true"), b.submit("true"), b.submit("true")
	for _, id := range []box.ID{old, needed, young} {
		b.done(id)
	}
	blocker := b.submit("sleep 60")
	b.until(blocker, "running", running)
	waits := b.submit("true", func(s *box.Spec) { s.After = []box.ID{needed, blocker} })
	long := time.Now().Add(-8 * 24 * time.Hour)
	b.mu.Lock()
	for _, id := range []box.ID{old, needed} {
		b.jobs[id].Ended = &long
	}
	b.mu.Unlock()
	b.forget(time.Now())
	for id, want := range map[box.ID]bool{old: false, needed: true, young: true, blocker: true, waits: true} {
		_, err := b.Job(me, id)
		_, missing := os.Stat(b.dir(id))
		if (err == nil) != want || (missing == nil) != want {
			t.Errorf("job %d: %v, %v, want it there: %t", id, err, missing, want)
		}
	}
	if _, err := b.Stop(me, blocker); err != nil {
		t.Fatal(err)
	}
	b.done(waits)
	b.mu.Lock()
	for _, j := range b.jobs {
		if j.State == box.Done {
			j.Ended = &long
		}
	}
	b.mu.Unlock()
	b.keepUnsaved()
	b.forget(time.Now())
	if left := b.Jobs(me, true, ""); len(left) != 0 {
		t.Errorf("left: %+v", left)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b.reopen()
	if id := b.submit("true"); id != waits+1 {
		t.Errorf("the next job is %d, want %d", id, waits+1)
	}
}

// TestForgetsAllButTheLast: beyond so many the oldest go.
func TestForgetsAllButTheLast(t *testing.T) {
	b := open(t, 1)
	b.mu.Lock()
	now := time.Now()
	for i := range doneKept + 10 {
		at := now.Add(time.Duration(i) * time.Second)
		b.insert(&job{record: record{ID: box.ID(i + 1), State: box.Done, Ended: &at}, ended: make(chan struct{})})
	}
	b.next = doneKept + 11
	b.mu.Unlock()
	b.forget(now)
	jobs := b.Jobs(me, true, "")
	if len(jobs) != doneKept || jobs[0].ID != 11 {
		t.Errorf("%d jobs from %d, want %d from 11", len(jobs), jobs[0].ID, doneKept)
	}
}

// TestEventsKeepTheirNumbers: after a crash no number stands for another event than before.
func TestEventsKeepTheirNumbers(t *testing.T) {
	b := open(t, 1)
	b.done(b.submit("true"))
	first := b.Events(0, time.Time{})
	last := first[len(first)-1].Seq
	crash(t, b, change{bucketEvents, numbered(last), nil}) // as if the last ones had not been written
	b.done(b.submit("true"))
	for _, e := range b.Events(0, time.Time{}) {
		if e.Seq == last {
			t.Errorf("%+v has the number of another", e)
		}
	}
}

// crash closes a box, takes back what a killed daemon would not have written, and opens it again.
func crash(t *testing.T, b *bench, unwritten ...change) {
	t.Helper()
	b.mu.Lock()
	ahead := b.events.ahead
	b.mu.Unlock()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	s, _, err := openStore(b.o.State + "/state.db")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.write(append(unwritten, metaChange(metaEvents, ahead))...); err != nil {
		t.Fatal(err)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	b.reopen()
}
