package kineto

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"
)

// scanner reads JSON as a stream of values, without holding it. It mends what the profiler itself gets wrong inside
// texts: backslashes that are not doubled, control characters, and bytes that are not UTF-8.
type scanner struct {
	r      *bufio.Reader
	offset int64 // of the next byte
	text   []byte
	mended [mends]int
	depth  int
	hook   func(read int64) error
	next   int64 // when the hook is called again
}

// The mends, by what was wrong.
const (
	mendBackslash = iota
	mendControl
	mendUTF8
	mends
)

// Limits of a trace: names that matter are short, and the profiler nests 6 deep.
const (
	maxText  = 256
	maxDepth = 64
	hookStep = 1 << 20
)

// syntaxError is a fault of the text.
type syntaxError struct {
	offset  int64
	message string
}

func (e *syntaxError) Error() string { return fmt.Sprintf("%s at byte %d", e.message, e.offset) }

// errEnd is the end of the text within a value.
var errEnd = errors.New("the text ends within a value")

func (s *scanner) fail(format string, args ...any) error {
	return &syntaxError{s.offset, fmt.Sprintf(format, args...)}
}

// end turns the end of the text into errEnd; other errors of the reader stay.
func end(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errEnd
	}
	return err
}

func (s *scanner) byte() (byte, error) {
	b, err := s.r.ReadByte()
	if err != nil {
		return 0, end(err)
	}
	s.offset++
	if s.hook != nil && s.offset >= s.next {
		s.next = s.offset + hookStep
		if err := s.hook(s.offset); err != nil {
			return 0, err
		}
	}
	return b, nil
}

func (s *scanner) back() {
	_ = s.r.UnreadByte() // a byte was just read
	s.offset--
}

// peek is the next byte that is no blank, without taking it. Blanks are passed over a buffer at a time.
func (s *scanner) peek() (byte, error) {
	for {
		b, err := s.byte()
		if err != nil {
			return 0, err
		}
		if !blank(b) {
			s.back()
			return b, nil
		}
		ahead, _ := s.r.Peek(s.r.Buffered()) // what is buffered can be peeked
		n := 0
		for n < len(ahead) && blank(ahead[n]) {
			n++
		}
		_, _ = s.r.Discard(n)
		s.offset += int64(n)
	}
}

func blank(b byte) bool { return b == ' ' || b == '\t' || b == '\r' || b == '\n' }

// take takes the next byte that is no blank, and wants it to be b.
func (s *scanner) take(b byte) error {
	c, err := s.peek()
	if err != nil {
		return err
	}
	if c != b {
		return s.fail("%q stands where %q must", printable(c), string(b))
	}
	_, err = s.byte()
	return err
}

func printable(c byte) string {
	if c < 0x20 || c >= 0x7f {
		return "\\x" + strconv.FormatUint(uint64(c), 16)
	}
	return string(rune(c))
}

// each calls f for each key of an object, or with "" for each item of an array, with the scanner before its value. It
// stops early, with the scanner there, when f returns an error.
func (s *scanner) each(f func(key string) error) error {
	open, err := s.peek()
	if err != nil {
		return err
	}
	shut := map[byte]byte{'{': '}', '[': ']'}[open]
	if shut == 0 {
		return s.fail("%q stands where an object or an array must", printable(open))
	}
	if s.depth++; s.depth > maxDepth {
		return s.fail("values nest more than %d deep", maxDepth)
	}
	defer func() { s.depth-- }()
	if err := s.take(open); err != nil {
		return err
	}
	return s.items(shut, f)
}

func (s *scanner) items(shut byte, f func(key string) error) error {
	for first := true; ; first = false {
		c, err := s.peek()
		if err != nil {
			return err
		}
		switch {
		case c == shut:
			return s.take(shut)
		case !first:
			if err := s.take(','); err != nil {
				return err
			}
			if c, err = s.peek(); err != nil {
				return err
			}
			if c == shut { // a comma before the end, as hand-written appenders leave it
				return s.take(shut)
			}
		}
		key := ""
		if shut == '}' {
			if key, err = s.key(); err != nil {
				return err
			}
		}
		if err := f(key); err != nil {
			return err
		}
	}
}

func (s *scanner) key() (string, error) {
	c, err := s.peek()
	if err != nil {
		return "", err
	}
	if c != '"' {
		return "", s.fail("a name without its quote")
	}
	key, err := s.string()
	if err != nil {
		return "", err
	}
	return key, s.take(':')
}

