package pickle

import (
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"strings"
	"testing"
)

var testOptions = Options{Keys: []string{"a", "b"}, Words: []string{"w"}}

func read(t *testing.T, text string) (Value, error) {
	t.Helper()
	o := testOptions
	o.Size = int64(len(text))
	return Read(strings.NewReader(text), o)
}

func TestNumbers(t *testing.T) {
	for text, want := range map[string]int64{
		"I42\n.": 42, "I-7\n.": -7, "I01\n.": 1, "I00\n.": 0, "L12345678901L\n.": 12345678901, "L99999999999999999999999L\n.": math.MaxInt64,
		"K\xff.": 255, "M\x01\x02.": 513, "J\xff\xff\xff\xff.": -1, "J\x00\x00\x00\x80.": math.MinInt32,
		"\x8a\x00.": 0, "\x8a\x01\xff.": -1, "\x8a\x02\xff\x00.": 255, "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f.": math.MaxInt64,
		"\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00.": math.MaxInt64, "\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\xff.": math.MinInt64,
		"\x8b\x01\x00\x00\x00\x05.": 5, "G\x40\x08\x00\x00\x00\x00\x00\x00.": 3, "F2.5\n.": 2, "\x88.": 1, "\x89.": 0,
	} {
		v, err := read(t, text)
		if n, ok := v.Int(); err != nil || !ok || n != want {
			t.Errorf("%q: %d %v %v, want %d", text, n, ok, err, want)
		}
	}
}

func TestContainers(t *testing.T) {
	for _, text := range []string{
		"(dS'a'\n(lK\x05asS'b'\nS'w'\ns.",                                                                              // protocol 0
		"}(X\x01\x00\x00\x00aq\x00]q\x01K\x05aX\x01\x00\x00\x00bX\x01\x00\x00\x00wu.",                                  // protocol 1
		"\x80\x02}(U\x01a]K\x05aU\x01bU\x01wu.",                                                                        // short binary strings
		"\x80\x04\x95\x19\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01a\x94]\x94K\x05a\x8c\x01b\x94\x8c\x01w\x94h\x000u.", // frame, memo, pop
		"\x80\x05}(\x8c\x01aK\x05\x85\x8d\x01\x00\x00\x00\x00\x00\x00\x00b\x8c\x01wu.",                                 // tuple, long text
		"\x80\x03(\x8c\x01a(K\x05tC\x01bB\x01\x00\x00\x00wd.",                                                          // tuple, bytes, DICT
		"\x80\x04}(\x8c\x01aK\x05\x94\x8c\x01b\x8c\x01w\x8c\x05other]\x94h\x00au.",                                     // memoised number, key that is not kept
	} {
		v, err := read(t, text)
		d, ok := v.Dict()
		if err != nil || !ok {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if word, _ := d.Get(1).Text(); word != "w" {
			t.Errorf("%q: b is %q", text, word)
		}
	}
	v, err := read(t, "\x80\x04}(\x8c\x01a(K\x01K\x02N\x88l\x8c\x01aK\x09u.")
	d, _ := v.Dict()
	if n, _ := d.Get(0).Int(); err != nil || n != 9 || d.Has(1) {
		t.Errorf("the last of equal keys must count: %d %v", n, err)
	}
}

func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		"cposix\nsystem\n(S'true'\ntR.":          "pickle GLOBAL posix.system at byte 0 refused, not executed",
		"\x80\x04\x8c\x02os\x8c\x06system\x93.":  "pickle STACK_GLOBAL os.system at byte 14 refused, not executed",
		"(ios\nsystem\n.":                        "pickle INST os.system at byte 1 refused, not executed",
		"K\x01R.":                                "pickle REDUCE at byte 2 refused, not executed",
		"}b.":                                    "pickle BUILD at byte 1 refused, not executed",
		"(o.":                                    "pickle OBJ at byte 1 refused, not executed",
		"\x81.":                                  "pickle NEWOBJ at byte 0 refused, not executed",
		"\x92.":                                  "pickle NEWOBJ_EX at byte 0 refused, not executed",
		"\x82\x01.":                              "pickle EXT1 at byte 0 refused, not executed",
		"P1\n.":                                  "pickle PERSID at byte 0 refused, not executed",
		"Q.":                                     "pickle BINPERSID at byte 0 refused, not executed",
		"\x97.":                                  "pickle NEXT_BUFFER at byte 0 refused, not executed",
		"\xff":                                   "pickle opcode 0xff at byte 0 is not an opcode",
		"\x80\x09.":                              "pickle PROTO at byte 0 announces protocol 9; 0 to 5 are known",
		"\x8e\x00\x00\x00\x00\x00\x00\x00\x40x.": "pickle BINBYTES8 at byte 0 claims 4611686018427387904 bytes where 2 remain",
		"\x95\xff\x00\x00\x00\x00\x00\x00\x00.":  "pickle STOP at byte 9 finds an empty stack",
		"a.":                                     "pickle APPEND at byte 0 finds an empty stack",
		"e.":                                     "pickle APPENDS at byte 0 finds no mark",
		"(K\x01d.":                               "pickle DICT at byte 3 finds a key without a value",
		"K\x01K\x02a.":                           "pickle APPEND at byte 4 finds no list to add to",
		"h\x00.":                                 "pickle BINGET at byte 0 recalls memo entry 0, which is not there",
		"]r\xff\xff\xff\xff.":                    "pickle LONG_BINPUT at byte 1 numbers memo entry 4294967295 after 0",
		"(.":                                     "pickle STOP at byte 1 finds a mark where a value must stand",
		"](\x85.":                                "pickle TUPLE1 at byte 2 puts a mark into a list",
		"}]K\x01s.":                              "pickle SETITEM at byte 4 uses a container as a key",
		"Ixx\n.":                                 "pickle INT at byte 0 has no number",
		"\x80\x04":                               "truncated at byte 2",
		"X\x05\x00\x00\x00a":                     "pickle BINUNICODE at byte 0 claims 5 bytes where 1 remain",
		"":                                       "truncated at byte 0",
	} {
		_, err := read(t, text)
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%q: %v, want an Error", text, err)
			continue
		}
		if e.Error() != want {
			t.Errorf("%q:\n  %v\nwant\n  %s", text, e, want)
		}
		if e.Refused != strings.HasSuffix(want, "not executed") {
			t.Errorf("%q: Refused is %v", text, e.Refused)
		}
	}
}

