package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"weft": main})
}

// TestScripts runs weft as a user does, one scenario a file. Besides what testscript knows a script may say:
//
//	exits CODE command args...   runs a command and holds its exit code to CODE
//	mask stdout|stderr FILE      writes the output to FILE with the time a method took as T
//	json stdout|FILE PATH VALUE  compares the value at a dotted path: a.0.b, or a.len for the length of a list
//	keys stdout|FILE PATH NAMES  holds the object at a path to have these keys; keys are only ever added
//	gzip FILE TO                 compresses a file
//	examples COMMAND             runs every example of a command's help
//	up args...                   starts a daemon with emulated GPUs, which ends with the scenario
//	eventually TEXT command...   runs a command until its output matches a regular expression
//
// [libraries] holds where make build has made libweft.so, without which a daemon runs no job.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Condition: func(condition string) (bool, error) {
			switch condition {
			case "root":
				return os.Geteuid() == 0, nil
			case "libraries":
				_, err := os.Stat(filepath.Join(builtLibraries, "libweft.so"))
				return err == nil, nil
			}
			return false, fmt.Errorf("unknown condition %q", condition)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "mask": mask, "json": jsonValue, "keys": jsonKeys, "gzip": compress, "examples": examples,
			"up": up, "eventually": eventually,
		},
	})
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE command args...")
	}
	code := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		code = exit.ExitCode()
	}
	if want := args[0]; strconv.Itoa(code) != want {
		ts.Fatalf("exit code %d, want %s", code, want)
	}
	if text := ts.ReadFile("stderr"); strings.Contains(text, "goroutine ") {
		ts.Fatalf("panic:\n%s", text)
	}
}

// took is the TIME cell of a row of weft plan, or its title.
var took = regexp.MustCompile(`\s+(TIME|[\d.]+ m?s)(\s\s|\n)`)

func mask(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: mask stdout|stderr FILE")
	}
	text := took.ReplaceAllString(ts.ReadFile(args[0]), "  T$2")
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(text), 0o666))
}

// at decodes a JSON text and goes down a dotted path.
func at(ts *testscript.TestScript, file, path string) any {
	d := json.NewDecoder(strings.NewReader(ts.ReadFile(file)))
	d.UseNumber()
	var v any
	ts.Check(d.Decode(&v))
	if d.More() {
		ts.Fatalf("%s holds more than one value", file)
	}
	for _, step := range strings.Split(path, ".") {
		switch x := v.(type) {
		case map[string]any:
			next, ok := x[step]
			if !ok && step != "" {
				ts.Fatalf("no %q on the way %s", step, path)
			}
			if step != "" {
				v = next
			}
		case []any:
			if step == "len" {
				return json.Number(strconv.Itoa(len(x)))
			}
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(x) {
				ts.Fatalf("no element %q on the way %s in a list of %d", step, path, len(x))
			}
			v = x[i]
		default:
			ts.Fatalf("nothing below %q on the way %s", step, path)
		}
	}
	return v
}

func jsonValue(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: json stdout|FILE PATH VALUE")
	}
	v := at(ts, args[0], args[1])
	got, isText := v.(string)
	if !isText {
		b, err := json.Marshal(v)
		ts.Check(err)
		got = string(b)
	}
	if (got == args[2]) == neg {
		ts.Fatalf("%s is %s; want %s (other: %v)", args[1], got, args[2], neg)
	}
}

func jsonKeys(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: keys stdout|FILE PATH NAMES")
	}
	object, ok := at(ts, args[0], args[1]).(map[string]any)
	if !ok {
		ts.Fatalf("%s is no object", args[1])
	}
	for _, name := range strings.Fields(args[2]) {
		if _, has := object[name]; !has {
			ts.Fatalf("%q has no key %s but %s", args[1], name, strings.Join(slices.Sorted(maps.Keys(object)), " "))
		}
	}
}

func compress(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: gzip FILE TO")
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write([]byte(ts.ReadFile(args[0])))
	ts.Check(errors.Join(err, z.Close()))
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), b.Bytes(), 0o666))
}

func examples(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: examples COMMAND")
	}
	ts.Check(ts.Exec("weft", args[0], "--help"))
	ran := 0
	for line := range strings.Lines(ts.ReadFile("stdout")) {
		if columns := len([]rune(strings.TrimRight(line, "\n"))); columns > 80 && !strings.Contains(line, "weft ") {
			ts.Fatalf("help line of %d columns: %s", columns, line)
		}
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "weft "+args[0]) && !strings.HasPrefix(line, "weft generate") {
			continue
		}
		if err := ts.Exec("sh", "-c", line); err != nil {
			ts.Fatalf("%s: %v\n%s", line, err, ts.ReadFile("stderr"))
		}
		ran++
	}
	if ran == 0 {
		ts.Fatalf("no example in the help of %s", args[0])
	}
}
