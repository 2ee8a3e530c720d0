package lint

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

func TestImports(t *testing.T) {
	for _, s := range sources(t) {
		report(t, checkImports(s, architecture))
	}
}

// checkImports holds one file against the table.
func checkImports(s *source, rows []row) []string {
	r, ok := rowOf(s.pkg(), rows)
	if !ok {
		return []string{fmt.Sprintf("%s: package %s has no row in the table of internal/lint/architecture_test.go: add one "+
			"with what it may import, and to docs/glossary.md the word it brings", s.path, s.pkg())}
	}
	var faults []string
	for _, path := range s.imports() {
		if why := refuse(s, r, path); why != "" {
			faults = append(faults, fmt.Sprintf("%s imports %s: %s", s.path, path, why))
		}
	}
	return faults
}

// refuse says why a file may not import a path; "" when it may.
func refuse(s *source, r row, path string) string {
	if inner, ok := strings.CutPrefix(path, module+"/"); ok {
		return refuseOwn(s, r, inner)
	}
	if first, _, _ := strings.Cut(path, "/"); strings.Contains(first, ".") {
		if anyUnder(path, r.libs) || s.test() && anyUnder(path, testLibs) {
			return ""
		}
		return "no library of " + r.pkg + "; if it is worth a dependency, add it to the row"
	}
	if !r.pure || s.test() {
		return ""
	}
	for prefix, instead := range impure {
		if under(path, prefix) {
			return r.pkg + " is pure: " + instead
		}
	}
	return ""
}

func refuseOwn(s *source, r row, inner string) string {
	for _, a := range adapters {
		for _, b := range adapters {
			if a != b && under(s.pkg(), a) && under(inner, b) {
				return "adapters never import each other; cmd joins them"
			}
		}
	}
	switch {
	case under(inner, r.pkg), s.test():
		return "" // tests may compare with any package: a cycle does not compile
	case under(inner, "cmd"):
		return "only cmd joins; nothing imports it"
	case anyUnder(inner, testOnly):
		return "for tests only"
	case anyUnder(inner, r.may):
		return ""
	}
	return fmt.Sprintf("%s may import %s only", r.pkg, strings.Join(append([]string{"the standard library"}, r.may...), ", "))
}

func TestImportsFindsFaults(t *testing.T) {
	rows := []row{
		{pkg: "internal/unit", pure: true},
		{pkg: "internal/sim", pure: true, may: []string{"internal/unit"}, libs: []string{"example.org/tree"}},
		{pkg: "internal/local", may: []string{"internal"}},
		{pkg: "cmd/weft", may: []string{"internal"}},
	}
	for _, c := range []struct {
		file, imports string
		faults        []string
	}{
		{"internal/unit/a.go", `"fmt"; "math/rand"; "time"`, nil},
		{"internal/unit/a.go", `"net/http"; "os"; "log/slog"`, []string{"adapters talk", "at the edge", "the edge logs"}},
		{"internal/unit/a_test.go", `"os"; "pgregory.net/rapid"; "weft.dev/weft/internal/shared"`, nil},
		{"internal/unit/a_test.go", `"example.org/assert"`, []string{"no library"}},
		{"internal/unit/a.go", `"weft.dev/weft/internal/sim"`, []string{"the standard library only"}},
		{"internal/sim/muri/a.go", `"weft.dev/weft/internal/unit"; "weft.dev/weft/internal/sim"; "example.org/tree/x"`, nil},
		{"internal/sim/a.go", `"weft.dev/weft/internal/sim/muri"`, nil},
		{"internal/sim/a.go", `"example.org/treetop"`, []string{"no library"}},
		{"internal/sim/a.go", `"weft.dev/weft/internal/local"`, []string{"adapters"}},
		{"internal/local/a_test.go", `"weft.dev/weft/internal/sim/muri"`, []string{"adapters"}},
		{"internal/local/a.go", `"weft.dev/weft/internal/shared"; "weft.dev/weft/cmd/weft"`, []string{"tests only", "only cmd"}},
		{"cmd/weft/a.go", `"weft.dev/weft/internal/sim"; "weft.dev/weft/internal/local"; "os"`, nil},
		{"internal/new/a.go", `"fmt"`, []string{"has no row in the table"}},
		{"internal/simulator/a.go", `"fmt"`, []string{"has no row in the table"}},
	} {
		s := parse(t, c.file, "package p\nimport ("+c.imports+")\n")
		expect(t, checkImports(s, rows), c.faults...)
	}
}

// TestTransitiveImports finds impurity that comes into the core through a library. What fmt itself needs (os, time)
// cannot be told from use; networks, logs and processes can.
func TestTransitiveImports(t *testing.T) {
	arguments := []string{"list", "-deps"}
	for _, pkg := range core {
		arguments = append(arguments, module+"/"+pkg+"/...")
	}
	out, err := exec.Command("go", arguments...).Output()
	if err != nil {
		t.Fatalf("go %s: %v", strings.Join(arguments, " "), err)
	}
	for _, dep := range strings.Fields(string(out)) {
		if isDistant(dep) {
			t.Errorf("the core depends on %s, if only through a library: go mod why %s", dep, dep)
		}
	}
}

// isDistant says whether a package reaches other processes, machines or logs.
func isDistant(path string) bool {
	return anyUnder(path, []string{"net", "log", "os/exec", "os/signal", "plugin", "k8s.io", "sigs.k8s.io"}) &&
		!anyUnder(path, []string{"net/url", "net/netip"}) // they compute only
}

func TestIsDistant(t *testing.T) {
	for path, want := range map[string]bool{
		"net": true, "net/http": true, "net/url": false, "network": false, "k8s.io/api": true, "os": false, "log/slog": true,
	} {
		if isDistant(path) != want {
			t.Errorf("isDistant(%q) = %v", path, !want)
		}
	}
}

// TestLinterConfiguration keeps the core packages that .golangci.yml names for depguard and forbidigo in step.
func TestLinterConfiguration(t *testing.T) {
	text := read(t, ".golangci.yml")
	for _, pkg := range core {
		if !strings.Contains(text, `"**/`+pkg+`/**"`) {
			t.Errorf("%s is missing from depguard's core files in .golangci.yml", pkg)
		}
	}
	_, after, _ := strings.Cut(text, "path-except: internal/(")
	names, _, _ := strings.Cut(after, ")")
	if got := strings.Count(names, "|") + 1; got != len(core) {
		t.Errorf("forbidigo in .golangci.yml covers %d packages (%s), the core has %d", got, names, len(core))
	}
}
