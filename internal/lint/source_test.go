package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// module is the import path of the module's root.
const module = "weft.dev/weft"

// root is the module's root folder, seen from this package.
const root = "../.."

// source is one Go file. Sources are parsed, not listed by the go command, so that files for other systems count too.
type source struct {
	path  string // slash-separated, below the root
	file  *ast.File
	fset  *token.FileSet
	lines int
}

// pkg is the folder of the file, which names its package: "internal/unit".
func (s *source) pkg() string { return path.Dir(s.path) }

func (s *source) test() bool { return strings.HasSuffix(s.path, "_test.go") }

// at is "file:line" of a node.
func (s *source) at(n ast.Node) string { return s.path + ":" + strconv.Itoa(s.line(n.Pos())) }

func (s *source) line(p token.Pos) int { return s.fset.Position(p).Line }

// imports are the import paths of the file.
func (s *source) imports() []string {
	list := make([]string, len(s.file.Imports))
	for i, spec := range s.file.Imports {
		list[i], _ = strconv.Unquote(spec.Path.Value)
	}
	return list
}

// parse makes a source of a text. The test ends when it is no Go.
func parse(t *testing.T, name, text string) *source {
	t.Helper()
	s := &source{path: name, fset: token.NewFileSet(), lines: strings.Count(text, "\n")}
	file, err := parser.ParseFile(s.fset, name, text, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	s.file = file
	return s
}

// sources are all Go files of the module, in order of path.
func sources(t *testing.T) []*source {
	t.Helper()
	var list []*source
	for _, name := range files(t) {
		if path.Ext(name) == ".go" {
			list = append(list, parse(t, name, read(t, name)))
		}
	}
	if len(list) == 0 {
		t.Fatal("found no Go file: is the root of the module still two folders up?")
	}
	return list
}

// files are the files of the project below the root, slash-separated and in order. What git is told to ignore, and
// git's own, is not among them.
func files(t *testing.T) []string {
	t.Helper()
	ignored := map[string]bool{".git": true, "bin": true, "bench": true, "node_modules": true}
	var list []string
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (ignored[path.Base(name)] || strings.HasSuffix(name, "testdata/rapid")):
			return fs.SkipDir
		case d.Type().IsRegular():
			list = append(list, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// report fails the test once for each fault.
func report(t *testing.T, faults []string) {
	t.Helper()
	for _, f := range faults {
		t.Error(f)
	}
}

// expect compares the faults a checker found in a synthetic input with parts of what they should say, in order.
func expect(t *testing.T, faults []string, parts ...string) {
	t.Helper()
	if len(faults) != len(parts) {
		t.Fatalf("found %d faults, want %d: %q", len(faults), len(parts), faults)
	}
	for i, part := range parts {
		if !strings.Contains(faults[i], part) {
			t.Errorf("fault %d is %q, want it to say %q", i, faults[i], part)
		}
	}
}
