package wire

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// every is one message of each type, none of them blank.
func every() []Message {
	q, s, tm := Question{7, 1}, Shared{Handle: 9, GPU: 2, Key: [KeySize]byte{1, 2, 3}}, Terms{5, 6, 7, 1}
	welcome := &Welcome{Session: 3, Count: 2, Class: 1, Grace: 500, Held: 1}
	welcome.GPUs[1] = GPU{UUID: [16]byte{9}, Limit: 8, Reserved: 4}
	return []Message{
		&Hello{1, 2, 3, 1}, &Use{3}, &Request{}, &Released{1, 2, 3, 4, 5}, &Idle{Epoch{4}}, &Alloc{1, 2, 3, 4, 1}, &Free{q}, &Export{s},
		&Import{s}, &Iteration{4}, &View{q}, &ProcessesOf{q}, &Pong{}, welcome, &Refused{RefusedFull, 1}, &Grant{tm}, &Narrow{tm},
		&Yield{8, 1}, &Drop{1, 2}, &Memory{1, OutOfMemory, 2, 3, 4, 5}, &List{1, 2, []Process{{5, 6}, {7, -1}}}, &Wanted{1, 1}, &Ping{},
	}
}

func TestRoundTrip(t *testing.T) {
	seen := map[Type]bool{}
	for i, m := range every() {
		p := Append(nil, uint32(i), m)
		number, got, err := Parse(p)
		if err != nil || number != uint32(i) || !cmp.Equal(got, m, cmp.AllowUnexported(Request{}, Ping{}, Pong{}, plain{})) {
			t.Errorf("%T: %v %v", m, cmp.Diff(got, m, cmp.AllowUnexported(Request{}, Ping{}, Pong{}, plain{})), err)
		}
		seen[m.kind()] = true
	}
	for ty := range Type(100) {
		if (blank(ty) != nil) != seen[ty] {
			t.Errorf("type %d is not tested", ty)
		}
	}
}

// TestStrict spoils each byte of the head, and the length, of every message.
func TestStrict(t *testing.T) {
	for _, m := range every() {
		p := Append(nil, 1, m)
		for _, q := range [][]byte{nil, p[:15], p[:len(p)-1], append(bytes.Clone(p), 0), append(bytes.Clone(p), make([]byte, Max)...)} {
			if _, _, err := Parse(q); !errors.Is(err, ErrMalformed) {
				t.Errorf("%T of %d bytes: %v", m, len(q), err)
			}
		}
		for i := range 12 {
			q := bytes.Clone(p)
			q[i] ^= 0x40
			if _, _, err := Parse(q); !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrVersion) {
				t.Errorf("%T with byte %d spoilt: %v", m, i, err)
			}
		}
	}
	for _, m := range []Message{&Use{1}, &Free{}, &Drop{}, &Export{}, &Welcome{Count: 1}, &List{Processes: make([]Process, 1)}} {
		p := Append(nil, 1, m)
		p[map[Type]int{TypeUse: 20, TypeFree: 28, TypeDrop: 28, TypeExport: 28, TypeWelcome: 80, TypeList: 44}[m.kind()]] = 1
		if _, _, err := Parse(p); !errors.Is(err, errZero) {
			t.Errorf("%T with something where nothing belongs: %v", m, err)
		}
	}
	p := Append(nil, 1, &Ping{})
	p[4]++
	if _, _, err := Parse(p); !errors.Is(err, ErrVersion) {
		t.Errorf("another version: %v", err)
	}
}

func TestSequence(t *testing.T) {
	var s, r Sequence
	for range 3 {
		if n := s.Next(); !r.Take(n) || r.Take(n) || r.Take(n+2) {
			t.Fatalf("after %d", n)
		}
	}
}

// FuzzParse holds any bytes to be refused, or to be written again as they were.
func FuzzParse(f *testing.F) {
	for i, m := range every() {
		f.Add(Append(nil, uint32(i), m))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		number, m, err := Parse(p)
		if err != nil {
			return
		}
		if got := Append(nil, number, m); !bytes.Equal(got, p) {
			t.Fatalf("%#v\n% x\n% x", m, p, got)
		}
	})
}

// FuzzRoundTrip fills the body of every type with any bytes.
func FuzzRoundTrip(f *testing.F) {
	f.Add(uint16(1), uint32(1), []byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, kind uint16, number uint32, fill []byte) {
		m := blank(Type(kind))
		if m == nil {
			return
		}
		body := make([]byte, m.size())
		copy(body, fill)
		if m.get(body) != nil {
			return
		}
		n, got, err := Parse(Append(nil, number, m))
		if err != nil || n != number || !cmp.Equal(got, m, cmp.AllowUnexported(Request{}, Ping{}, Pong{}, plain{})) {
			t.Fatalf("%#v %#v %v", m, got, err)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	p := Append(nil, 1, &Released{1, 2, 3, 4, 5})
	for b.Loop() {
		if _, _, err := Parse(p); err != nil {
			b.Fatal(err)
		}
	}
}
