package lint

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strings"
	"testing"
)

// clock and constructors are the functions of package time that read the clock, and those of math/rand and
// math/rand/v2 that do not draw from the global source.
var (
	clock = []string{
		"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer", "Local", "LoadLocation",
	}
	constructors = []string{"New", "NewSource", "NewPCG", "NewChaCha8", "NewZipf"}
)

func TestPureCode(t *testing.T) {
	for _, s := range sources(t) {
		if r, ok := rowOf(s.pkg(), architecture); ok && r.pure && !s.test() {
			report(t, checkPure(s))
		}
	}
}

// checkPure finds uses of the clock and of global randomness, goroutines, and package variables that a function sets.
func checkPure(s *source) []string {
	names := importNames(s)
	var faults []string
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			faults = append(faults, s.at(n)+": a goroutine in pure code: order is an input")
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			if !ok {
				return true
			}
			if why := impureName(names[x.Name], n.Sel.Name); why != "" {
				faults = append(faults, fmt.Sprintf("%s: %s.%s: %s", s.at(n), x.Name, n.Sel.Name, why))
			}
		}
		return true
	})
	return faults
}

// impureName says why a pure package may not use a name of a standard package; "" when it may.
func impureName(pkg, name string) string {
	switch pkg {
	case "time":
		if slices.Contains(clock, name) {
			return "time is an input"
		}
	case "math/rand", "math/rand/v2":
		if isFunction(name) && !slices.Contains(constructors, name) {
			return "randomness is an input: hand in a *rand.Rand"
		}
	case "crypto/rand":
		return "randomness is an input: hand in a *rand.Rand"
	case "context":
		if name == "Background" || name == "TODO" || strings.HasPrefix(name, "WithTimeout") ||
			strings.HasPrefix(name, "WithDeadline") {
			return "the caller's context is the one to use"
		}
	}
	return ""
}

// isFunction tells the functions of math/rand from its types.
func isFunction(name string) bool {
	return !slices.Contains([]string{"Rand", "Source", "Source64", "PCG", "ChaCha8", "Zipf"}, name)
}

// importNames are the import paths of a file by the name it uses for each.
func importNames(s *source) map[string]string {
	names := map[string]string{}
	for i, p := range s.imports() {
		name := path.Base(p)
		if name == "v2" {
			name = path.Base(path.Dir(p))
		}
		if own := s.file.Imports[i].Name; own != nil {
			name = own.Name
		}
		names[name] = p
	}
	return names
}

func TestPureCodeFindsFaults(t *testing.T) {
	for _, c := range []struct {
		imports, body string
		faults        []string
	}{
		{`"time"`, `_ = time.Now(); _ = time.Second`, []string{"time is an input"}},
		{`clock "time"`, `clock.Sleep(1); f := clock.Since; _ = f`, []string{"clock.Sleep", "clock.Since"}},
		{`"math/rand/v2"`, `_ = rand.IntN(3)`, []string{"randomness"}},
		{`old "math/rand"`, `old.Shuffle(1, nil); _ = old.New(old.NewSource(1))`, []string{"old.Shuffle"}},
		{`"math/rand/v2"`, `var r *rand.Rand = rand.New(rand.NewPCG(1, 2)); _ = r.IntN(3)`, nil},
		{`"crypto/rand"`, `_ = rand.Reader`, []string{"randomness"}},
		{`"context"`, `_ = context.Background(); var _ context.Context`, []string{"the caller's context"}},
		{`"fmt"`, `go fmt.Println()`, []string{"goroutine"}},
		{`"weft.dev/weft/internal/time"`, `_ = time.Now()`, nil},
	} {
		text := "package p\nimport " + c.imports + "\nfunc f() {" + c.body + "}\n"
		expect(t, checkPure(parse(t, "internal/p/p.go", text)), c.faults...)
	}
}
