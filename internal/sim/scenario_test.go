package sim_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/policy"
	"weft.dev/weft/internal/sim"
	"weft.dev/weft/internal/unit"
)

// Each scenario is worked out by hand. A line of jobs is "submit duration GPUs [share in 1/1000]", in seconds; a line
// of want is "start end", then "pN" for N preemptions and "mN" for N migrations, or the reason why the job never ran.
var scenarios = []struct {
	name    string
	nodes   int
	gpus    int
	order   policy.Order
	restart time.Duration
	plain   bool // hide what the placer can do besides placing
	jobs    string
	want    string
}{
	{name: "fifo blocks at the head", nodes: 1, gpus: 8, order: policy.FIFO(),
		jobs: "0 10 6 | 1 10 8 | 2 1 2",
		want: "0 10 | 10 20 | 20 21"},
	{name: "sjf: a shorter job becomes the head", nodes: 1, gpus: 8, order: policy.SJF(),
		jobs: "0 10 6 | 1 10 8 | 2 1 2 | 3 11 2",
		want: "0 10 | 10 20 | 2 3 | 20 31"},
	{name: "ends come before submissions, and equal keys keep their order", nodes: 1, gpus: 1, order: policy.SJF(),
		jobs: "0 5 1 | 5 5 1 | 5 5 1 | 5 0 1",
		want: "0 5 | 5 10 | 10 15 | 5 5"},
	{name: "12 GPUs: one whole node and 4 on the next", nodes: 2, gpus: 8, order: policy.FIFO(),
		jobs: "0 10 4 | 0 10 12 | 1 1 1",
		want: "0 10 | 0 10 | 10 11"},
	{name: "12 GPUs wait where the next node has 3", nodes: 2, gpus: 8, order: policy.FIFO(),
		jobs: "0 10 5 | 0 10 12",
		want: "0 10 | 10 20"},
	{name: "16 GPUs need two whole nodes", nodes: 3, gpus: 8, order: policy.FIFO(),
		jobs: "0 10 1 | 0 5 8 | 1 1 16",
		want: "0 10 | 0 5 | 5 6"},
	{name: "two halves share a GPU, a third waits", nodes: 1, gpus: 1, order: policy.FIFO(),
		jobs: "0 10 1 500 | 0 4 1 500 | 1 1 1 500",
		want: "0 10 | 0 4 | 4 5"},
	{name: "a gang too large does not block the rest", nodes: 1, gpus: 8, order: policy.FIFO(),
		jobs: "0 10 12 | 0 1 8 | 0 1 0",
		want: "gang of 12, cluster has 8 | 0 1 | asks for no GPU"},
	{name: "srtf preempts and keeps the work done", nodes: 1, gpus: 1, order: policy.SRTF(),
		jobs: "0 10 1 | 2 3 1",
		want: "0 13 p1 | 2 5"},
	{name: "a restart costs", nodes: 1, gpus: 1, order: policy.SRTF(), restart: 2 * time.Second,
		jobs: "0 10 1 | 2 3 1",
		want: "0 15 p1 | 2 5"},
	{name: "a pause that is cut short starts anew", nodes: 1, gpus: 1, order: policy.SRTF(), restart: 2 * time.Second,
		jobs: "0 10 1 | 2 3 1 | 6 1 1",
		want: "0 17 p2 | 2 5 | 6 7"},
	{name: "srtf passes over what does not fit", nodes: 1, gpus: 4, order: policy.SRTF(),
		jobs: "0 10 3 | 1 20 4 | 2 20 1",
		want: "0 10 | 22 42 | 2 22"},
	{name: "a displaced job moves where there is room", nodes: 2, gpus: 2, order: policy.SRTF(),
		jobs: "0 5 1 | 0 10 2 | 0 100 1 | 6 6 1 | 11 200 1 | 13 1 2",
		want: "0 5 | 0 10 | 0 100 | 6 12 | 11 211 m1 | 13 14"},
	{name: "the gang takes the first node, its first job moves, the others there and then wait", nodes: 2, gpus: 2,
		order: policy.SRTF(), jobs: "0 20 1 | 0 30 1 | 1 10 1 | 1 40 1 | 2 1 2",
		want: "0 20 m1 | 0 31 p1 | 1 11 | 1 42 p1 | 2 3"},
	{name: "a placer that can only place puts the first one back where it was", nodes: 2, gpus: 2, plain: true,
		order: policy.SRTF(), jobs: "0 20 1 | 0 30 1 | 1 10 1 | 1 40 1 | 2 1 2",
		want: "0 20 m1 | 0 31 p1 | 1 11 | 1 42 p1 | 2 3"},
	{name: "srsf: four GPUs for 3 s are more than one for 10", nodes: 1, gpus: 4, order: policy.SRSF(),
		jobs: "0 3 4 | 0 10 1",
		want: "10 13 | 0 10"},
	{name: "tiresias: the limit is in GPU time", nodes: 1, gpus: 2, order: policy.Tiresias(),
		jobs: "0 5000 2 | 100 100 2",
		want: "0 5100 p1 | 1625 1725"},
	{name: "tiresias: three queues, first in first out in each", nodes: 1, gpus: 1, order: policy.Tiresias(),
		jobs: "0 10000 1 | 4000 4000 1",
		want: "0 14000 p2 | 4000 11200 p1"},
	{name: "tiresias: nobody waiting, nobody disturbed", nodes: 1, gpus: 1, order: policy.Tiresias(),
		jobs: "0 100000 1",
		want: "0 100000"},
}

func TestScenarios(t *testing.T) {
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			c, jobs := cluster.Uniform(s.nodes, s.gpus), parseJobs(t, s.jobs)
			placer := consolidated(c, jobs)
			if s.plain {
				placer = plainPlacer{placer}
			}
			r := mustRun(t, sim.Config{Cluster: c, Jobs: jobs, Order: s.order, RestartCost: s.restart, Placer: placer})
			if diff := cmp.Diff(s.want, describe(r)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func parseJobs(t *testing.T, text string) []cluster.Job {
	t.Helper()
	var jobs []cluster.Job
	for i, line := range strings.Split(text, "|") {
		v := []int{0, 0, 0, int(unit.WholeGPU)}
		for k, field := range strings.Fields(line) {
			n, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			v[k] = n
		}
		jobs = append(jobs, cluster.Job{ID: strconv.Itoa(i), Submit: unit.Seconds(float64(v[0])),
			Duration: time.Duration(v[1]) * time.Second, Workers: v[2], Share: unit.MilliGPU(v[3])})
	}
	return jobs
}

func describe(r *sim.Result) string {
	lines := make([]string, len(r.Outcomes))
	for i, o := range r.Outcomes {
		lines[i] = fmt.Sprintf("%g %g", o.Start.Seconds(), o.End.Seconds())
		if o.Preemptions > 0 {
			lines[i] += fmt.Sprintf(" p%d", o.Preemptions)
		}
		if o.Migrations > 0 {
			lines[i] += fmt.Sprintf(" m%d", o.Migrations)
		}
		if !o.Ended {
			lines[i] = "unfinished"
		}
	}
	for _, x := range r.Refused {
		lines[x.Job] = x.Reason
	}
	return strings.Join(lines, " | ")
}

func mustRun(t interface {
	Helper()
	Fatal(...any)
}, cfg sim.Config) *sim.Result {
	t.Helper()
	r, err := sim.Run(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
