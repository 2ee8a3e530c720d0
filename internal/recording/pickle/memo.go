package pickle

// memo numbers the values that the pickle may ask for again. Nearly all of them are containers that were dropped by
// then: a place takes 4 bytes, and only values that are still wanted are held.
type memo struct {
	pages []*[pageSize]uint32 // 0: nothing; 1: dropped; 2: a blank text; else 3 + the place in live
	size  uint64              // places in use
	live  []Value
	free  []uint32
}

const pageSize = 1 << 14

const (
	placeEmpty   = 0
	placeDropped = 1
	placeBlank   = 2
	placeLive    = 3
)

// slot is where a place is kept; its page must be there.
func (m *memo) slot(place uint64) *uint32 { return &m.pages[place/pageSize][place%pageSize] }

// grow makes room for a place and returns how many bytes that took.
func (m *memo) grow(place uint64) int64 {
	m.size = max(m.size, place+1)
	before := len(m.pages)
	for uint64(len(m.pages))*pageSize <= place {
		m.pages = append(m.pages, new([pageSize]uint32))
	}
	return int64(len(m.pages)-before) * pageSize * 4
}

// liveSize is what a value in live takes, with room to grow.
const liveSize = 40

// put keeps a value at a place and returns how many bytes that took.
func (m *memo) put(place uint64, v Value) (taken int64) {
	m.drop(place)
	if v.o == blank {
		*m.slot(place) = placeBlank
		return 0
	}
	at := uint32(len(m.live))
	if n := len(m.free); n > 0 {
		at = m.free[n-1]
		m.free = m.free[:n-1]
		m.live[at] = v
	} else {
		m.live = append(m.live, v)
		taken = liveSize
	}
	*m.slot(place) = at + placeLive
	if v.container() {
		v.o.memo = uint32(place) + 1
	}
	return taken
}

// drop lets go of the value at a place.
func (m *memo) drop(place uint64) {
	s := m.slot(place)
	if *s >= placeLive {
		m.live[*s-placeLive] = Value{}
		m.free = append(m.free, *s-placeLive)
		*s = placeDropped
	}
}

func (m *memo) get(place uint64) (Value, bool) {
	if place >= m.size {
		return Value{}, false
	}
	switch s := *m.slot(place); s {
	case placeEmpty:
		return Value{}, false
	case placeBlank:
		return Value{o: blank}, true
	case placeDropped:
		return Value{o: gone}, true
	default:
		return m.live[s-placeLive], true
	}
}
