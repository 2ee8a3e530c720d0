package pickle

import "fmt"

// outside are the opcodes that import, call or build something, or want data from elsewhere. They are never followed.
var outside = map[byte]string{
	'c': "GLOBAL", 0x93: "STACK_GLOBAL", 'R': "REDUCE", 'b': "BUILD", 'i': "INST", 'o': "OBJ", 0x81: "NEWOBJ",
	0x92: "NEWOBJ_EX", 0x82: "EXT1", 0x83: "EXT2", 0x84: "EXT4", 'P': "PERSID", 'Q': "BINPERSID", 0x97: "NEXT_BUFFER",
	0x98: "READONLY_BUFFER", 0x8f: "EMPTY_SET", 0x90: "ADDITEMS", 0x91: "FROZENSET",
}

// data are the opcodes of plain data, by what they do.
var data = map[byte]string{
	0x80: "PROTO", 0x95: "FRAME", '.': "STOP", '(': "MARK", '0': "POP", '1': "POP_MARK", '2': "DUP", 'N': "NONE",
	'I': "INT", 'J': "BININT", 'K': "BININT1", 'M': "BININT2", 'L': "LONG", 0x8a: "LONG1", 0x8b: "LONG4",
	'F': "FLOAT", 'G': "BINFLOAT", 'S': "STRING", 'T': "BINSTRING", 'U': "SHORT_BINSTRING", 'V': "UNICODE",
	'X': "BINUNICODE", 0x8c: "SHORT_BINUNICODE", 0x8d: "BINUNICODE8", 'B': "BINBYTES", 'C': "SHORT_BINBYTES",
	0x8e: "BINBYTES8", 0x96: "BYTEARRAY8", ']': "EMPTY_LIST", 'a': "APPEND", 'e': "APPENDS", 'l': "LIST",
	')': "EMPTY_TUPLE", 't': "TUPLE", 0x85: "TUPLE1", 0x86: "TUPLE2", 0x87: "TUPLE3", '}': "EMPTY_DICT", 'd': "DICT",
	's': "SETITEM", 'u': "SETITEMS", 0x88: "NEWTRUE", 0x89: "NEWFALSE", 'g': "GET", 'h': "BINGET", 'j': "LONG_BINGET",
	'p': "PUT", 'q': "BINPUT", 'r': "LONG_BINPUT", 0x94: "MEMOIZE",
}

// widths are the bytes of the number that follows an opcode: the value itself, a place of the memo or a length.
var widths = [256]int{
	'h': 1, 'j': 4, 'q': 1, 'r': 4, 'J': 4, 'K': 1, 'M': 2, 0x8a: 1, 0x8b: 4, 'U': 1, 0x8c: 1, 'C': 1, 'T': 4, 'X': 4,
	'B': 4, 0x8d: 8, 0x8e: 8, 0x96: 8,
}

func name(op byte) string {
	if n, ok := data[op]; ok {
		return n
	}
	if n, ok := outside[op]; ok {
		return n
	}
	return fmt.Sprintf("opcode 0x%02x", op)
}

// step executes one opcode.
func (m *machine) step(op byte) error {
	switch op {
	case 0x80:
		version, err := m.in.byte()
		if err == nil && version > 5 {
			err = m.fail("announces protocol %d; 0 to 5 are known", version)
		}
		return err
	case 0x95: // how much may be read ahead, which says nothing about the data
		_, err := m.in.number(8)
		return err
	case '.':
		top, err := m.value()
		if err != nil {
			return err
		}
		m.top = top
		return errStop
	case 'I', 'L', 'J', 'K', 'M', 0x8a, 0x8b, 'F', 'G', 'N', 0x88, 0x89:
		return m.number(op)
	case 'S', 'V', 'T', 'U', 'X', 0x8c, 0x8d, 'B', 'C', 0x8e, 0x96:
		return m.string(op)
	case 'g', 'h', 'j', 'p', 'q', 'r', 0x94:
		return m.memory(op)
	case '(', '0', '1', '2':
		return m.shuffle(op)
	case ']', '}', ')', 'l', 't', 'd', 0x85, 0x86, 0x87, 'a', 'e', 's', 'u':
		return m.collect(op)
	}
	return m.refuse(op)
}

// length holds a length that the pickle claims against the input.
func (m *machine) length(n uint64) error {
	if err := m.in.fits(n); err != nil {
		return m.fail("%v", err)
	}
	return nil
}

// refuse is the error of an opcode that is not data, with the name it would import where that can be read.
func (m *machine) refuse(op byte) error {
	n, known := outside[op]
	if !known {
		return m.fail("is not an opcode")
	}
	e := &Error{Offset: m.at, Opcode: n, Message: "refused, not executed", Refused: true}
	switch op {
	case 'c', 'i':
		module, _, err1 := m.in.line(maxText)
		called, _, err2 := m.in.line(maxText)
		if err1 == nil && err2 == nil {
			e.Opcode += " " + module + "." + called
		}
	case 0x93:
		e.Opcode += " " + string(m.recent[0]) + "." + string(m.recent[1])
	}
	return e
}

func (m *machine) shuffle(op byte) error {
	switch op {
	case '(':
		return m.push(Value{o: mark})
	case '0':
		_, err := m.pop()
		return err
	case '1':
		_, err := m.marked()
		return err
	}
	v, err := m.value() // DUP
	if err != nil {
		return err
	}
	m.stack = append(m.stack, v)
	return m.push(v)
}

func (m *machine) memory(op byte) error {
	place := m.memo.size
	var err error
	switch op {
	case 'g', 'p':
		place, err = m.place()
	case 0x94:
	default:
		place, err = m.in.number(widths[op])
	}
	if err != nil {
		return err
	}
	if op == 'g' || op == 'h' || op == 'j' {
		return m.recall(place)
	}
	return m.remember(place)
}
