// Package agent tests the data path whole: real programs, with libweft.so before an emulated driver, under a real agent.
// What needs a GPU is test/gpu/run.sh.
package agent

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"weft.dev/weft/internal/bench"
	"weft.dev/weft/test/suite"
)

var built suite.Built

func TestMain(m *testing.M) {
	if socket := os.Getenv(hostileSocket); socket != "" {
		beHostile(socket) // a process that the tests start
		return
	}
	os.Exit(suite.Main(m, &built))
}

// variant is a folder of programs and libraries built with a sanitizer.
func variant(t *testing.T, sanitizer string) string {
	t.Helper()
	dir := filepath.Join(built.Dir, sanitizer)
	if err := suite.Shim(dir, "SAN="+sanitizer, "shim", "programs"); err != nil {
		t.Fatal(err)
	}
	return dir
}

// bed is an agent with emulated GPUs, ended with the test. What agent and programs said is shown if the test fails.
func bed(t *testing.T, gpus int, flags ...string) *bench.Bed {
	t.Helper()
	return bedOf(t, bench.Options{Emulated: gpus, Agent: flags})
}

func bedOf(t *testing.T, o bench.Options) *bench.Bed {
	t.Helper()
	o.Weft = built.Weft
	if o.Programs == "" {
		o.Programs = built.Lib
	}
	said := &suite.Log{}
	o.Log = said
	t.Setenv("WEFT_LIB", o.Programs)
	b, err := bench.Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(said.String())
		}
	})
	return b
}

// soon is a context that ends before the test's own time does.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}
