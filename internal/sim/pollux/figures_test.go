package pollux

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"

	"weft.dev/weft/internal/shared"
	"weft.dev/weft/internal/trace"
)

// published are the average completion times of workloads 1 to 8 in seconds.
var published = [...]float64{2473.65, 5144.9625, 3876.25625, 3280.2625, 3501.0125, 3469.69375, 5479.9125, 5079.70625}

func open(t testing.TB, name string) *os.File {
	t.Helper()
	f, err := os.Open(shared.Data(t, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func readProfiles(t testing.TB) *trace.PolluxProfiles {
	t.Helper()
	validation, steps := open(t, "pollux/validation.csv"), open(t, "pollux/step_times.csv")
	statistics, err := trace.ReadPolluxStatistics("validation.csv", validation)
	if err != nil {
		t.Fatal(err)
	}
	times, err := trace.ReadPolluxStepTimes("step_times.csv", steps)
	if err != nil {
		t.Fatal(err)
	}
	return &trace.PolluxProfiles{Statistics: statistics, StepTimes: times}
}

// readWorkload reads one workload of all sets.
func readWorkload(t testing.TB, vc string) []trace.PolluxJob {
	t.Helper()
	all, err := trace.ReadPollux("workloads.csv", open(t, "pollux/workloads.csv"))
	if err != nil {
		t.Fatal(err)
	}
	var jobs []trace.PolluxJob
	for _, j := range all {
		if j.VC() == vc {
			jobs = append(jobs, j)
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
	profiles := readProfiles(t)
	for i, want := range published {
		t.Run(fmt.Sprintf("workload%d/tiresias", i+1), func(t *testing.T) {
			jobs := readWorkload(t, strconv.Itoa(i+1))
			r, err := Run(context.Background(), jobs, profiles, DefaultNodes, DefaultGPUsPerNode)
			if err != nil {
				t.Fatal(err)
			}
			ours := mean(r.JCTs)
			t.Logf("average JCT %v s, published %v s; %d jobs, %d rounds, %d preemptions",
				ours, want, len(r.Outcomes), r.Events, r.Preemptions)
			if r.Estimated != 0 {
				t.Errorf("%d step times are estimates of weft's own", r.Estimated)
			}
			if ours != want || len(r.Outcomes) != len(jobs) {
				t.Errorf("average JCT %v s of %d jobs, published %v s of %d", ours, len(r.Outcomes), want, len(jobs))
			}
		})
	}
}
