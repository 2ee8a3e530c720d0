package snapshot

import (
	"bytes"
	"encoding/binary"
	"io"
)

// writer writes pickles the way Python's protocol 4 does: texts and containers are memoised, lists come in batches.
type writer struct {
	w    io.Writer
	memo map[string]uint32
	next uint32
}

func newWriter(w io.Writer) *writer {
	p := &writer{w: w, memo: map[string]uint32{}}
	p.raw("\x80\x04")
	return p
}

func (p *writer) raw(s string) { _, _ = io.WriteString(p.w, s) }

func (p *writer) memoize() {
	p.raw("\x94")
	p.next++
}

func (p *writer) text(s string) {
	if place, ok := p.memo[s]; ok {
		p.raw("j" + string(binary.LittleEndian.AppendUint32(nil, place)))
		return
	}
	p.raw("X" + string(binary.LittleEndian.AppendUint32(nil, uint32(len(s)))) + s)
	p.memo[s] = p.next
	p.memoize()
}

func (p *writer) number(n int64) {
	p.raw("\x8a\x08" + string(binary.LittleEndian.AppendUint64(nil, uint64(n))))
}

// pair is an entry of a dictionary: int64, string or func() that writes a value.
type pair struct {
	key   string
	value any
}

func (p *writer) dict(pairs ...pair) {
	p.raw("}")
	p.memoize()
	p.raw("(")
	for _, e := range pairs {
		p.text(e.key)
		switch v := e.value.(type) {
		case int64:
			p.number(v)
		case string:
			p.text(v)
		case func():
			v()
		}
	}
	p.raw("u")
}

// list writes n items in batches of 1000.
func (p *writer) list(n int, item func(i int)) {
	p.raw("]")
	p.memoize()
	for i := 0; i < n; i++ {
		if i%1000 == 0 {
			p.raw("(")
		}
		item(i)
		if i%1000 == 999 || i == n-1 {
			p.raw("e")
		}
	}
}

// event is one entry of a device's history.
type event struct {
	action   string
	size, us int64 // us < 0: no time
}

func (p *writer) event(e event) {
	pairs := []pair{{"action", e.action}, {"addr", int64(1 << 40)}, {"size", e.size}, {"stream", int64(0)}}
	if e.us >= 0 {
		pairs = append(pairs, pair{"time_us", e.us})
	}
	pairs = append(pairs, pair{"frames", func() {
		p.list(1, func(int) { p.dict(pair{"filename", "train.py"}, pair{"name", "alloc"}, pair{"line", int64(7)}) })
	}})
	p.dict(pairs...)
}

// segment is the state of one piece of reserved memory at the end.
type segment struct{ device, total, active int64 }

func (p *writer) snapshot(segments []segment, history [][]event) {
	p.dict(
		pair{"segments", func() {
			p.list(len(segments), func(i int) {
				s := segments[i]
				p.dict(pair{"device", s.device}, pair{"total_size", s.total}, pair{"allocated_size", s.active},
					pair{"active_size", s.active}, pair{"blocks", func() { p.list(0, nil) }})
			})
		}},
		pair{"device_traces", func() {
			p.list(len(history), func(d int) {
				p.list(len(history[d]), func(i int) { p.event(history[d][i]) })
			})
		}},
		pair{"a_new_key", "of a later version"},
	)
	p.raw(".")
}

func pickled(segments []segment, history ...[]event) []byte {
	var b bytes.Buffer
	newWriter(&b).snapshot(segments, history)
	return b.Bytes()
}
