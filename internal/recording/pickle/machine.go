package pickle

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// errStop is the end of the pickle.
var errStop = errors.New("stop")

// machine is the stack machine that a pickle is a program of, without the instructions that reach outside.
type machine struct {
	in       input
	options  Options
	words    map[string]*object
	recent   [2][]byte // the last two texts: what STACK_GLOBAL names
	stack    []Value
	memo     memo
	top      Value
	at       int64 // of the current opcode
	op       byte
	used     int64 // memory taken, counted roughly
	reported int64
}

func newMachine(r io.Reader, o Options) *machine {
	m := &machine{in: input{r: bufio.NewReaderSize(r, 1<<16), size: o.Size}, options: o, words: map[string]*object{}}
	for _, w := range o.Words {
		m.words[w] = &object{kind: kindText, text: w}
	}
	for i, k := range o.Keys {
		m.words[k] = &object{kind: kindText, text: k, key: uint8(i + 1)}
	}
	return m
}

// fail is a fault of the current opcode.
func (m *machine) fail(format string, args ...any) error {
	return &Error{Offset: m.at, Opcode: name(m.op), Message: fmt.Sprintf(format, args...)}
}

// take counts memory against the ration.
func (m *machine) take(n int64) error {
	m.used += n
	if m.used > baseRoom+m.in.read/roomShare {
		return m.fail("wants more than %d MiB of memory for %d bytes read", (baseRoom+m.in.read/roomShare)>>20, m.in.read)
	}
	return nil
}

func (m *machine) push(v Value) error {
	if len(m.stack) >= maxStack {
		return m.fail("leaves more than %d values open: nested too deep", maxStack)
	}
	m.stack = append(m.stack, v)
	return nil
}

func (m *machine) pop() (Value, error) {
	if len(m.stack) == 0 {
		return Value{}, m.fail("finds an empty stack")
	}
	v := m.stack[len(m.stack)-1]
	m.stack = m.stack[:len(m.stack)-1]
	return v, nil
}

// value pops a value that is no mark.
func (m *machine) value() (Value, error) {
	v, err := m.pop()
	if err == nil && v.kind() == kindMark {
		err = m.fail("finds a mark where a value must stand")
	}
	return v, err
}

// marked cuts the values above the last mark off the stack, and the mark. They are valid until the next push.
func (m *machine) marked() ([]Value, error) {
	for i := len(m.stack) - 1; i >= 0; i-- {
		if m.stack[i].o == mark {
			values := m.stack[i+1:]
			m.stack = m.stack[:i]
			return values, nil
		}
	}
	return nil, m.fail("finds no mark")
}

// Sizes that take counts: an object with its place in the memo, and one field of its growing slice.
const (
	objectSize = 112
	fieldSize  = 48
)

func (m *machine) container(k kind) (Value, error) {
	return Value{o: &object{kind: k, depth: 1}}, m.take(objectSize)
}

// text pushes a text. Those of no interest are all the same.
func (m *machine) text(b []byte) error {
	m.recent[0], m.recent[1] = m.recent[1], append(m.recent[0][:0], b...)
	o := m.words[string(b)]
	if o == nil {
		o = blank
	}
	return m.push(Value{o: o})
}

// target is the container of a kind that lies on top of the stack.
func (m *machine) target(k kind) (*object, error) {
	if len(m.stack) == 0 || m.stack[len(m.stack)-1].kind() != k {
		return nil, m.fail("finds no %s to add to", [...]string{kindList: "list", kindDict: "dictionary"}[k])
	}
	return m.stack[len(m.stack)-1].o, nil
}

// nest makes a container hold a value. Depth is what the value has now: what is added to it later through the memo is
// not followed, for no one descends into values but along known keys.
func (m *machine) nest(o *object, v Value) error {
	if !v.container() {
		return nil
	}
	o.depth = max(o.depth, v.o.depth+1)
	if o.depth > maxDepth {
		return m.fail("nests containers more than %d deep", maxDepth)
	}
	return nil
}

// add appends an item to a list. Texts, and dictionaries without a key that is kept, are not wanted in any list.
func (m *machine) add(o *object, v Value) error {
	if err := m.nest(o, v); err != nil {
		return err
	}
	switch v.kind() {
	case kindMark:
		return m.fail("puts a mark into a list")
	case kindText, kindNone, kindGone:
		return nil
	case kindDict:
		if v.o.dropped {
			return nil
		}
		if len(v.o.fields) == 0 || m.options.Fold != nil && m.options.Fold((*List)(o), (*Dict)(v.o)) {
			m.drop(v)
			return nil
		}
	}
	o.fields = append(o.fields, field{value: v})
	return m.take(fieldSize)
}

// drop forgets a container that is not wanted, in the memo too.
func (m *machine) drop(v Value) {
	if !v.container() || v.o.dropped {
		return
	}
	v.o.dropped = true
	if v.o.memo > 0 {
		m.memo.drop(uint64(v.o.memo - 1))
	}
	m.used -= objectSize + int64(len(v.o.fields))*fieldSize
}

// set adds an entry to a dictionary when its key is to be kept.
func (m *machine) set(o *object, k, v Value) error {
	if k.kind() == kindMark || v.kind() == kindMark {
		return m.fail("puts a mark into a dictionary")
	}
	if k.container() {
		return m.fail("uses a container as a key")
	}
	if err := m.nest(o, v); err != nil {
		return err
	}
	if k.kind() != kindText || k.o.key == 0 {
		m.drop(v)
		return nil
	}
	o.fields = append(o.fields, field{k.o.key, v})
	return m.take(fieldSize)
}

// remember puts the top of the stack into a place of the memo.
func (m *machine) remember(place uint64) error {
	if len(m.stack) == 0 || m.stack[len(m.stack)-1].o == mark {
		return m.fail("finds no value to remember")
	}
	if place > m.memo.size+maxSkip || place >= 1<<31 {
		return m.fail("numbers memo entry %d after %d", place, m.memo.size)
	}
	if err := m.take(m.memo.grow(place)); err != nil {
		return err
	}
	return m.take(m.memo.put(place, m.stack[len(m.stack)-1]))
}

func (m *machine) recall(place uint64) error {
	v, ok := m.memo.get(place)
	if !ok {
		return m.fail("recalls memo entry %d, which is not there", place)
	}
	return m.push(v)
}
