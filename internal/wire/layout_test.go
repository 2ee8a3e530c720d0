package wire

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const header = "../../shim/include/weft_wire.h"

// field is one field of a message: its name in C, and how to fill it with ones in Go.
type field struct {
	name string
	fill func()
}

// layout is a message in both languages.
type layout struct {
	structure string
	types     []Message // that have this layout
	message   Message   // whose fields are filled
	fields    []field
}

const ones = ^uint64(0)

// layouts are all messages. A GPU and a process are the first of their lists.
func layouts() []layout {
	hello, use, epoch, released, alloc := &Hello{}, &Use{}, &Idle{}, &Released{}, &Alloc{}
	free, export, iteration := &Free{}, &Export{}, &Iteration{}
	welcome, refused, grant, yield, drop, memory, wanted := &Welcome{}, &Refused{}, &Grant{}, &Yield{}, &Drop{}, &Memory{}, &Wanted{}
	list := &List{Processes: make([]Process, 1)}
	const word = ^uint32(0)
	key := [KeySize]byte(bytes.Repeat([]byte{0xff}, KeySize))
	return []layout{
		{"weft_hello", []Message{hello}, hello, []field{{"session", func() { hello.Session = ones }}, {"epoch", func() { hello.Epoch = ones }},
			{"gpus", func() { hello.GPUs = word }}, {"flags", func() { hello.Flags = word }}}},
		{"weft_use", []Message{use}, use, []field{{"gpus", func() { use.GPUs = word }}}},
		{"weft_plain", []Message{&Request{}, &Ping{}, &Pong{}}, &Request{}, nil},
		{"weft_epoch", []Message{epoch}, epoch, []field{{"epoch", func() { epoch.Epoch.Epoch = ones }}}},
		{"weft_released", []Message{released}, released, []field{{"epoch", func() { released.Epoch = ones }}, {"used_ns", func() { released.Used = ones }},
			{"overrun_ns", func() { released.Overrun = ones }}, {"launches", func() { released.Launches = ones }}, {"rested_ns", func() { released.Rested = ones }}}},
		{"weft_alloc", []Message{alloc}, alloc, []field{{"handle", func() { alloc.Handle = ones }}, {"bytes", func() { alloc.Bytes = ones }},
			{"gpu", func() { alloc.GPU = word }}, {"family", func() { alloc.Family = 0xffff }}, {"flags", func() { alloc.Flags = 0xffff }}}},
		{"weft_handle", []Message{free, &View{}, &ProcessesOf{}}, free, []field{{"handle", func() { free.Handle = ones }}, {"gpu", func() { free.GPU = word }}}},
		{"weft_shared", []Message{export, &Import{}}, export, []field{{"handle", func() { export.Handle = ones }}, {"gpu", func() { export.GPU = word }},
			{"key", func() { export.Key = key }}}},
		{"weft_iteration", []Message{iteration}, iteration, []field{{"count", func() { iteration.Count = ones }}}},
		{"weft_welcome", []Message{welcome}, welcome, []field{{"session", func() { welcome.Session = ones }}, {"count", func() { welcome.Count = word }},
			{"class", func() { welcome.Class = word }}, {"grace_us", func() { welcome.Grace = word }}, {"held", func() { welcome.Held = word }},
			{"gpus[0].uuid", func() { welcome.GPUs[0].UUID = [16]byte(key[:16]) }}, {"gpus[15].limit", func() { welcome.GPUs[15].Limit = ones }},
			{"gpus[1].reserved", func() { welcome.GPUs[1].Reserved = ones }}}},
		{"weft_refused", []Message{refused}, refused, []field{{"reason", func() { refused.Reason = Refusal(word) }}, {"version", func() { refused.Version = word }}}},
		{"weft_grant", []Message{grant, &Narrow{}}, grant, []field{{"epoch", func() { grant.Epoch = ones }}, {"lasts_ns", func() { grant.Lasts = ones }},
			{"window_ns", func() { grant.Window = ones }}, {"ahead", func() { grant.Ahead = ones }}}},
		{"weft_yield", []Message{yield}, yield, []field{{"epoch", func() { yield.Epoch = ones }}, {"spare_ns", func() { yield.Spare = ones }}}},
		{"weft_drop", []Message{drop}, drop, []field{{"epoch", func() { drop.Epoch = ones }}, {"reason", func() { drop.Reason = word }}}},
		{"weft_memory", []Message{memory}, memory, []field{{"handle", func() { memory.Handle = ones }}, {"outcome", func() { memory.Outcome = Outcome(word) }},
			{"gpu", func() { memory.GPU = word }}, {"total", func() { memory.Total = ones }}, {"used", func() { memory.Used = ones }},
			{"waited_ns", func() { memory.Waited = ones }}}},
		{"weft_list", []Message{list}, list, []field{{"handle", func() { list.Handle = ones }}, {"gpu", func() { list.GPU = word }},
			{"processes[0].bytes", func() { list.Processes[0].Bytes = ones }}, {"processes[0].pid", func() { list.Processes[0].PID = -1 }}}},
		{"weft_wanted", []Message{wanted}, wanted, []field{{"gpu", func() { wanted.GPU = word }}, {"wanted", func() { wanted.Wanted = word }}}},
	}
}

