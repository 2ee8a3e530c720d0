package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"weft.dev/weft/internal/shared"
	"weft.dev/weft/internal/trace"
	"weft.dev/weft/internal/workload"
)

// These tests reproduce published figures and the project's own targets with the command line that a reader would type,
// on the recorded data. The packages below hold the same rules in detail.

// answer runs weft with --json and decodes what it wrote.
func answer[T any](t *testing.T, args ...string) T {
	t.Helper()
	code, out, errs := invoke(t, append(args, "--json")...)
	if code != exitOK {
		t.Fatalf("weft %s: exit %d: %s%s", strings.Join(args, " "), code, errs, out)
	}
	var v T
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatalf("weft %s: %v", strings.Join(args, " "), err)
	}
	return v
}

func invoke(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs strings.Builder
	code = run(t.Context(), args, strings.NewReader(""), &out, &errs)
	return code, out.String(), errs.String()
}

// mixFile writes equal copies of configurations as JOBS.csv.
func mixFile(t *testing.T, light bool, copies int) string {
	t.Helper()
	mix := workload.WholeMix()
	if light {
		mix = workload.LightMix()
	}
	path := filepath.Join(t.TempDir(), "mix.csv")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := trace.WriteJobs(f, workload.Copies(mix, copies, 0.9), false); err != nil {
		t.Fatal(err)
	}
	// The floor is left to --floor.
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(text), ",0.9,", ",,")), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPlanReachesPublishedFigures(t *testing.T) {
	pairs := shared.Data(t, "interference/pairs.csv")
	for _, c := range []struct {
		gpu       string
		light     bool
		copies    int
		floor     string
		residents int
		exact     int // GPUs of the exact method; 0 is not stated
		most      int // GPUs of the best method; 0 is not stated
		bound     float64
		mean      float64
	}{
		{gpu: "p100", copies: 4, floor: "0.80", residents: 4, exact: 64},
		{gpu: "p100", copies: 8, floor: "0.85", residents: 4, exact: 152},
		{gpu: "v100", copies: 4, floor: "0.80", residents: 4, exact: 88},
		{gpu: "p100", light: true, copies: 8, floor: "0.85", residents: 3, most: 55, bound: 53.3, mean: 0.93},
		{gpu: "p100", light: true, copies: 8, floor: "0.85", residents: 4, most: 54, bound: 52.8, mean: 0.93},
	} {
		t.Run(fmt.Sprintf("%s_light=%v_%s_%d", c.gpu, c.light, c.floor, c.residents), func(t *testing.T) {
			study := answer[planStudy](t, "plan", mixFile(t, c.light, c.copies), "--interference", pairs, "--source", "gavel_oracle",
				"--gpu-model", c.gpu, "--floor", c.floor, "--max-residents", strconv.Itoa(c.residents))
			if len(study.Methods) != 6 {
				t.Fatalf("%d methods, want 6", len(study.Methods))
			}
			if c.bound > 0 && math.Abs(study.Bound.GPUs-c.bound) >= 0.05 {
				t.Errorf("bound %v, want %v", study.Bound.GPUs, c.bound)
			}
			best, floor := math.MaxInt, decimalOf(t, c.floor)
			for _, m := range study.Methods {
				if m.GPUs == nil {
					t.Fatalf("%s was skipped: %s", m.Method, m.Skipped)
				}
				if float64(*m.GPUs) < study.Bound.GPUs-1e-6 || m.Broken != 0 || m.Worst < floor-1e-9 {
					t.Errorf("%s: %d GPUs at bound %v, worst %v, %d floors broken", m.Method, *m.GPUs, study.Bound.GPUs, m.Worst, m.Broken)
				}
				if m.Method == "exact" && c.exact > 0 && *m.GPUs != c.exact {
					t.Errorf("exact: %d GPUs, want %d", *m.GPUs, c.exact)
				}
				if *m.GPUs <= c.most && m.Mean >= c.mean {
					best = min(best, *m.GPUs)
				}
			}
			if c.most > 0 && best > c.most {
				t.Errorf("no method needs at most %d GPUs at mean performance %v", c.most, c.mean)
			}
		})
	}
}

