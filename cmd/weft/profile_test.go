package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weft.dev/weft/internal/recording"
	"weft.dev/weft/internal/shared"
)

// profileRun is weft profile as a user calls it.
func profileRun(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = run(context.Background(), append([]string{"profile", "-q"}, args...), strings.NewReader(stdin), &out, &err)
	return code, out.String(), err.String()
}

// curveText is a curve of n iterations of 100 ms between 1 and 3 GiB.
func curveText(n int) string {
	text := "time_ms,allocated_bytes,reserved_bytes\n"
	for i := range n {
		text += fmt.Sprintf("%d,1073741824,4294967296\n%d,3221225472,4294967296\n", i*100, i*100+60)
	}
	return text + fmt.Sprintf("%d,1073741824,4294967296\n", n*100)
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestProfileShows(t *testing.T) {
	code, out, notes := profileRun(t, "", write(t, "curve.csv", curveText(9)))
	want := "curve (curve)\n" +
		"3.0 GiB |            ########            ########            ########  9 iterations of 100 ms\n" +
		"        |            ########            ########            ########  persistent 1.0 GiB, ephemeral up to 2.0 GiB\n" +
		"        |            ########            ########            ########  mean 1.8 GiB, reserved 4.0 GiB\n" +
		"1.0 GiB |############################################################  GPU utilisation unknown\n" +
		"valley of 2.0 GiB for 60 % of each iteration; allocator keeps its cache: shareable only with handover\n"
	if code != exitOK || out != want || notes != "" {
		t.Errorf("exit %d, notes %q\n%s\nwant\n%s", code, notes, out, want)
	}
}

func TestProfileFiles(t *testing.T) {
	curve := write(t, "curve.csv", curveText(9))
	dir := t.TempDir()
	for _, name := range []string{"p.json", "p.yaml"} {
		path := filepath.Join(dir, name)
		if code, _, text := profileRun(t, "", curve, "--out", path, "--name", "bert", "--levels", "4"); code != exitOK {
			t.Fatalf("exit %d: %s", code, text)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		p, s, err := recording.ReadProfile(path, f)
		_ = f.Close()
		if err != nil || s.Name != "bert" || p.Persistent.GiB() != 1 || p.Peak().GiB() != 3 || *s.PeriodMS != 100 {
			t.Errorf("%s: %v %+v, %v", name, p, s, err)
		}
	}
	image := filepath.Join(dir, "p.png")
	if code, _, text := profileRun(t, "", curve, "--png", image); code != exitOK {
		t.Fatalf("exit %d: %s", code, text)
	}
	f, err := os.Open(image)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if drawn, err := png.Decode(f); err != nil || drawn.Bounds().Dx() < 600 {
		t.Errorf("image: %v", err)
	}
}

func TestProfileJSON(t *testing.T) {
	code, out, _ := profileRun(t, curveText(9), "-", "--json")
	var s recording.Summary
	if err := json.Unmarshal([]byte(out), &s); err != nil || code != exitOK || s.Schema != 1 || s.Iterations != 9 || len(s.PerIteration) != 9 {
		t.Errorf("exit %d, %v: %s", code, err, out)
	}
	var keys map[string]any
	if err := json.Unmarshal([]byte(out), &keys); err != nil || keys["gpu_util"] != nil || keys["valley_mib"] != 2048.0 {
		t.Errorf("%v: %s", err, out)
	}
}

func TestProfileFaults(t *testing.T) {
	curve := write(t, "curve.csv", curveText(9))
	hostile := write(t, "snap.pickle", "cposix\nsystem\n(S'touch PWNED'\ntR.")
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{hostile}, "pickle GLOBAL posix.system at byte 0 refused, not executed"},
		{[]string{curve, hostile}, "refused, not executed"},
		{[]string{curve, "--format", "x"}, `unknown format "x"`},
		{[]string{curve, "--levels", "0"}, "0 levels are outside [1, 256]"},
		{[]string{curve, "--gpu", "3"}, `no GPU "3"`},
		{[]string{curve, curve, "--png", filepath.Join(t.TempDir(), "x.png")}, "one image cannot show 2 profiles"},
		{[]string{curve, "--out", filepath.Join(t.TempDir(), "no", "x.json")}, "cannot write"},
		{[]string{filepath.Join(t.TempDir(), "gone")}, "cannot read"},
		{[]string{write(t, "a", "hello\n")}, "no recording that weft knows"},
		{[]string{write(t, "a", "")}, "the file is empty"},
	} {
		code, out, text := profileRun(t, "", test.args...)
		if code != exitBadInput || out != "" || !strings.Contains(text, test.want) {
			t.Errorf("%v: exit %d, %q\n%s", test.args, code, out, text)
		}
		code, out, _ = profileRun(t, "", append(test.args, "--json")...)
		var faults struct{ Errors []map[string]any }
		if err := json.Unmarshal([]byte(out), &faults); code != exitBadInput || err != nil || len(faults.Errors) == 0 {
			t.Errorf("%v --json: exit %d, %v: %s", test.args, code, err, out)
		}
	}
}

// TestProfileCases runs the command on reported files: what it says of them, not only what the readers find.
func TestProfileCases(t *testing.T) {
	for name, words := range map[string][]string{
		"A07/two_gpus.csv":            {"two_gpus-gpu0", "8.8 GiB", "5.9 GiB", "two_gpus-gpu1", "500 MiB"},
		"A07/mig_parent.csv":          {"GPU utilisation unknown", "MIG mode hides it"},
		"A10/snap_old_no_time.pickle": {"10 iterations, period unknown", "levels are known"},
		"A12/truncated.json":          {"partial: the trace is cut at byte 24911"},
	} {
		code, out, notes := profileRun(t, "", shared.Case(t, name))
		for _, w := range words {
			if code != exitOK || !strings.Contains(out+notes, w) {
				t.Errorf("%s: exit %d, lacks %q:\n%s%s", name, code, w, out, notes)
			}
		}
	}
	code, out, _ := profileRun(t, "", shared.Case(t, "A07/dash_lms_no_header.csv"), "--columns",
		"timestamp,index,uuid,name,utilization.gpu,utilization.memory,memory.used,memory.total", "--gpu", "1")
	if code != exitOK || !strings.Contains(out, "500 MiB") {
		t.Errorf("exit %d: %s", code, out)
	}
}