// constants are all enumerators of the header.
var constants = map[string]uint64{
	"WEFT_WIRE_MAGIC": Magic, "WEFT_WIRE_VERSION": Version, "WEFT_WIRE_MAX": Max, "WEFT_GPUS": GPUs,
	"WEFT_PROCESSES": Processes, "WEFT_KEY": KeySize,
	"WEFT_HELLO": uint64(TypeHello), "WEFT_USE": uint64(TypeUse), "WEFT_REQUEST": uint64(TypeRequest),
	"WEFT_RELEASED": uint64(TypeReleased), "WEFT_IDLE": uint64(TypeIdle), "WEFT_ALLOC": uint64(TypeAlloc),
	"WEFT_FREE": uint64(TypeFree), "WEFT_EXPORT": uint64(TypeExport), "WEFT_IMPORT": uint64(TypeImport),
	"WEFT_ITERATION": uint64(TypeIteration), "WEFT_VIEW": uint64(TypeView), "WEFT_PROCESSES_OF": uint64(TypeProcessesOf),
	"WEFT_PONG": uint64(TypePong), "WEFT_WELCOME": uint64(TypeWelcome), "WEFT_REFUSED": uint64(TypeRefused),
	"WEFT_GRANT": uint64(TypeGrant), "WEFT_NARROW": uint64(TypeNarrow), "WEFT_YIELD": uint64(TypeYield),
	"WEFT_DROP": uint64(TypeDrop), "WEFT_MEMORY": uint64(TypeMemory), "WEFT_LIST": uint64(TypeList),
	"WEFT_WANTED": uint64(TypeWanted), "WEFT_PING": uint64(TypePing),
	"WEFT_GUARANTEED": 0, "WEFT_BURSTABLE": 1, "WEFT_BESTEFFORT": 2,
	"WEFT_FAMILY_DEVICE": 0, "WEFT_FAMILY_MANAGED": 1, "WEFT_FAMILY_ASYNC": 2, "WEFT_FAMILY_VIRTUAL": 3,
	"WEFT_FAMILY_ARRAY": 4, "WEFT_FAMILY_GRAPH": 5, "WEFT_FAMILY_CONTEXT": 6, "WEFT_FAMILY_HOST": 7,
	"WEFT_OK": uint64(OK), "WEFT_OUT_OF_MEMORY": uint64(OutOfMemory), "WEFT_UNKNOWN": uint64(Unknown),
	"WEFT_REFUSED_VERSION": uint64(RefusedVersion), "WEFT_REFUSED_USER": uint64(RefusedUser),
	"WEFT_REFUSED_PROTOCOL": uint64(RefusedProtocol), "WEFT_REFUSED_CLOSED": uint64(RefusedClosed),
	"WEFT_REFUSED_FULL": uint64(RefusedFull), "WEFT_HELLO_OBSERVER": Observer, "WEFT_ALLOC_HELD": Held,
}

