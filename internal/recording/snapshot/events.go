package snapshot

import (
	"fmt"

	"weft.dev/weft/internal/recording"
	"weft.dev/weft/internal/recording/pickle"
	"weft.dev/weft/internal/unit"
)

// events is the history of one device, as changes from its unknown start. Memory is in use until free_completed: until
// then a stream may still touch it. Recordings without that action use free_requested.
type events struct {
	used, requested, reserved   recording.Builder
	level, asked, hold          unit.Bytes // the last level of each
	completed                   bool       // the history has free_completed
	count, untimed, bad, missed int
	origin                      int64
	last                        unit.Time
}

// farthest is the longest recording, ten years: events further from the first one have a broken clock.
const farthest = 10 * 366 * 24 * 3600 * 1e9

// add takes one event.
func (e *events) add(item *pickle.Dict) {
	action, _ := item.Get(keyAction).Text()
	if action == "" || action == "oom" || action == "snapshot" {
		return // of no memory: an unknown action, a failed request, a mark
	}
	size, ok := amount(item.Get(keySize))
	if !ok {
		e.bad++
		return
	}
	at := e.time(item)
	if e.count == 1 { // what was held before the first event
		e.used.Add(at, 0)
		e.requested.Add(at, 0)
	}
	switch action {
	case "alloc":
		e.level, e.asked = e.level.Add(size), e.asked.Add(size)
		e.used.Add(at, e.level)
		e.ask(at)
	case "free_requested":
		e.asked = e.asked.Add(-size)
		e.ask(at)
	case "free_completed":
		e.completed, e.requested = true, recording.Builder{}
		e.level = e.level.Add(-size)
		e.used.Add(at, e.level)
	case "segment_alloc", "segment_map":
		e.hold = e.hold.Add(size)
		e.reserved.Add(at, e.hold)
	case "segment_free", "segment_unmap":
		e.hold = e.hold.Add(-size)
		e.reserved.Add(at, e.hold)
	}
}

// ask records what is in use until a free is requested, as long as no free is known to complete.
func (e *events) ask(at unit.Time) {
	if !e.completed {
		e.requested.Add(at, e.asked)
	}
}

// time is when an event happened since the first one; without times its number.
func (e *events) time(item *pickle.Dict) unit.Time {
	e.count++
	us, ok := item.Get(keyTime).Int()
	if !ok || e.untimed > 0 {
		e.untimed++
		e.last++
		return e.last
	}
	if e.count == 1 {
		e.origin = us
	}
	since := us - e.origin
	if since < -farthest/1000 || since > farthest/1000 {
		e.missed++
		return e.last
	}
	e.last = max(e.last, unit.Time(since*1000))
	return e.last
}

// recording makes the curves, given what was held at the end.
func (e *events) recording(end state) recording.Recording {
	used, level := &e.used, e.level
	if !e.completed {
		used, level = &e.requested, e.asked
	}
	r := recording.Recording{Source: Source}
	var thinned bool
	r.Allocated, thinned = used.Curve(end.active.Add(-level), e.last)
	if end.reserved > 0 {
		e.reserved.Add(r.Allocated.Start(), e.hold) // a history without segment events keeps what it ends with
		r.Reserved, _ = e.constant(end.reserved)
	}
	if e.untimed > 0 {
		r.Clock = recording.Ordered
	}
	if thinned {
		r.Notes = append(r.Notes, "a long recording: neighbouring events are joined at the higher of their levels")
	}
	if e.bad > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%d events without a usable size are left out", e.bad))
	}
	if e.missed > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%d events with a time years away from the others count at the time of their neighbour", e.missed))
	}
	return r
}

// constant is the curve of reserved memory that ends with a level.
func (e *events) constant(end unit.Bytes) (recording.Curve, bool) {
	return e.reserved.Curve(end.Add(-e.hold), e.last)
}