func decimalOf(t *testing.T, s string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// muriPublished is the mean completion time in seconds of srtf, srsf, tiresias, antman on each trace, and on its prime with
// all jobs submitted at once.
var muriPublished = [4][2][4]string{
	{{"1370603.197651", "980140.569929", "3330371.306772", "5476391.316730"},
		{"2303543.816474", "1801859.995307", "6921682.793319", "9808250.677218"}},
	{{"2665607.375069", "2213949.687363", "7396368.514037", "15647814.621178"},
		{"4079154.453644", "3384600.436878", "10555502.040026", "18163389.280198"}},
	{{"193081.796024", "185021.880164", "347213.248119", "305453.940738"},
		{"844394.780042", "798057.682913", "2213110.127711", "2674393.018161"}},
	{{"581982.900232", "487167.168772", "1319382.936037", "2212462.719299"},
		{"1430856.445713", "1218501.967745", "2674022.635595", "4676092.801213"}},
}

func TestSimRepeatsMuri(t *testing.T) {
	for i, figures := range muriPublished {
		if testing.Short() && i != 2 {
			continue
		}
		path := shared.Data(t, fmt.Sprintf("muri/trace%d.csv", i+1))
		for prime, want := range figures {
			args := []string{"sim", path, "--format", "muri", "--policy", "srtf,srsf,tiresias,antman"}
			if prime == 1 {
				args = append(args, "--submit-at", "0")
			}
			for k, r := range answer[simStudy](t, args...).Policies {
				if got := strconv.FormatFloat(r.AvgJCT, 'f', 6, 64); got != want[k] {
					t.Errorf("trace %d%s, %s: %s s, want %s", i+1, strings.Repeat("'", prime), r.Policy, got, want[k])
				}
			}
		}
	}
}

func TestSimRepeatsPollux(t *testing.T) {
	path := shared.Data(t, "pollux/workloads.csv")
	want := []float64{2473.65, 5144.9625, 3876.25625, 3280.2625, 3501.0125, 3469.69375, 5479.9125, 5079.70625}
	args := []string{"sim", path, "--format", "pollux", "--policy", "tiresias"}
	if testing.Short() {
		args, want = append(args, "--vc", "1"), want[:1]
	}
	got := map[string]float64{}
	for _, r := range answer[simStudy](t, args...).Policies {
		got[r.Workload] = r.AvgJCT
	}
	for i, v := range want {
		if name := strconv.Itoa(i + 1); math.Abs(got[name]-v) > 1e-9 {
			t.Errorf("workload %s: %v s, want %v", name, got[name], v)
		}
	}
}

// fgdSeed is the last points of both curves for one seed, by placement.
func fgdSeed(t *testing.T, seed string) map[string][2]float64 {
	t.Helper()
	f, err := os.Open(shared.Data(t, "fgd_expected/per_seed.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	final := map[string][2]float64{}
	for _, row := range rows[1:] {
		if row[1] != "openb_pod_list_default" || row[3] != seed {
			continue
		}
		_, name, _ := strings.Cut(strings.ToLower(row[2]), "-")
		name = strings.TrimPrefix(name, "gpu")
		pair := final[name]
		pair[map[string]int{"allo": 0, "frag": 1}[row[0]]] = decimalOf(t, row[len(row)-1])
		final[name] = pair
	}
	return final
}

func TestSimRepeatsFGD(t *testing.T) {
	placements := []string{"fgd", "bestfit", "dotprod", "clustering", "packing"}
	if testing.Short() {
		placements = placements[1:2]
	}
	want := fgdSeed(t, "42")
	study := answer[simStudy](t, "sim", shared.Data(t, "openb/openb_pod_list_default.csv"), "--format", "openb", "--cluster",
		shared.Data(t, "openb/openb_node_list_gpu_node.csv"), "--fill", "1.3", "--placement", strings.Join(placements, ","))
	for _, r := range study.Policies {
		last := r.Seeds[0].Curve[len(r.Seeds[0].Curve)-1]
		for k, v := range []float64{last.Allocation, last.Fragmentation} {
			if expected := want[r.Placement][k]; expected == 0 || math.Abs(v-expected) > 0.005+1e-9 {
				t.Errorf("%s, curve %d: %v, want %v", r.Placement, k, v, expected)
			}
		}
	}
}

func TestSimRepeatsPhilly(t *testing.T) {
	path, nodes := shared.Data(t, "philly/philly_jobs.csv"), shared.Data(t, "philly/philly_vc_nodes.csv")
	args := []string{"sim", path, "--format", "philly", "--cluster", nodes, "--policy", "fifo,sjf", "--from", "2017-10-01", "--to", "2017-12-01"}
	type figures struct{ jct, queue float64 }
	vcs := map[string][2]figures{
		"11cb48": {{3110.67, 240.98}, {3059.07, 189.39}},
		"2869ce": {{97749.20, 11343.37}, {91550.34, 5144.50}},
		"103959": {{24783.52, 246.21}, {24581.68, 44.37}},
		"ed69ec": {{25463.07, 4.08}, {}},
		"6214e9": {{5454.62, 5.76}, {}},
	}
	near := func(what string, got, want, step float64) {
		t.Helper()
		if want > 0 && math.Abs(got-want) > step/2+1e-9 {
			t.Errorf("%s: %v s, want %v", what, got, want)
		}
	}
	one := answer[simStudy](t, append(args, "--vc", "2869ce")...)
	near("fifo completion, 2869ce alone", one.Policies[0].AvgJCT, 97749.20, 0.01)
	near("sjf queueing, 2869ce alone", one.Policies[1].AvgQueue, 5144.50, 0.01)
	if testing.Short() {
		return
	}
	study := answer[simStudy](t, args...)
	for p, want := range []figures{{11585.2918, 104.6110}, {11543.4271, 62.7462}} {
		r := study.Policies[p]
		if r.Jobs != 68503 || len(r.VCs) != 11 {
			t.Errorf("%s: %d jobs in %d virtual clusters, want 68,503 in 11", r.Policy, r.Jobs, len(r.VCs))
		}
		near(r.Policy+" completion", r.AvgJCT, want.jct, 1e-4)
		near(r.Policy+" queueing", r.AvgQueue, want.queue, 1e-4)
		found := 0
		for _, vc := range r.VCs {
			if want, ok := vcs[vc.VC]; ok {
				found++
				near(r.Policy+" completion in "+vc.VC, vc.AvgJCT, want[p].jct, 0.01)
				near(r.Policy+" queueing in "+vc.VC, vc.AvgQueue, want[p].queue, 0.01)
			}
		}
		if found != len(vcs) {
			t.Errorf("%s: %d of %d virtual clusters found", r.Policy, found, len(vcs))
		}
	}
}

func TestSimReadsReportedLogs(t *testing.T) {
	rows := func(r *simRun) map[string]int {
		counts := map[string]int{}
		for _, x := range r.Excluded {
			counts[x.Reason] = x.Rows
		}
		return counts
	}
	a01 := answer[simStudy](t, "sim", shared.Case(t, "A01/sacct.txt"), "--format", "sacct", "--nodes", "64", "--gpus-per-node", "8",
		"--policy", "fifo", "--share", "never").Policies[0]
	if a01.Jobs != 10 || math.Abs(a01.GPUHours-532.4714) > 5e-5 {
		t.Errorf("A01: %d jobs, %.4f GPU-hours, want 10 and 532.4714", a01.Jobs, a01.GPUHours)
	}
	if n := rows(a01); n["no GPU"] != 1 || n["never started"] != 2 || n["still running"] != 1 {
		t.Errorf("A01 leaves out %v", n)
	}
	a03 := answer[simStudy](t, "sim", shared.Case(t, "A03/sacct.txt"), "--format", "sacct", "--nodes", "64").Policies[0]
	if a03.Jobs != 4 || math.Abs(a03.GPUHours-12.5) > 1e-9 || rows(a03)["never started"] != 41 {
		t.Errorf("A03: %d jobs, %v GPU-hours, leaves out %v", a03.Jobs, a03.GPUHours, a03.Excluded)
	}
	a13 := answer[simStudy](t, "sim", shared.Case(t, "A13/openb_pods.csv"), "--format", "openb", "--nodes", "64").Policies[0]
	seconds := a13.GPUHours * 3600
	if refused := 5 - a13.Jobs; refused == 0 && math.Abs(seconds-40766) > 1e-6 || a13.Jobs < 4 {
		t.Errorf("A13: %d pods, %v GPU-seconds, leaves out %v", a13.Jobs, seconds, a13.Excluded)
	}
	code, out, errs := invoke(t, "sim", shared.Case(t, "A13/pai_task.csv"), "--json")
	if code != exitBadInput || !strings.Contains(out, `"code": "foreign_format"`) || errs != "" {
		t.Errorf("A13 pai_task.csv: exit %d: %s%s", code, out, errs)
	}
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "jobs.csv")
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}
