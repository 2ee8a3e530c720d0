package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const twoJobs = "predict --a ResNet-18:16 --b Transformer:64 --gpu-model "

func TestPredictAnswersForOnePair(t *testing.T) {
	code, out, errs := weft(t.Context(), strings.Fields(twoJobs+"P100")...)
	const want = `JOB             RATE  80 % RANGE  SAFE FLOOR  BECAUSE                      BASIS
ResNet-18:16    79 %  70 to 86 %        70 %  b's speed-up on faster GPUs  known
Transformer:64  79 %  70 to 86 %        70 %  a's batch scaling            known
`
	if code != exitOK || errs != "" || out != want {
		t.Errorf("exit %d, %s\n%s", code, errs, out)
	}
}

// answered is what weft predict --json writes.
type answered struct {
	Jobs []struct {
		Job             string
		Rate, Low, High float64
		Basis           string
		Because         []struct {
			Feature string
			By      float64
		}
	}
	Notes []string
}

func TestPredictSaysWhatItDoesNotKnow(t *testing.T) {
	got := parsed[answered](t, strings.Fields(twoJobs+"B200")...)
	if len(got.Notes) != 1 || got.Notes[0] != "GPU B200 never seen: prior used" || got.Jobs[0].Basis != "prior" || got.Jobs[0].Low > 0.2 {
		t.Errorf("%+v", got)
	}
	got = parsed[answered](t, strings.Fields(twoJobs+"v100")...)
	if len(got.Notes) != 0 || got.Jobs[1].Job != "Transformer:64" || len(got.Jobs[1].Because) == 0 {
		t.Errorf("%+v", got)
	}
	if got := parsed[answered](t, "predict", "--a", "vgg11:25", "--b", "LM:20", "--gpu-model", "p100"); got.Jobs[0].Basis != "new job" {
		t.Errorf("a job of the catalogue alone: %+v", got)
	}
}

// Two measured pairs of an unknown job make it answerable.
func TestPredictUsesProbes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "probes.csv")
	const text = "job_a,batch_a,job_b,batch_b,norm_a,norm_b,alone_a\nmine,32,LM,20,0.95,0.90,5\nmine,32,ResNet-50,32,0.93,0.9,5\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"predict", "--a", "mine:32", "--b", "LM:40", "--gpu-model", "p100"}
	before := parsed[answered](t, args...)
	after := parsed[answered](t, append(args, "--probes", file)...)
	if b, a := before.Jobs[0], after.Jobs[0]; b.Basis != "prior" || a.Basis != "probed" || a.Low < b.Low+0.2 || a.Rate < 0.8 {
		t.Errorf("before %+v, after %+v", b, a)
	}
}

func TestPredictEvaluatesTablesWithUtilisation(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pairs.csv")
	const text = `source,gpu_type,job_a,batch_a,job_b,batch_b,norm_a,norm_b,gpu_util_a,gpu_util_b,mem_util_a,mem_used_mib_a
elsewhere,A10,m,8,n,8,0.7,1.2,80,140,40,4000
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got := parsed[struct {
		evaluated
		Notes []string
	}](t, "predict", "--evaluate", file)
	notes := strings.Join(got.Notes, "; ")
	if got.N != 2 || got.Coverage != 1 || !strings.Contains(notes, "gpu_util_b 140: ignored, range widened") ||
		!strings.Contains(notes, "GPU A10 never seen: prior used") || !strings.Contains(notes, "1.2) are counted as 1") {
		t.Errorf("%+v", got)
	}
	if code, out, _ := weft(t.Context(), "predict", "--evaluate", file); code != exitOK || !strings.Contains(out, "COVERED") {
		t.Errorf("exit %d\n%s", code, out)
	}
}

func TestPredictRefusesWhatItCannotUse(t *testing.T) {
	write := func(name, text string) string {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	other, broken := write("other.json", `{"version":3}`), write("broken.json", `{"version":`)
	for _, x := range []struct {
		args []string
		want string
	}{
		{strings.Fields(twoJobs + "p100 --model " + other), "model version 3, known 1; retrain"},
		{strings.Fields(twoJobs + "p100 --model " + broken), "not a model"},
		{strings.Fields("predict --a m --gpu-model p100"), "two jobs are needed"},
		{strings.Fields("predict --a m --b n"), "no GPU model"},
		{strings.Fields(twoJobs + "p100 --evaluate pairs.csv"), "takes its pairs from the file"},
	} {
		code, _, errs := weft(t.Context(), x.args...)
		if code != exitBadInput || !strings.Contains(errs, x.want) {
			t.Errorf("%v: exit %d, %s", x.args, code, errs)
		}
	}
}
