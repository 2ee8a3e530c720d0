package main

import (
	"context"
	"encoding/json"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weft.dev/weft/internal/emugpu"
)

// serveEmulated runs weft emugpu until the returned function is called, which gives its exit code.
func serveEmulated(t *testing.T, args ...string) (lines []string, end func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, append([]string{"emugpu"}, args...), strings.NewReader(""), in, io.Discard)
		_ = in.Close()
	}()
	var text strings.Builder
	buffer := make([]byte, 1024)
	for strings.Count(text.String(), "\n") < 2 {
		n, err := out.Read(buffer)
		text.Write(buffer[:n])
		if err != nil {
			t.Fatalf("weft emugpu ended: exit %d, %q", <-code, text.String())
		}
	}
	end = func() int {
		cancel()
		select {
		case c := <-code:
			return c
		case <-time.After(10 * time.Second):
			t.Fatal("weft emugpu does not end")
			return 0
		}
	}
	return strings.Split(text.String(), "\n"), end
}

func TestEmugpu(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "it's.sock")
	lines, end := serveEmulated(t, "--gpus", "3", "--model", "a10,h100", "--memory", "8GiB", "--socket", socket)
	if want := `export WEFT_EMU_SOCKET='` + strings.ReplaceAll(socket, "'", `'\''`) + `'`; lines[0] != want {
		t.Errorf("%s, want %s", lines[0], want)
	}
	if !strings.HasPrefix(lines[1], "export LD_LIBRARY_PATH=") || !strings.HasSuffix(lines[1], "${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}") {
		t.Error(lines[1])
	}
	call := func(want int, args ...string) string {
		t.Helper()
		var out, errs strings.Builder
		if code := run(t.Context(), append(args, "--socket", socket), strings.NewReader(""), &out, &errs); code != want {
			t.Errorf("weft %v: exit %d, want %d: %s", args, code, want, errs.String())
		}
		return out.String() + errs.String()
	}
	call(exitOK, "emugpu", "fault", "xid", "79", "--gpu", "1")
	for _, wrong := range []struct{ args, want string }{
		{"xid", "xid needs a number"}, {"slow", "slow needs a time"}, {"slow soon", "slow needs a time"}, {"hang 0", "at least 1"},
		{"lost 3", "it has no number"}, {"melt", "one of hang, oom"}, {"oom --gpu 9", "gpu 9 is not there; there are 3"},
	} {
		if said := call(exitBadInput, append([]string{"emugpu", "fault"}, strings.Fields(wrong.args)...)...); !strings.Contains(said, wrong.want) {
			t.Errorf("%s: %s", wrong.args, said)
		}
	}
	var stats emugpu.Stats
	if err := json.Unmarshal([]byte(call(exitOK, "emugpu", "stats", "--json")), &stats); err != nil {
		t.Fatal(err)
	}
	if g := stats.GPUs; len(g) != 3 || g[1].Name != "NVIDIA H100 80GB HBM3" || g[1].Health != "lost" || g[2].Name != "NVIDIA A10" || g[2].Usable != 7680<<20 {
		t.Errorf("%+v", g)
	}
	if said := call(exitOK, "emugpu", "stats"); !strings.Contains(said, "lost XID 79") || !strings.Contains(said, "real clock") {
		t.Error(said)
	}
	if code := end(); code != exitOK {
		t.Errorf("exit %d after Ctrl-C", code)
	}
	if said := call(exitUnreachable, "emugpu", "stats"); !strings.Contains(said, "there is no such socket") {
		t.Error(said)
	}
	if said := call(exitUnreachable, "emugpu", "stats", "--json"); !strings.Contains(said, `"code": "unreachable"`) {
		t.Error(said)
	}
}

func TestEmugpuFlags(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--gpus 0", "0 GPUs are outside [1, 16]"}, {"--gpus 17", "17 GPUs are outside"}, {"--gpus 1 --model a10,h100", "2 models for 1 GPUs"},
		{"--model b200", "one of t4, p100"}, {"--memory 100MiB", "usable memory"}, {"--usable 30GiB", "usable memory"}, {"--memory 65TiB", "usable memory"},
		{"--scale 0", "scale 0 is outside"}, {"--scale 2 --clock virtual", "a virtual clock has no scale"}, {"--slice 1ns", "slice 1ns"},
		{"--switch=-1s", "switch -1s"}, {"--interference a=2", "is no pair"}, {"--interference a:b=0.9", "is no pair"}, {"--interference a:b", "is no pair"},
		{"--clock sometimes", `must be one of "real","virtual"`},
	} {
		var out, errs strings.Builder
		code := run(t.Context(), append([]string{"emugpu"}, strings.Fields(c.args)...), strings.NewReader(""), &out, &errs)
		if code != exitBadInput || !strings.Contains(errs.String(), c.want) || out.Len() > 0 {
			t.Errorf("%s: exit %d, %s%s", c.args, code, out.String(), errs.String())
		}
	}
}
