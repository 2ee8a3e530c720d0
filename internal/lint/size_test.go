package lint

import (
	"fmt"
	"go/ast"
	"strings"
	"testing"
)

// Budgets for code that is read often: what does not fit a screen or two is split. Tests are tables and may be long.
const (
	fileLines        = 600
	functionLines    = 60
	interfaceMethods = 5
)

// deviceMethods is the budget of the one interface that mirrors hardware.
const deviceMethods = 10

func TestSizes(t *testing.T) {
	for _, s := range sources(t) {
		if !s.test() {
			report(t, checkSizes(s))
		}
	}
}

func checkSizes(s *source) []string {
	var faults []string
	if s.lines > fileLines {
		faults = append(faults, fmt.Sprintf("%s has %d lines, more than %d: split it", s.path, s.lines, fileLines))
	}
	methods := interfaceMethods
	if s.pkg() == "internal/device" {
		methods = deviceMethods
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if lines := s.line(n.End()) - s.line(n.Pos()) + 1; lines > functionLines {
				faults = append(faults, fmt.Sprintf("%s: %s has %d lines, more than %d", s.at(n), n.Name.Name, lines, functionLines))
			}
		case *ast.TypeSpec:
			if i, ok := n.Type.(*ast.InterfaceType); ok && methodCount(i) > methods {
				faults = append(faults, fmt.Sprintf("%s: interface %s has %d methods, more than %d: split it by who calls",
					s.at(n), n.Name.Name, methodCount(i), methods))
			}
		}
		return true
	})
	return faults
}

// methodCount is the number of methods an interface itself lists: what it embeds has its own budget.
func methodCount(i *ast.InterfaceType) int {
	count := 0
	for _, f := range i.Methods.List {
		if _, ok := f.Type.(*ast.FuncType); ok {
			count += max(1, len(f.Names))
		}
	}
	return count
}

func TestSizesFindsFaults(t *testing.T) {
	head := "package p\n"
	function := func(lines int) string { return "func f() {" + strings.Repeat("\n", lines-1) + "}\n" }
	methods := func(n int) string {
		text := "type I interface {\n error\n"
		for m := range n {
			text += fmt.Sprintf(" M%d()\n", m)
		}
		return text + "}\n"
	}
	for _, c := range []struct {
		file, text string
		faults     []string
	}{
		{"internal/p/p.go", head + function(functionLines) + methods(interfaceMethods), nil},
		{"internal/p/p.go", head + function(functionLines+1), []string{"f has 61 lines"}},
		{"internal/p/p.go", head + methods(interfaceMethods+1), []string{"interface I has 6 methods"}},
		{"internal/device/d.go", head + methods(deviceMethods), nil},
		{"internal/device/d.go", head + methods(deviceMethods+1), []string{"interface I has 11 methods"}},
		{"internal/p/p.go", head + strings.Repeat("\n", fileLines-1), nil},
		{"internal/p/p.go", head + strings.Repeat("\n", fileLines), []string{"has 601 lines"}},
	} {
		expect(t, checkSizes(parse(t, c.file, c.text)), c.faults...)
	}
}