// TestLayout compares every field of every message, and every constant, with what a C compiler makes of the header.
func TestLayout(t *testing.T) {
	says := compile(t, program())
	for _, l := range layouts() {
		for _, m := range l.types {
			if got := len(Append(nil, 1, m)); l.structure != "weft_list" && got != says[l.structure] {
				t.Errorf("%T has %d bytes, struct %s %d", m, got, l.structure, says[l.structure])
			}
		}
		empty := Append(nil, 1, l.message)
		for _, f := range l.fields {
			name := l.structure + "." + f.name
			before := Append(nil, 1, l.message)
			f.fill()
			at, size := changed(before, Append(nil, 1, l.message))
			if at != says[name] || size != says["sizeof "+name] {
				t.Errorf("%s is %d bytes at %d in Go, %d at %d in C", name, size, at, says["sizeof "+name], says[name])
			}
		}
		if len(empty) > Max {
			t.Errorf("%s is longer than the longest message", l.structure)
		}
	}
	for name, value := range constants {
		if uint64(says[name]) != value {
			t.Errorf("%s is %d in C and %d in Go", name, says[name], value)
		}
	}
}

// TestConstantsAreAll finds an enumerator of the header that the test above does not know.
func TestConstantsAreAll(t *testing.T) {
	text, err := os.ReadFile(header)
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`(?m)(?:^#define |[\t{ ])(WEFT_[A-Z_]+)(?: =|\s+\d| 0x)`).FindAllStringSubmatch(string(text), -1)
	if len(names) < 40 {
		t.Fatalf("found only %d constants", len(names))
	}
	for _, m := range names {
		if _, known := constants[m[1]]; !known {
			t.Errorf("%s is in the header alone", m[1])
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^struct (weft_\w+) \{`).FindAllStringSubmatch(string(text), -1) {
		known := m[1] == "weft_header" || m[1] == "weft_gpu" || m[1] == "weft_process"
		for _, l := range layouts() {
			known = known || l.structure == m[1]
		}
		if !known {
			t.Errorf("struct %s is in the header alone", m[1])
		}
	}
}

// changed is where two packets differ: offset and length of the range.
func changed(a, b []byte) (at, size int) {
	at = -1
	for i := range a {
		if a[i] != b[i] {
			if at < 0 {
				at = i
			}
			size = i - at + 1
		}
	}
	return at, size
}

// program is a C program that prints "NAME VALUE" for all layouts and constants.
func program() string {
	var b strings.Builder
	b.WriteString("#include <stdio.h>\n#include \"weft_wire.h\"\nint main(void) {\n")
	say := func(name, value string) {
		fmt.Fprintf(&b, "printf(\"%s=%%llu\\n\", (unsigned long long)(%s));\n", name, value)
	}
	for _, l := range layouts() {
		say(l.structure, "sizeof(struct "+l.structure+")")
		for _, f := range l.fields {
			name := l.structure + "." + f.name
			say(name, "offsetof(struct "+l.structure+", "+f.name+")")
			say("sizeof "+name, "sizeof(((struct "+l.structure+" *)0)->"+f.name+")")
		}
	}
	for name := range constants {
		say(name, name)
	}
	b.WriteString("return 0; }\n")
	return b.String()
}

func compile(t *testing.T, text string) map[string]int {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	dir := t.TempDir()
	source, binary := filepath.Join(dir, "layout.c"), filepath.Join(dir, "layout")
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-std=c11", "-I", filepath.Dir(header), "-o", binary, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command(binary).Output()
	if err != nil {
		t.Fatal(err)
	}
	says := map[string]int{}
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		name, value, _ := strings.Cut(s.Text(), "=")
		var n int
		if _, err := fmt.Sscan(value, &n); err != nil {
			t.Fatal(err)
		}
		says[name] = n
	}
	return says
}
