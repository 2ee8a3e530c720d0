package lint

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
)

// vague are package names that say nothing about what is inside, so that anything ends up there.
var vague = []string{
	"util", "utils", "common", "helper", "helpers", "misc", "base", "lib", "tool", "types", "interfaces", "models",
}

func TestPackages(t *testing.T) {
	report(t, checkPackages(sources(t)))
}

// checkPackages wants a plain name and one package comment of every package.
func checkPackages(list []*source) []string {
	var faults []string
	comments := map[string]int{}
	var order []string
	for _, s := range list {
		if s.test() {
			continue
		}
		if _, seen := comments[s.pkg()]; !seen {
			order = append(order, s.pkg())
			comments[s.pkg()] = 0
			faults = append(faults, checkName(s)...)
		}
		if s.file.Doc == nil {
			continue
		}
		comments[s.pkg()]++
		opening := "Package " + s.file.Name.Name + " "
		if s.file.Name.Name == "main" {
			opening = "Command " + path.Base(s.pkg()) + " "
		}
		if text := s.file.Doc.Text(); !strings.HasPrefix(text, opening) {
			faults = append(faults, fmt.Sprintf("%s: the package comment does not begin with %q", s.path, opening))
		}
	}
	for _, pkg := range order {
		if comments[pkg] != 1 {
			faults = append(faults, fmt.Sprintf("%s has %d package comments, not one", pkg, comments[pkg]))
		}
	}
	return faults
}

// checkName wants a lower-case noun that is the folder's name.
func checkName(s *source) []string {
	name, folder := s.file.Name.Name, path.Base(s.pkg())
	switch {
	case slices.Contains(vague, name) || slices.Contains(vague, folder):
		return []string{fmt.Sprintf("%s: package %s is named for nothing in particular", s.path, name)}
	case name != strings.ToLower(name) || strings.Contains(name, "_"):
		return []string{fmt.Sprintf("%s: package %s is not one lower-case word", s.path, name)}
	case name != "main" && name != folder:
		return []string{fmt.Sprintf("%s: package %s is in folder %s", s.path, name, folder)}
	}
	return nil
}

func TestPackagesFindsFaults(t *testing.T) {
	for _, c := range []struct {
		files  map[string]string
		faults []string
	}{
		{map[string]string{"internal/a/a.go": "// Package a is.\npackage a", "internal/a/b.go": "package a"}, nil},
		{map[string]string{"cmd/a/a.go": "// Command a does.\npackage main"}, nil},
		{map[string]string{"internal/a/a.go": "package a"}, []string{"0 package comments"}},
		{map[string]string{"internal/a/a.go": "// Package a is.\npackage a", "internal/a/b.go": "// Package a is.\npackage a"},
			[]string{"2 package comments"}},
		{map[string]string{"internal/a/a.go": "// A is.\npackage a"}, []string{"does not begin with"}},
		{map[string]string{"internal/util/a.go": "// Package util is.\npackage util"}, []string{"nothing in particular"}},
		{map[string]string{"internal/a_b/a.go": "// Package a_b is.\npackage a_b"}, []string{"lower-case word"}},
		{map[string]string{"internal/a/a.go": "// Package b is.\npackage b"}, []string{"is in folder a"}},
		{map[string]string{"internal/a/a.go": "// Package a is.\npackage a", "internal/a/a_test.go": "package a_test"}, nil},
	} {
		var list []*source
		for name, text := range c.files {
			list = append(list, parse(t, name, text+"\n"))
		}
		expect(t, checkPackages(list), c.faults...)
	}
}
