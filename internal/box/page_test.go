package box_test

import (
	"encoding"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weft.dev/weft/internal/box"
)

// pageTypes is where the page says by hand what it reads, and pageLists where it names the lists that may be null.
const (
	pageTypes = "../../web/src/api/types.ts"
	pageLists = "../../web/src/api/lists.ts"
)

// told are the types that the page reads.
var told = []any{
	box.Job{}, box.Prediction{}, box.Reason{}, box.Operation{}, box.GPU{}, box.Foreign{}, box.Status{}, box.Event{}, box.Explanation{},
	box.Refusal{}, box.Resident{}, box.Loss{}, box.History{}, box.Lane{}, box.JobHistory{}, box.GPUHistory{}, box.QueueCount{},
	box.TokenWait{}, box.Error{},
}

// TestPageReadsWhatIsTold compares the types of the page with those of this package: names, keys, which may be absent or
// null, and sorts of values.
func TestPageReadsWhatIsTold(t *testing.T) {
	text, err := os.ReadFile(pageTypes)
	if err != nil {
		t.Fatal(err)
	}
	got := interfaces(string(text))
	for _, v := range told {
		typ := reflect.TypeOf(v)
		want := keys(typ)
		page, ok := got[typ.Name()]
		if !ok {
			t.Errorf("%s has no interface %s", pageTypes, typ.Name())
			continue
		}
		for key, line := range want {
			if page[key] != line {
				t.Errorf("%s: %s has %q, want %q", pageTypes, typ.Name(), page[key], line)
			}
		}
		for key := range page {
			if _, ok := want[key]; !ok {
				t.Errorf("%s: %s has %q, which is not told", pageTypes, typ.Name(), key)
			}
		}
		delete(got, typ.Name())
	}
	for name := range got {
		t.Errorf("%s: interface %s is no type of the test", pageTypes, name)
	}
}

// TestPageKnowsLists holds the page to name every key whose list Go may write as null, unless null says something else
// of another type.
func TestPageKnowsLists(t *testing.T) {
	text, err := os.ReadFile(pageLists)
	if err != nil {
		t.Fatal(err)
	}
	var named []string
	for _, m := range regexp.MustCompile(`(?m)^  '(\w+)',$`).FindAllStringSubmatch(string(text), -1) {
		named = append(named, m[1])
	}
	var lists []string
	pointers := map[string]bool{}
	for _, v := range told {
		typ := reflect.TypeOf(v)
		for i := range typ.NumField() {
			f := typ.Field(i)
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.Type.Kind() == reflect.Slice && options == "" {
				lists = append(lists, name)
			}
			pointers[name] = pointers[name] || f.Type.Kind() == reflect.Pointer
		}
	}
	lists = slices.DeleteFunc(lists, func(name string) bool { return pointers[name] })
	for _, list := range [][]string{named, lists} {
		slices.Sort(list)
	}
	if lists = slices.Compact(lists); !slices.Equal(named, lists) {
		t.Errorf("%s names\n%q, want\n%q", pageLists, named, lists)
	}
}

// TestPageExplainsReasons holds the page to explain every code that keeps a job waiting.
func TestPageExplainsReasons(t *testing.T) {
	page, err := os.ReadFile("../../web/src/model/reasons.ts")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^\s+\w+\s+(?:plan\.)?Code\s+= "(\w+)"`).FindAllStringSubmatch(string(text), -1) {
			found++
			if !strings.Contains(string(page), "\n  "+m[1]+": {") {
				t.Errorf("%s has the reason %s, which the page does not explain", name, m[1])
			}
		}
	}
	if found < 20 {
		t.Errorf("found %d reasons", found)
	}
}

// TestPageKnowsAlarms compares what the page takes for bad news with what this package does.
func TestPageKnowsAlarms(t *testing.T) {
	text, err := os.ReadFile("../../web/src/model/alarms.ts")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`new Set\(\[(.*)\]\)`).FindStringSubmatch(string(text))
	source, err := os.ReadFile("machine.go")
	if err != nil || list == nil {
		t.Fatal(err, list)
	}
	page, seen := map[string]bool{}, map[string]bool{}
	for _, m := range regexp.MustCompile(`'(\w+)'`).FindAllStringSubmatch(list[1], -1) {
		page[m[1]] = true
	}
	for _, m := range regexp.MustCompile(`"(\w+)"`).FindAllStringSubmatch(string(source), -1) { // among them every type of an alarm
		if e := (&box.Event{Type: box.EventType(m[1])}); e.Alarm() != page[m[1]] {
			t.Errorf("event %q: alarm %v, on the page %v", m[1], e.Alarm(), page[m[1]])
		}
		seen[m[1]] = true
	}
	for name := range page {
		if seen[name] {
			continue
		}
		t.Errorf("the page takes %q for an alarm", name)
	}
}

// interfaces reads the interfaces of a file of TypeScript that has a key a line: their lines by name and key.
func interfaces(text string) map[string]map[string]string {
	all := map[string]map[string]string{}
	for _, m := range regexp.MustCompile(`(?ms)^export interface (\w+) \{\n(.*?)^\}`).FindAllStringSubmatch(text, -1) {
		all[m[1]] = map[string]string{}
		for line := range strings.Lines(m[2]) {
			line = strings.TrimSpace(line)
			key, _, _ := strings.Cut(line, ":")
			all[m[1]][strings.TrimSuffix(key, "?")] = line
		}
	}
	return all
}

// keys are the lines that an interface of a struct has, by key.
func keys(typ reflect.Type) map[string]string {
	lines := map[string]string{}
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		value, mark := word(f.Type), ""
		if options == "omitempty" {
			mark = "?"
		} else if f.Type.Kind() == reflect.Pointer {
			value += " | null"
		}
		lines[name] = fmt.Sprintf("%s%s: %s", name, mark, value)
	}
	return lines
}

// word is how TypeScript says a type.
func word(typ reflect.Type) string {
	switch {
	case typ == reflect.TypeFor[box.Class](), typ == reflect.TypeFor[box.State]():
		return typ.Name()
	case typ.Kind() == reflect.Pointer:
		return word(typ.Elem())
	case typ.Implements(reflect.TypeFor[json.Marshaler]()), typ.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return "string"
	}
	switch typ.Kind() {
	case reflect.Struct:
		return typ.Name()
	case reflect.Slice:
		if typ.Elem().Kind() == reflect.Pointer {
			return "(" + word(typ.Elem()) + " | null)[]"
		}
		return word(typ.Elem()) + "[]"
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	default:
		return "number"
	}
}