// string reads a text and keeps its first maxText bytes, without control characters and bytes that are not UTF-8.
func (s *scanner) string() (string, error) {
	if err := s.take('"'); err != nil {
		return "", err
	}
	s.text = s.text[:0]
	high := false
	for {
		b, err := s.byte()
		if err != nil {
			return "", err
		}
		switch {
		case b == '"':
			if high && !utf8.Valid(s.text) {
				s.text = s.valid(s.text)
			}
			return string(s.text), nil
		case b == '\\':
			if err := s.escape(); err != nil {
				return "", err
			}
		case b < 0x20:
			s.mended[mendControl]++
		case len(s.text) < maxText:
			high = high || b >= 0x80
			s.text = append(s.text, b)
		}
	}
}

// valid drops what is not UTF-8; a rune that was cut at maxText is no fault.
func (s *scanner) valid(text []byte) []byte {
	kept := make([]byte, 0, len(text))
	bad := false
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		if r == utf8.RuneError && n == 1 {
			bad = bad || len(text) >= utf8.UTFMax || len(kept)+len(text) < maxText
		} else {
			kept = append(kept, text[:n]...)
		}
		text = text[n:]
	}
	if bad {
		s.mended[mendUTF8]++
	}
	return kept
}

// escape reads what follows a backslash. One that begins no escape stands for itself.
func (s *scanner) escape() error {
	b, err := s.byte()
	if err != nil {
		return err
	}
	switch b {
	case '"', '/':
		s.put(b)
	case '\\':
		s.put('\\')
	case 'b', 'f', 'n', 'r', 't':
		s.put(' ')
	case 'u':
		return s.unicode()
	default:
		s.mended[mendBackslash]++
		s.put('\\')
		s.back()
	}
	return nil
}

func (s *scanner) put(b byte) {
	if len(s.text) < maxText {
		s.text = append(s.text, b)
	}
}

// unicode reads the four digits of a \u escape; fewer are a backslash that was not doubled.
func (s *scanner) unicode() error {
	digits, err := s.r.Peek(4)
	if err != nil && len(digits) < 4 {
		return errEnd
	}
	n, err := strconv.ParseUint(string(digits), 16, 16)
	if err != nil {
		s.mended[mendBackslash]++
		s.put('\\')
		s.put('u')
		return nil
	}
	_, _ = s.r.Discard(4) // they were peeked
	s.offset += 4
	if len(s.text) < maxText {
		s.text = utf8.AppendRune(s.text, rune(n))
	}
	return nil
}

// word reads the letters, digits and signs of a number or a name such as true or NaN.
func (s *scanner) word() (string, error) {
	var kept [64]byte
	n := 0
	for {
		b, err := s.byte()
		if errors.Is(err, errEnd) && n > 0 {
			return "", errEnd // more of it may be missing
		}
		if err != nil {
			return "", err
		}
		if !wordByte(b) {
			s.back()
			break
		}
		if n == len(kept) {
			return "", s.fail("a number of more than %d characters", len(kept))
		}
		kept[n] = b
		n++
	}
	if n == 0 {
		b, err := s.peek()
		if err != nil {
			return "", err
		}
		return "", s.fail("%q stands where a value must", printable(b))
	}
	return string(kept[:n]), nil
}

func wordByte(b byte) bool {
	return b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b == '+' || b == '-' || b == '.'
}

// number reads a number; NaN and the infinities, which are no JSON, are read too. ok is false for any other value, which
// is skipped.
func (s *scanner) number() (v float64, ok bool, err error) {
	c, err := s.peek()
	if err != nil {
		return 0, false, err
	}
	if c == '"' || c == '{' || c == '[' {
		return 0, false, s.skip()
	}
	w, err := s.word()
	if err != nil {
		return 0, false, err
	}
	return s.parse(w)
}

func (s *scanner) parse(w string) (float64, bool, error) {
	switch w {
	case "true", "false", "null":
		return 0, false, nil
	}
	v, err := strconv.ParseFloat(w, 64)
	var e *strconv.NumError
	if errors.As(err, &e) && errors.Is(e.Err, strconv.ErrSyntax) {
		return 0, false, s.fail("%q is no value", w)
	}
	return v, true, nil
}

// skip reads a value of any kind and forgets it.
func (s *scanner) skip() error {
	c, err := s.peek()
	if err != nil {
		return err
	}
	switch c {
	case '{', '[':
		return s.each(func(string) error { return s.skip() })
	case '"':
		_, err = s.string()
		return err
	}
	w, err := s.word()
	if err != nil {
		return err
	}
	_, _, err = s.parse(w)
	return err
}
