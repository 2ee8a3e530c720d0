// Package pickle reads the data of a Python pickle without executing it: dictionaries, lists, tuples, texts, bytes,
// numbers, booleans and None, in protocols 0 to 5. Whatever would import a name, call something or build an object is
// refused with its opcode and byte offset.
//
// A pickle may claim far more than it holds, so every length is held against what remains of the input before memory
// is taken, shared values are never expanded, and memory is rationed by the bytes read so far.
package pickle

import (
	"errors"
	"fmt"
	"io"
)

// Options say what of a pickle is kept. What is not kept is read, checked and dropped, so that a large pickle of which
// little is wanted needs little memory.
type Options struct {
	// Size is the length of the input in bytes; 0 or less when it is not known.
	Size int64

	// Keys are the dictionary keys that are kept, at most 255.
	Keys []string

	// Words are the texts that matter as values. Other texts are read as the empty text.
	Words []string

	// Fold is offered each dictionary as it is put into a list. When it returns true it has taken what it wants of it
	// into list.Folded, and the dictionary is dropped. nil keeps all.
	Fold func(list *List, item *Dict) bool

	// Progress, when not nil, is called now and then with the bytes read. An error ends the reading with it.
	Progress func(read int64) error
}

// Limits of a pickle. A snapshot of an allocator nests 6 deep, and the pickler of Python puts containers on the stack
// in batches of 1000.
const (
	maxDepth  = 32
	maxStack  = 1 << 17
	maxText   = 256      // bytes of a text that are looked at: keys and names are shorter
	maxNumber = 64       // digits or bytes of a number
	maxSkip   = 1 << 16  // unused places that a numbered memo entry may leave
	baseRoom  = 64 << 20 // memory that any pickle may take
	roomShare = 4        // and a byte more for each so many bytes read: what a real snapshot needs is a tenth
)

// Error is a pickle that is refused, cut off or malformed.
type Error struct {
	Offset    int64  // of the opcode, from 0; of the end of the input when Truncated
	Opcode    string // its name; empty when Truncated
	Message   string
	Refused   bool // it would import, call or build something
	Truncated bool // the input ends before the pickle does
}

func (e *Error) Error() string {
	if e.Truncated {
		return fmt.Sprintf("truncated at byte %d", e.Offset)
	}
	return fmt.Sprintf("pickle %s at byte %d %s", e.Opcode, e.Offset, e.Message)
}

// Read reads one pickle. Errors are *Error, of the reader below, or of Options.Progress. Time and memory are linear in
// the input; the memory counted stays below 64 MiB plus a quarter of the bytes read.
func Read(r io.Reader, o Options) (Value, error) {
	m := newMachine(r, o)
	for {
		m.at = m.in.read
		if err := m.report(); err != nil {
			return Value{}, err
		}
		op, err := m.in.byte()
		if err == nil {
			m.op = op
			err = m.step(op)
		}
		switch {
		case errors.Is(err, errStop):
			return m.top, nil
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return Value{}, &Error{Offset: m.in.read, Truncated: true}
		case err != nil:
			return Value{}, err
		}
	}
}

// reportEvery is how many bytes pass between two calls of Options.Progress.
const reportEvery = 1 << 20

func (m *machine) report() error {
	if m.options.Progress == nil || m.at < m.reported+reportEvery {
		return nil
	}
	m.reported = m.at
	return m.options.Progress(m.at)
}
