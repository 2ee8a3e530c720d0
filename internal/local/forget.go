package local

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"time"

	"weft.dev/weft/internal/box"
)

// What is kept of jobs that are done.
const (
	doneKept    = 2000
	doneKeptFor = 7 * 24 * time.Hour
	doneAtOnce  = 500 // forgotten in one go
)

// forget removes the jobs that were done long ago, with what they printed. The folder goes first: a job whose record is left
// is forgotten the next time.
func (b *Box) forget(now time.Time) {
	b.mu.Lock()
	old, next := b.outlived(now), b.next
	b.mu.Unlock()
	if len(old) == 0 {
		return
	}
	changes := []change{metaChange(metaNext, next)} // a number is never used twice
	var forgotten []*job
	for _, j := range old {
		if err := b.remove(j); err != nil {
			b.setDegraded("old jobs", fmt.Sprintf("old jobs cannot be removed: %v", err))
			break
		}
		forgotten = append(forgotten, j)
		changes = append(changes, change{bucketJobs, numbered(uint64(j.ID)), nil})
	}
	if err := b.store.write(changes...); err != nil {
		b.setDegraded("old jobs", fmt.Sprintf("old jobs cannot be removed: %v", err))
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(forgotten) == len(old) {
		delete(b.degraded, "old jobs")
	}
	for _, j := range forgotten {
		delete(b.jobs, j.ID)
	}
	b.order = slices.DeleteFunc(b.order, func(id box.ID) bool { return b.jobs[id] == nil })
	b.touch()
}

// outlived are the jobs to forget, those that ended first before the others. The mutex is held.
func (b *Box) outlived(now time.Time) []*job {
	needed := map[box.ID]bool{}
	var done []*job
	for _, id := range b.order {
		j := b.jobs[id]
		if j.State != box.Done {
			for _, after := range j.After {
				needed[after] = true
			}
			continue
		}
		if !b.unsaved[id] {
			done = append(done, j)
		}
	}
	slices.SortStableFunc(done, func(x, y *job) int { return cmp.Or(x.Ended.Compare(*y.Ended), cmp.Compare(x.ID, y.ID)) })
	var old []*job
	for i, j := range done {
		if (len(done)-i > doneKept || now.Sub(*j.Ended) > doneKeptFor) && !needed[j.ID] && len(old) < doneAtOnce {
			old = append(old, j)
		}
	}
	return old
}

// remove removes a job's folder. What is still to be written of it is not.
func (b *Box) remove(j *job) error {
	j.writing.Lock()
	defer j.writing.Unlock()
	b.mu.Lock()
	j.gone = true
	b.mu.Unlock()
	return os.RemoveAll(b.dir(j.ID))
}
