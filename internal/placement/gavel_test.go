package placement

import (
	"context"
	"encoding/csv"
	"fmt"
	"os"
	"strconv"
	"testing"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/interference"
	"weft.dev/weft/internal/shared"
)

// gavel reads the measured pairs of one GPU model of the gavel_oracle campaign.
func gavel(t testing.TB, gpu string) *interference.Table {
	t.Helper()
	f, err := os.Open(shared.Data(t, "interference/pairs.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]int{}
	for i, c := range rows[0] {
		at[c] = i
	}
	table := interference.NewTable()
	for _, r := range rows[1:] {
		if r[at["source"]] != "gavel_oracle" || r[at["gpu_type"]] != gpu {
			continue
		}
		a, _ := strconv.ParseFloat(r[at["norm_a"]], 64)
		b, _ := strconv.ParseFloat(r[at["norm_b"]], 64)
		table.Add(interference.Config{Model: r[at["job_a"]], Batch: r[at["batch_a"]]},
			interference.Config{Model: r[at["job_b"]], Batch: r[at["batch_b"]]}, a, b)
	}
	return table
}

// copies is n jobs of every configuration, or of those given.
func copies(table *interference.Table, n int, floor float64, only ...interference.Config) []cluster.Job {
	if only == nil {
		for i := range table.Len() {
			only = append(only, table.Config(i))
		}
	}
	var jobs []cluster.Job
	for i, c := range only {
		for m := range n {
			jobs = append(jobs, cluster.Job{ID: fmt.Sprintf("j%03d-%d", i, m), Model: c.Model, Batch: c.Batch,
				Workers: 1, Floor: floor})
		}
	}
	return jobs
}

// light is the stated light mix: the 13 gentlest P100 configurations.
var light = []interference.Config{
	{Model: "A3C"}, {Model: "LM", Batch: "5"}, {Model: "LM", Batch: "10"}, {Model: "LM", Batch: "20"},
	{Model: "Recommendation", Batch: "512"}, {Model: "Recommendation", Batch: "1024"},
	{Model: "Recommendation", Batch: "2048"}, {Model: "Recommendation", Batch: "4096"},
	{Model: "Transformer", Batch: "16"}, {Model: "Transformer", Batch: "32"}, {Model: "Transformer", Batch: "64"},
	{Model: "ResNet-18", Batch: "16"}, {Model: "ResNet-18", Batch: "32"},
}

func TestGreedyExperiment(t *testing.T) {
	table := gavel(t, "p100")
	for _, k := range []int{2, 3, 4} {
		for _, floor := range []float64{0.8, 0.85, 0.9} {
			p := NewProblem(copies(table, 8, floor, light...), table, nil, Options{MaxResidents: k})
			q, _ := Greedy(context.Background(), p)
			t.Logf("light K=%d floor %.2f: %+v", k, floor, p.Figures(q))
			p = NewProblem(copies(table, 8, floor), table, nil, Options{MaxResidents: k})
			q, _ = Greedy(context.Background(), p)
			t.Logf("all   K=%d floor %.2f: %+v", k, floor, p.Figures(q))
			p = NewProblem(copies(table, 8, floor, light...), table, nil, Options{MaxResidents: k})
			q, _ = Heuristic(context.Background(), p)
			t.Logf("HEUR light K=%d floor %.2f: %+v", k, floor, p.Figures(q))
		}
	}
}
