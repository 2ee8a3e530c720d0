package pickle

import "math"

type kind uint8

const (
	kindNone kind = iota
	kindBool
	kindInt
	kindFloat
	kindText
	kindList // and tuples
	kindDict
	kindGone // a container that was dropped
	kindMark
)

// Value is one value of a pickle. Numbers lie in the value itself: most values of a snapshot are numbers.
type Value struct {
	o *object
	n int64
}

// object is what a value refers to.
type object struct {
	kind    kind
	depth   uint8 // of containers, this one included
	dropped bool
	memo    uint32 // its place in the memo plus 1; 0 is none
	text    string
	key     uint8   // place of the text in Options.Keys plus 1; 0 is none
	fields  []field // items of a list, entries of a dictionary
	folded  any
}

// field is an item of a list (key 0) or an entry of a dictionary under the key with that number.
type field struct {
	key   uint8
	value Value
}

// The objects of values that need none of their own.
var (
	none  = &object{kind: kindNone}
	boole = &object{kind: kindBool}
	whole = &object{kind: kindInt}
	float = &object{kind: kindFloat}
	gone  = &object{kind: kindGone}
	mark  = &object{kind: kindMark}
	blank = &object{kind: kindText} // a text of no interest
)

func (v Value) kind() kind {
	if v.o == nil {
		return kindNone
	}
	return v.o.kind
}

func (v Value) container() bool { return v.kind() == kindList || v.kind() == kindDict }

// Int is the value as a whole number. Numbers beyond 64 bits saturate when they were read.
func (v Value) Int() (int64, bool) {
	switch v.kind() {
	case kindInt, kindBool:
		return v.n, true
	case kindFloat:
		f := math.Float64frombits(uint64(v.n))
		if f >= -1<<62 && f <= 1<<62 {
			return int64(f), true
		}
	}
	return 0, false
}

// Text is the value as a text or bytes; empty unless Options.Keys or Words has it.
func (v Value) Text() (string, bool) {
	if v.kind() != kindText {
		return "", false
	}
	return v.o.text, true
}

// List is the value as a list or tuple.
func (v Value) List() (*List, bool) { return (*List)(v.o), v.kind() == kindList }

// Dict is the value as a dictionary.
func (v Value) Dict() (*Dict, bool) { return (*Dict)(v.o), v.kind() == kindDict }

// List is a list or tuple.
type List object

// Len counts the items that were kept.
func (l *List) Len() int { return len(l.fields) }

// At is item i of those kept.
func (l *List) At(i int) Value { return l.fields[i].value }

// Folded is what Options.Fold gathered of the list's items.
func (l *List) Folded() any { return l.folded }

// Fold sets what Folded returns.
func (l *List) Fold(v any) { l.folded = v }

// Dict is a dictionary of the entries whose keys Options.Keys name.
type Dict object

// Get is the entry under the key with this place in Options.Keys, None when there is none.
func (d *Dict) Get(key int) Value {
	for i := len(d.fields) - 1; i >= 0; i-- { // the last of equal keys counts, as in Python
		if d.fields[i].key == uint8(key+1) {
			return d.fields[i].value
		}
	}
	return Value{o: none}
}

// Has says whether there is an entry under that key.
func (d *Dict) Has(key int) bool { return d.Get(key).kind() != kindNone }
