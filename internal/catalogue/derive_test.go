package catalogue

import (
	"encoding/csv"
	"flag"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weft.dev/weft/internal/shared"
)

var update = flag.Bool("update", false, "write catalogue.csv anew from shared/data")

// line is one line of catalogue.csv: what is derived and compared, as text, so that rounding is part of the comparison.
type line struct{ rate, gpuUtil, memUtil, persistent, peak, shape string }

// key names a line. Sources list some configurations in several files, whose figures meet under one key.
type key struct{ model, batch, gpu, source string }

// licences of the sources, as shared/data/SOURCES.md states them.
var licences = map[string]string{
	"gavel_oracle": "MIT", "miso": "MIT", "titan": "MIT", "salus": "Apache-2.0", "carma": "Apache-2.0",
	"muri": "Apache-2.0", "elasticflow": "Apache-2.0", "pollux": "Apache-2.0", "kineto": "BSD-3-Clause",
}

// TestFiguresAreThoseOfTheSources derives the whole catalogue from the sources' files.
func TestFiguresAreThoseOfTheSources(t *testing.T) {
	lines := map[key]line{}
	for _, derive := range []func(*testing.T, map[key]line){
		gavel, miso, titan, salus, carma, muri, elasticflow, pollux, kineto,
	} {
		derive(t, lines)
	}
	var keys []key
	for k := range lines {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b key) int {
		return compare(Entry{Model: a.model, Batch: a.batch, GPU: a.gpu, Source: a.source},
			Entry{Model: b.model, Batch: b.batch, GPU: b.gpu, Source: b.source})
	})
	var want strings.Builder
	want.WriteString(header + "\n")
	for _, k := range keys {
		l := lines[k]
		want.WriteString(strings.Join([]string{k.model, k.batch, k.gpu, l.rate, l.gpuUtil, l.memUtil, l.persistent, l.peak,
			l.shape, k.source, licences[k.source]}, ",") + "\n")
	}
	if *update {
		if err := os.WriteFile("catalogue.csv", []byte(want.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		t.Skip("SKIPPED: catalogue.csv was written anew; run the test again without -update")
	}
	if diff := cmp.Diff(want.String(), figures); diff != "" {
		t.Errorf("catalogue.csv differs from the sources (-sources +catalogue):\n%s", diff)
	}
}

// batched is a name with a batch size as Gavel writes it.
var batched = regexp.MustCompile(`^(.*) \(batch size (\d+)\)$`)

func gavel(t *testing.T, lines map[key]line) {
	t.Helper()
	for _, r := range records(t, "profiles/isolated_throughput_gavel_shockwave.csv") {
		if r["source"] != "gavel_oracle" {
			continue
		}
		k := key{r["model"], "", r["gpu_type"], "gavel_oracle"}
		if m := batched.FindStringSubmatch(r["model"]); m != nil {
			k.model, k.batch = m[1], m[2]
		}
		lines[k] = line{rate: digits(value(t, r["steps_per_sec"]))}
	}
}

func miso(t *testing.T, lines map[key]line) {
	t.Helper()
	rates := map[string]string{}
	for _, r := range records(t, "profiles/miso_a100_mig_step_times.csv") {
		if r["mig_slice"] == "7g.40gb" {
			rates[r["model"]+":"+r["batch_size"]] = digits(1 / value(t, r["mean_s"]))
		}
	}
	for _, r := range records(t, "profiles/miso_a100_util.csv") {
		lines[key{r["model"], r["batch_size"], "a100-40gb", "miso"}] = line{
			rate: rates[r["model"]+":"+r["batch_size"]], gpuUtil: digits(value(t, r["util_sm_pct"]) / 100),
			memUtil: digits(value(t, r["util_mem_pct"]) / 100), peak: mebibytes(value(t, r["memory_mib"])),
		}
	}
}

func titan(t *testing.T, lines map[key]line) {
	t.Helper()
	for _, r := range records(t, "profiles/titan_fm_step_times.csv") {
		if r["kind"] == "placements" && r["placement"] == "1" {
			lines[key{r["model"], r["local_bsz"], strings.ToLower(r["gpu_type"]), "titan"}] =
				line{rate: digits(1 / value(t, r["step_time"]))}
		}
	}
	for _, r := range records(t, "profiles/titan_fm_memory.csv") {
		if r["model"] == "vit-large" && r["gpu_type"] == "V100" && value(t, r["local_bsz"]) >= 128 {
			continue // less than a third of what the next smaller batch needs: not of one pass
		}
		k := key{r["model"], r["local_bsz"], strings.ToLower(r["gpu_type"]), "titan"}
		l := lines[k]
		l.peak = mebibytes(value(t, r["gpu_memory_gb"]) * 1024)
		lines[k] = l
	}
}

// salus takes the rate between a configuration's shortest and longest run, which leaves out how long it starts.
func salus(t *testing.T, lines map[key]line) {
	t.Helper()
	type run struct{ seconds, iterations float64 }
	least, most := map[key]run{}, map[key]run{}
	for _, r := range records(t, "profiles/salus_workloads.csv") {
		name := strings.Split(r["name"], "_")
		k, this := key{name[0], name[1], "p100", "salus"}, run{value(t, r["runtime_s"]), value(t, r["num_iters"])}
		if old, ok := least[k]; !ok || this.iterations < old.iterations {
			least[k] = this
		}
		if this.iterations > most[k].iterations {
			most[k] = this
		}
		lines[k] = line{
			rate: digits((most[k].iterations - least[k].iterations) / (most[k].seconds - least[k].seconds)),
			peak: mebibytes(value(t, r["peak_mem_mb"])),
		}
	}
}

func carma(t *testing.T, lines map[key]line) {
	t.Helper()
	for _, r := range records(t, "profiles/model_memory_util.csv") {
		if r["source"] != "carma" || strings.Contains(r["model"], "detection_train") { // it ran for 1.7 s
			continue
		}
		model := r["model"]
		if strings.HasSuffix(model, "dlrm_s_pytorch") {
			model = "dlrm_s_pytorch" // without the folder it lay in
		}
		lines[key{model, r["batch_size"], "a100-40gb", "carma"}] = line{peak: mebibytes(value(t, r["gpu_memory_mib"]))}
	}
}

func muri(t *testing.T, lines map[key]line) {
	t.Helper()
	for _, r := range records(t, "profiles/muri_stage_times.csv") {
		if r["num_gpu"] == "1" {
			lines[key{r["model"], r["batch_size"], "", "muri"}] = line{rate: digits(1000 / value(t, r["iteration_time_ms"]))}
		}
	}
}

func elasticflow(t *testing.T, lines map[key]line) {
	t.Helper()
	for _, r := range records(t, "profiles/elasticflow_throughputs.csv") {
		if r["num_gpus"] == "1" {
			lines[key{r["model"], r["global_batch_size"], strings.ToLower(r["gpu_type"]), "elasticflow"}] =
				line{rate: digits(value(t, r["steps_per_sec"]))}
		}
	}
}

func pollux(t *testing.T, lines map[key]line) {
	t.Helper()
	for _, r := range records(t, "pollux/step_times.csv") {
		if r["kind"] == "placements" && r["placement"] == "1" {
			lines[key{r["application"], r["local_bsz"], "t4", "pollux"}] = line{rate: digits(1 / value(t, r["step_time"]))}
		}
	}
}

// kineto has shapes without amounts: what was allocated before the trace is missing from its curves.
func kineto(t *testing.T, lines map[key]line) {
	t.Helper()
	for _, workers := range []string{"0", "4"} {
		shared.Data(t, "memory_curves/kineto_resnet50_w"+workers+"_a.csv")
		lines[key{"resnet50_num_workers_" + workers, "", "", "kineto"}] = line{shape: "resnet50-w" + workers}
	}
}

// records are the rows of a file by column.
func records(t *testing.T, name string) []map[string]string {
	t.Helper()
	f, err := os.Open(shared.Data(t, name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	var list []map[string]string
	for _, row := range rows[1:] {
		r := map[string]string{}
		for i, column := range rows[0] {
			r[column] = row[i]
		}
		list = append(list, r)
	}
	return list
}

func value(t *testing.T, s string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || !(v > 0) || math.IsInf(v, 0) {
		t.Fatalf("%q is no positive number", s)
	}
	return v
}

// digits writes a figure with four digits.
func digits(v float64) string {
	if math.IsNaN(v) {
		return "" // of one run only
	}
	rounded, _ := strconv.ParseFloat(fmt.Sprintf("%.4g", v), 64)
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}

// mebibytes writes memory rounded up to a tenth, so that it is never too low.
func mebibytes(v float64) string {
	return strconv.FormatFloat(math.Ceil(v*10-1e-6)/10, 'f', -1, 64)
}
