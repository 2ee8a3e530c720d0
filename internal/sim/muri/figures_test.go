package muri

import (
	"context"
	"fmt"
	"os"
	"testing"

	"weft.dev/weft/internal/shared"
	"weft.dev/weft/internal/trace"
)

// published are the average completion times in seconds of traces 1-4 and, primed, of the same jobs submitted all at
// once, under SRTF, SRSF, Tiresias and AntMan.
var published = []struct {
	trace   int
	primed  bool
	average [4]string
}{
	{1, false, [4]string{"1370603.197651", "980140.569929", "3330371.306772", "5476391.316730"}},
	{1, true, [4]string{"2303543.816474", "1801859.995307", "6921682.793319", "9808250.677218"}},
	{2, false, [4]string{"2665607.375069", "2213949.687363", "7396368.514037", "15647814.621178"}},
	{2, true, [4]string{"4079154.453644", "3384600.436878", "10555502.040026", "18163389.280198"}},
	{3, false, [4]string{"193081.796024", "185021.880164", "347213.248119", "305453.940738"}},
	{3, true, [4]string{"844394.780042", "798057.682913", "2213110.127711", "2674393.018161"}},
	{4, false, [4]string{"581982.900232", "487167.168772", "1319382.936037", "2212462.719299"}},
	{4, true, [4]string{"1430856.445713", "1218501.967745", "2674022.635595", "4676092.801213"}},
}

// readTrace reads a published trace; primed means all jobs are submitted at the start.
func readTrace(t testing.TB, number int, primed bool) []trace.MuriJob {
	t.Helper()
	path := shared.Data(t, fmt.Sprintf("muri/trace%d.csv", number))
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	jobs, err := trace.ReadMuri(path, f)
	if err != nil {
		t.Fatal(err)
	}
	for i := range jobs {
		if primed {
			jobs[i].SubmitMS = 0
		}
	}
	return jobs
}

func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

func TestPublishedAverages(t *testing.T) {
	for _, row := range published {
		name := fmt.Sprintf("trace%d", row.trace)
		if row.primed {
			name += "-primed"
		}
		for i, policy := range Policies() {
			t.Run(name+"/"+string(policy), func(t *testing.T) {
				jobs := readTrace(t, row.trace, row.primed)
				r, err := Run(context.Background(), jobs, policy, DefaultNodes, DefaultGPUsPerNode)
				if err != nil {
					t.Fatal(err)
				}
				if len(r.Outcomes) != len(jobs) {
					t.Fatalf("%d of %d jobs ended", len(r.Outcomes), len(jobs))
				}
				sum := 0.0
				for _, o := range r.Outcomes {
					sum += o.End.Seconds() - jobs[o.Job].SubmitMS/1000
				}
				rounded := sum / float64(len(jobs))
				ours := fmt.Sprintf("%.6f", mean(r.JCTs))
				t.Logf("average JCT %s s, published %s s (from nanoseconds %.6f); %d events, %d preemptions",
					ours, row.average[i], rounded, r.Events, r.Preemptions)
				if ours != row.average[i] {
					t.Errorf("average JCT %s s, published %s s", ours, row.average[i])
				}
			})
		}
	}
}
