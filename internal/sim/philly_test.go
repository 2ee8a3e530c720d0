package sim_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/policy"
	"weft.dev/weft/internal/shared"
	"weft.dev/weft/internal/sim"
	"weft.dev/weft/internal/trace"
	"weft.dev/weft/internal/unit"
)

// phillyOrigin is before the first job of the file.
var phillyOrigin = time.Date(2017, 8, 1, 0, 0, 0, 0, time.UTC)

// phillyJobs reads the jobs of the file that ask for GPUs.
func phillyJobs(t testing.TB) []cluster.Job {
	t.Helper()
	table := openTable(t, "philly/philly_jobs.csv", "timestamp", "duration", "num_gpus", "cluster")
	var jobs []cluster.Job
	for table.Next() {
		at, err := time.Parse(time.DateTime, table.Text("timestamp"))
		if err != nil {
			t.Fatal(err)
		}
		gpus := table.Int("num_gpus", 0, 1<<20, 0)
		if gpus == 0 {
			continue
		}
		jobs = append(jobs, cluster.Job{VC: strings.Clone(table.Text("cluster")), Workers: gpus, Share: unit.WholeGPU,
			Submit:   unit.Time(at.Sub(phillyOrigin)),
			Duration: time.Duration(table.Int("duration", 0, 1<<31, 0)) * time.Second})
	}
	if err := table.Err(); err != nil {
		t.Fatal(err)
	}
	return jobs
}

func phillyCluster(t testing.TB) cluster.Cluster {
	t.Helper()
	table := openTable(t, "philly/philly_vc_nodes.csv", "vc", "node num")
	var c cluster.Cluster
	for table.Next() {
		vc := strings.Clone(table.Text("vc"))
		for range table.Int("node num", 1, 1<<20, 0) {
			c.Nodes = append(c.Nodes, cluster.Node{VC: vc, GPUs: 8})
		}
	}
	if err := table.Err(); err != nil {
		t.Fatal(err)
	}
	return c
}

func openTable(t testing.TB, name string, columns ...string) *trace.Table {
	t.Helper()
	f, err := os.Open(shared.Data(t, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	table, err := trace.NewTable(name, f, trace.Columns{Required: columns})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// publishedJobs are the jobs that the published replays kept: October and November 2017, the listed clusters.
func publishedJobs(t testing.TB, c cluster.Cluster) []cluster.Job {
	t.Helper()
	listed := map[string]bool{}
	for _, n := range c.Nodes {
		listed[n.VC] = true
	}
	from := unit.Time(time.Date(2017, 10, 1, 0, 0, 0, 0, time.UTC).Sub(phillyOrigin))
	to := unit.Time(time.Date(2017, 12, 1, 0, 0, 0, 0, time.UTC).Sub(phillyOrigin))
	var kept []cluster.Job
	for _, j := range phillyJobs(t) {
		if listed[j.VC] && j.Submit >= from && j.Submit < to {
			kept = append(kept, j)
		}
	}
	return kept
}

func consolidated(c cluster.Cluster, jobs []cluster.Job) policy.Placer {
	return policy.NewConsolidated(c, jobs)
}

// TestPhillyPublished reproduces the published average completion and queueing times to the printed digit.
func TestPhillyPublished(t *testing.T) {
	c := phillyCluster(t)
	jobs := publishedJobs(t, c)
	if len(jobs) != 68503 {
		t.Fatalf("the published replay has 68503 jobs, read %d", len(jobs))
	}
	for _, published := range []struct {
		order      policy.Order
		jct, queue string
		vcs        map[string]string
	}{
		{policy.FIFO(), "11585.2918", "104.6110", map[string]string{"ed69ec": "25463.07 4.08", "11cb48": "3110.67 240.98",
			"2869ce": "97749.20 11343.37", "103959": "24783.52 246.21", "6214e9": "5454.62 5.76"}},
		{policy.SJF(), "11543.4271", "62.7462", map[string]string{"11cb48": "3059.07 189.39", "2869ce": "91550.34 5144.50",
			"103959": "24581.68 44.37"}},
	} {
		r, err := sim.RunParts(context.Background(), sim.Config{Cluster: c, Jobs: jobs, Order: published.order}, consolidated)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(published.order.Name+"/all", func(t *testing.T) {
			if got := fmt.Sprintf("%.4f", r.AvgJCT); got != published.jct {
				t.Errorf("average completion time %s s, published %s", got, published.jct)
			}
			if got := fmt.Sprintf("%.4f", r.AvgQueue); got != published.queue {
				t.Errorf("average queueing time %s s, published %s", got, published.queue)
			}
			if r.Jobs != len(jobs) || r.Events != 2*len(jobs) || len(r.Excluded) != 0 {
				t.Errorf("%d jobs, %d events, %v excluded", r.Jobs, r.Events, r.Excluded)
			}
		})
		seen := 0
		for _, vc := range r.VCs {
			want, ok := published.vcs[vc.VC]
			if !ok {
				continue
			}
			seen++
			t.Run(published.order.Name+"/"+vc.VC, func(t *testing.T) {
				if got := fmt.Sprintf("%.2f %.2f", vc.AvgJCT, vc.AvgQueue); got != want {
					t.Errorf("completion and queueing time %s s, published %s", got, want)
				}
			})
		}
		if seen != len(published.vcs) {
			t.Errorf("%s: %d of %d published clusters replayed", published.order.Name, seen, len(published.vcs))
		}
	}
}

// BenchmarkPhilly replays the whole file on one pool.
func BenchmarkPhilly(b *testing.B) {
	jobs := phillyJobs(b)
	for _, size := range []int{550, 60} {
		c := cluster.Uniform(size, 8)
		for _, name := range policy.OrderNames() {
			order, _ := policy.OrderByName(name)
			b.Run(fmt.Sprintf("nodes=%d/%s", size, name), func(b *testing.B) {
				b.ReportAllocs()
				events := 0
				for b.Loop() {
					r, err := sim.Run(context.Background(), sim.Config{Cluster: c, Jobs: jobs, Order: order,
						Placer: policy.NewConsolidated(c, jobs)})
					if err != nil {
						b.Fatal(err)
					}
					events += r.Events
				}
				b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
			})
		}
	}
}
