package pickle

import (
	"encoding/binary"
	"math"
	"math/big"
	"strconv"
	"strings"
)

func (m *machine) integer(n int64) error { return m.push(Value{o: whole, n: n}) }

func (m *machine) truth(b bool) error {
	v := Value{o: boole}
	if b {
		v.n = 1
	}
	return m.push(v)
}

// place reads the decimal number of a memo entry.
func (m *machine) place() (uint64, error) {
	text, ok, err := m.in.line(maxNumber)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 63)
	if err != nil || !ok {
		return 0, m.fail("has no number")
	}
	return n, nil
}

func (m *machine) number(op byte) error {
	switch op {
	case 'N':
		return m.push(Value{o: none})
	case 0x88, 0x89:
		return m.truth(op == 0x88)
	case 'I', 'L':
		return m.decimal(op)
	case 'F':
		text, ok, err := m.in.line(maxNumber)
		if err != nil {
			return err
		}
		f, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if (err != nil && math.Abs(f) != math.Inf(1)) || !ok {
			return m.fail("has no number")
		}
		return m.push(Value{o: float, n: int64(math.Float64bits(f))})
	case 'G':
		b, err := m.in.bytes(8)
		if err != nil {
			return err
		}
		return m.push(Value{o: float, n: int64(binary.BigEndian.Uint64(b))})
	case 0x8a, 0x8b:
		return m.long(op)
	}
	n, err := m.in.number(widths[op])
	if err != nil {
		return err
	}
	if op == 'J' {
		return m.integer(int64(int32(uint32(n))))
	}
	return m.integer(int64(n))
}

// decimal reads INT, where "00" and "01" are booleans, or LONG.
func (m *machine) decimal(op byte) error {
	text, ok, err := m.in.line(maxNumber)
	if err != nil {
		return err
	}
	text = strings.TrimSpace(text)
	if op == 'I' && (text == "00" || text == "01") {
		return m.truth(text == "01")
	}
	n, good := new(big.Int).SetString(strings.TrimSuffix(text, "L"), 10)
	if !good || !ok {
		return m.fail("has no number")
	}
	if !n.IsInt64() {
		return m.integer(saturated(n.Sign() < 0))
	}
	return m.integer(n.Int64())
}

// long reads a little-endian number in two's complement. Longer ones than maxNumber bytes are no amount of memory and
// no time.
func (m *machine) long(op byte) error {
	n, err := m.in.number(widths[op])
	if err != nil {
		return err
	}
	if err := m.length(n); err != nil {
		return err
	}
	if n > maxNumber {
		return m.fail("has a number of %d bytes", n)
	}
	b, err := m.in.bytes(n)
	if err != nil {
		return err
	}
	return m.integer(twos(b))
}

// twos is a little-endian number in two's complement, saturated to 64 bits.
func twos(b []byte) int64 {
	negative := len(b) > 0 && b[len(b)-1] >= 0x80
	fill := byte(0)
	if negative {
		fill = 0xff
	}
	var n [8]byte
	for i := range n {
		n[i] = fill
	}
	copy(n[:], b)
	v := int64(binary.LittleEndian.Uint64(n[:]))
	for _, high := range b[min(8, len(b)):] {
		if high != fill || (v < 0) != negative {
			return saturated(negative)
		}
	}
	if (v < 0) != negative {
		return saturated(negative)
	}
	return v
}

func saturated(negative bool) int64 {
	if negative {
		return math.MinInt64
	}
	return math.MaxInt64
}

// string reads a text or bytes. Escapes of the text forms of protocol 0 are left as they are: the names that are
// looked for have none.
func (m *machine) string(op byte) error {
	if op == 'S' || op == 'V' {
		text, _, err := m.in.line(maxText)
		if err != nil {
			return err
		}
		if op == 'S' {
			text = strings.Trim(strings.TrimSpace(text), `'"`)
		}
		return m.text([]byte(text))
	}
	n, err := m.in.number(widths[op])
	if err != nil {
		return err
	}
	if err := m.length(n); err != nil {
		return err
	}
	b, err := m.in.bytes(n)
	if err != nil {
		return err
	}
	return m.text(b)
}