func TestFoldForgets(t *testing.T) {
	count := 0
	o := testOptions
	o.Fold = func(list *List, item *Dict) bool {
		n, _ := item.Get(0).Int()
		sum, _ := list.Folded().(int64)
		list.Fold(sum + n)
		count++
		return true
	}
	v, err := Read(strings.NewReader("\x80\x04](}\x94(\x8c\x01aK\x05u}\x94(\x8c\x01aK\x07uh\x00e."), o)
	list, ok := v.List()
	if err != nil || !ok || list.Len() != 0 || list.Folded() != int64(12) || count != 2 {
		t.Errorf("folded %v of %d, %d kept: %v (a dictionary that was dropped must not count again)", list.Folded(), count, list.Len(), err)
	}
}

func TestProgressEndsReading(t *testing.T) {
	stop := errors.New("enough")
	o := testOptions
	o.Progress = func(read int64) error { return stop }
	_, err := Read(strings.NewReader("]"+strings.Repeat("K\x01a", 1<<20)+"."), o)
	if !errors.Is(err, stop) {
		t.Errorf("%v, want the error of Progress", err)
	}
}

// repeated is a text over and over, up to a length.
type repeated struct {
	head, text string
	left, at   int
}

func (r *repeated) Read(p []byte) (int, error) {
	if r.left <= 0 {
		return 0, io.EOF
	}
	n := 0
	for n < len(p) && r.left > 0 {
		if r.head != "" {
			p[n], r.head = r.head[0], r.head[1:]
		} else {
			p[n] = r.text[r.at]
			r.at = (r.at + 1) % len(r.text)
		}
		n++
		r.left--
	}
	return n, nil
}

// TestMemoryIsRationed holds what any input of 8 MiB may make the parser take, whatever it is built of.
func TestMemoryIsRationed(t *testing.T) {
	const size, most = 8 << 20, 200 << 20
	for name, r := range map[string]*repeated{
		"open lists":          {text: "]"},
		"marks":               {text: "("},
		"memoised lists":      {head: "\x80\x04](", text: "]\x94a", left: 0},
		"lists in a list":     {head: "\x80\x04]", text: "]a"},
		"kept dictionaries":   {head: "\x80\x04]", text: "}\x8c\x01aK\x01sa"},
		"numbers in a list":   {head: "\x80\x04]", text: "K\x01a"},
		"memo of one":         {head: "\x80\x04]", text: "\x94"},
		"entries of one key":  {head: "\x80\x04}", text: "\x8c\x01aK\x01s"},
		"long texts":          {head: "\x80\x04", text: "X\xff\xff\x0f\x00" + strings.Repeat("x", 0xfffff) + "0"},
		"frames that drop":    {head: "\x80\x04]\x94", text: "}\x94(\x8c\x05other}\x94ua"},
		"numbered memo leaps": {head: "\x80\x04]", text: "r\x00\x00\x01\x00r\xff\xff\x01\x00"},
	} {
		r.left = size
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		highest := uint64(0)
		o := testOptions
		o.Progress = func(int64) error {
			var now runtime.MemStats
			runtime.ReadMemStats(&now)
			highest = max(highest, now.HeapAlloc)
			return nil
		}
		_, err := Read(r, o)
		runtime.ReadMemStats(&after)
		highest = max(highest, after.HeapAlloc) - min(highest, before.HeapAlloc)
		if highest > most || err == nil {
			t.Errorf("%s: %d MiB taken, %v; want at most %d MiB and an error", name, highest>>20, err, most>>20)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		"\x80\x04}(\x8c\x01a]\x94(}\x94(\x8c\x01bK\x05uee\x8c\x01bh\x00u.", "(dS'a'\n(lK\x05as.", "cposix\nsystem\n(S'x'\ntR.",
		"\x80\x02}q\x00U\x01aK\x01\x86\x87s.", "\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00.", "G\x40\x08\x00\x00\x00\x00\x00\x00.",
		"]]]]](((t1122ll.", "\x80\x04]r\x00\x01\x00\x00j\x00\x01\x00\x00a.",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o := testOptions
		o.Size = int64(len(data))
		folded := 0
		o.Fold = func(list *List, item *Dict) bool {
			folded++
			return folded%2 == 0
		}
		v, err := Read(strings.NewReader(string(data)), o)
		var e *Error
		if err != nil && (!errors.As(err, &e) || e.Offset < 0 || e.Offset > int64(len(data))) {
			t.Fatalf("error %v of %d bytes", err, len(data))
		}
		if err == nil {
			_ = fmt.Sprint(v.Int())
			if l, ok := v.List(); ok {
				for i := range l.Len() {
					l.At(i).Text()
				}
			}
			if d, ok := v.Dict(); ok {
				d.Get(0).List()
			}
		}
	})
}
