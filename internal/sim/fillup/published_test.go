package fillup_test

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/policy"
	"weft.dev/weft/internal/sim/fillup"
)

// published is the study's figures by metric, workload, policy and seed, one per 10 % of arrived demand.
type published map[string][]string

func readPublished(t testing.TB) published {
	t.Helper()
	p := published{}
	for _, r := range rows(t, "fgd_expected/per_seed.csv") {
		var row []string
		for percent := 10; percent <= 130; percent += 10 {
			row = append(row, r[fmt.Sprintf("arrived_%d_pct", percent)])
		}
		p[strings.Join([]string{r["metric"], r["workload"], r["sc_policy"], r["seed"]}, " ")] = row
	}
	return p
}

// workloads are those of the study that the figures at hand cover, each with seeds 42 to 51.
var workloads = []string{"openb_pod_list_default", "openb_pod_list_gpuspec33"}

const firstSeed, lastSeed = 42, 51

// lastSeedToRun leaves most seeds out of the edit loop.
func lastSeedToRun(t *testing.T) int {
	t.Helper()
	if testing.Short() {
		t.Logf("-short: seeds %d to %d only", firstSeed, firstSeed+1)
		return firstSeed + 1
	}
	return lastSeed
}

func allocation(p fillup.Point) float64    { return p.Allocation }
func fragmentation(p fillup.Point) float64 { return p.Fragmentation }

func run(t testing.TB, c cluster.Cluster, pods []cluster.Job, placement string, seed int) *fillup.Result {
	t.Helper()
	r, err := fillup.Run(context.Background(), c, pods, fillup.Options{Policy: placement, Seed: int64(seed), Fill: 1.3})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestPublished reproduces every published figure of the five placements that draw nothing: 2 workloads, 10 seeds,
// 13 points of 2 curves, to the printed digits.
func TestPublished(t *testing.T) {
	want, c := readPublished(t), openbCluster(t)
	last := lastSeedToRun(t)
	for _, workload := range workloads {
		pods := openbPods(t, workload)
		for seed := firstSeed; seed <= last; seed++ {
			for ours, theirs := range map[string]string{"dotprod": "02-DotProd", "clustering": "03-GpuClustering",
				"packing": "04-GpuPacking", "bestfit": "05-BestFit", "fgd": "06-FGD"} {
				t.Run(fmt.Sprintf("%s/%d/%s", workload, seed, ours), func(t *testing.T) {
					r := run(t, c, pods, ours, seed)
					key := fmt.Sprintf("%s %s %d", workload, theirs, seed)
					compare(t, "allocation", want["allo "+key], r, allocation)
					compare(t, "fragmentation", want["frag "+key], r, fragmentation)
				})
			}
		}
	}
}

func compare(t *testing.T, metric string, want []string, r *fillup.Result, of func(fillup.Point) float64) {
	t.Helper()
	if len(want) != 13 || len(r.Points) != 131 {
		t.Fatalf("%d published figures, %d points", len(want), len(r.Points))
	}
	var got, theirs []string
	for i, w := range want {
		got = append(got, fmt.Sprintf("%.2f", of(r.Points[10*(i+1)])))
		theirs = append(theirs, fmt.Sprintf("%.2f", parse(t, w)))
	}
	ours, published := strings.Join(got, " "), strings.Join(theirs, " ")
	t.Logf("%s\n  ours      %s\n  published %s", metric, ours, published)
	if ours != published {
		t.Errorf("%s differs", metric)
	}
}

// TestPublishedRandom: the study drew from a generator that many shared, so single draws cannot be repeated. What must
// hold is the mean over the seeds, within 0.6 percent of the GPUs, and that Random is worst of the six.
func TestPublishedRandom(t *testing.T) {
	const tolerance = 0.6
	if testing.Short() {
		t.Skip("-short: the mean needs 20 runs")
	}
	want, c := readPublished(t), openbCluster(t)
	pods := openbPods(t, workloads[0])
	for _, curve := range []struct {
		metric string
		of     func(fillup.Point) float64
	}{{"allo", allocation}, {"frag", fragmentation}} {
		var ours, theirs, next [13]float64
		for seed := firstSeed; seed <= lastSeed; seed++ {
			r, dot := run(t, c, pods, "random", seed), run(t, c, pods, "dotprod", seed)
			for i, figure := range want[fmt.Sprintf("%s %s 01-Random %d", curve.metric, workloads[0], seed)] {
				ours[i] += curve.of(r.Points[10*(i+1)]) / 10
				next[i] += curve.of(dot.Points[10*(i+1)]) / 10
				theirs[i] += parse(t, figure) / 10
			}
		}
		t.Logf("%s, mean of 10 seeds\n  ours      %.2f\n  published %.2f", curve.metric, ours, theirs)
		for i := range ours {
			if math.Abs(ours[i]-theirs[i]) > tolerance {
				t.Errorf("%s at %d %%: %.2f, published %.2f", curve.metric, 10*(i+1), ours[i], theirs[i])
			}
		}
		// DotProd is next to last of the published six at the end.
		if worse := ours[12] < next[12]; worse != (curve.metric == "allo") {
			t.Errorf("%s: random %.2f is not worse than dotprod %.2f", curve.metric, ours[12], next[12])
		}
	}
}

func parse(t testing.TB, figure string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(figure, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func BenchmarkFillup(b *testing.B) {
	c, pods := openbCluster(b), openbPods(b, workloads[0])
	for _, name := range policy.ScoredNames() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			arrived := 0
			for b.Loop() {
				r := run(b, c, pods, name, firstSeed)
				arrived += r.Placed + r.Failed
			}
			b.ReportMetric(float64(arrived)/b.Elapsed().Seconds(), "pods/s")
		})
	}
}
