// Package snapshot reads memory snapshots of PyTorch: the pickle that torch.cuda.memory._dump_snapshot writes. Nothing
// of the pickle is executed.
//
// Memory that the reader takes grows by about 5 bytes for each value that the pickle numbers for later use (the format
// allows no less: any of them may be asked for again); of the events only a step curve of bounded size is kept.
package snapshot

import (
	"errors"
	"fmt"
	"io"
	"strconv"

	"weft.dev/weft/internal/recording"
	"weft.dev/weft/internal/recording/pickle"
	"weft.dev/weft/internal/unit"
)

// Source names what these recordings come from.
const Source = "pytorch snapshot"

// The keys of a snapshot that are read, by their place in keys.
const (
	keySegments = iota
	keyTraces
	keyDevice
	keyTotal
	keyAllocated
	keyActive
	keyAction
	keySize
	keyTime
)

var (
	keys = []string{"segments", "device_traces", "device", "total_size", "allocated_size", "active_size", "action", "size", "time_us"}

	words = []string{"alloc", "free_requested", "free_completed", "segment_alloc", "segment_map", "segment_free",
		"segment_unmap", "oom", "snapshot"}
)

// Read reads a snapshot of size bytes, 0 when that is not known: one recording for each device with events. Its faults
// are trace.Errors that name the byte offset.
func Read(file string, r io.Reader, size int64, progress recording.Progress) ([]recording.Recording, error) {
	options := pickle.Options{Size: size, Keys: keys, Words: words, Fold: fold, Progress: progress}
	root, err := pickle.Read(r, options)
	if err != nil {
		return nil, explain(file, err)
	}
	d, ok := root.Dict()
	if !ok {
		return nil, recording.Bad(file, "not_a_snapshot", "the pickle is no dictionary with segments and device_traces", -1,
			"torch.cuda.memory_snapshot() alone holds no history", "write it with torch.cuda.memory._dump_snapshot(FILE)")
	}
	traces, ok := d.Get(keyTraces).List()
	if !ok {
		return nil, noEvents(file)
	}
	return recordings(file, segments(d.Get(keySegments)), traces)
}

// explain turns an error of the pickle into a fault of the file.
func explain(file string, err error) error {
	var e *pickle.Error
	if !errors.As(err, &e) {
		return fmt.Errorf("read %s: %w", file, err)
	}
	switch {
	case e.Truncated:
		return recording.Bad(file, "truncated", e.Error(), e.Offset, "the snapshot ends before its last value", "write or copy it again")
	case e.Refused:
		return recording.Bad(file, "refused", e.Error(), e.Offset, "a snapshot is plain data: this file would run code when it is loaded",
			"do not open it with Python; take a new snapshot")
	}
	return recording.Bad(file, "malformed", e.Error(), e.Offset, "", "write it with torch.cuda.memory._dump_snapshot(FILE)")
}

func noEvents(file string) error {
	return recording.Bad(file, "no_events", "the snapshot holds no allocator events", -1,
		"without its history a snapshot is one instant, not a curve",
		"call torch.cuda.memory._record_memory_history() some iterations before _dump_snapshot")
}

// state is what the segments of one device hold at the end of the recording.
type state struct {
	reserved, active unit.Bytes
}

// held gathers segments by device.
type held map[int64]state

// fold takes segments and events out of their lists.
func fold(list *pickle.List, item *pickle.Dict) bool {
	switch {
	case item.Has(keyTotal):
		h, _ := list.Folded().(held)
		if h == nil {
			h = held{}
			list.Fold(h)
		}
		device, _ := item.Get(keyDevice).Int()
		active, known := amount(item.Get(keyActive))
		if !known {
			active, _ = amount(item.Get(keyAllocated))
		}
		total, _ := amount(item.Get(keyTotal))
		s := h[device]
		h[device] = state{s.reserved.Add(total), s.active.Add(active)}
		return true
	case item.Has(keyAction):
		e, _ := list.Folded().(*events)
		if e == nil {
			e = &events{}
			list.Fold(e)
		}
		e.add(item)
		return true
	}
	return false
}

func segments(v pickle.Value) held {
	if list, ok := v.List(); ok {
		if h, ok := list.Folded().(held); ok {
			return h
		}
	}
	return nil
}

// amount is an amount of memory. Beyond 1 PiB it is none.
func amount(v pickle.Value) (unit.Bytes, bool) {
	n, ok := v.Int()
	if !ok || n < 0 || n > 1<<50 {
		return 0, false
	}
	return unit.Bytes(n), true
}

func recordings(file string, end held, traces *pickle.List) ([]recording.Recording, error) {
	var out []recording.Recording
	for device := range traces.Len() {
		list, ok := traces.At(device).List()
		if !ok {
			continue
		}
		e, ok := list.Folded().(*events)
		if !ok || e.used.Points() == 0 && e.requested.Points() == 0 {
			continue
		}
		r := e.recording(end[int64(device)])
		r.Device = strconv.Itoa(device)
		out = append(out, r)
	}
	if len(out) == 0 {
		return nil, noEvents(file)
	}
	return out, nil
}
