package fillup_test

import (
	"encoding/csv"
	"io"
	"os"
	"testing"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/shared"
	"weft.dev/weft/internal/trace"
)

func open(t testing.TB, name string) *os.File {
	t.Helper()
	f, err := os.Open(shared.Data(t, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// rows is a table as one map per row, from column to cell.
func rows(t testing.TB, name string) []map[string]string {
	t.Helper()
	all, err := csv.NewReader(open(t, name)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	out := make([]map[string]string, len(all)-1)
	for i, r := range all[1:] {
		out[i] = map[string]string{}
		for k, v := range r {
			out[i][all[0][k]] = v
		}
	}
	return out
}

func read[T any](t testing.TB, name string, with func(string, io.Reader) (T, error)) T {
	t.Helper()
	v, err := with(name, open(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// openbCluster is the GPU nodes of the study: 6,212 GPUs.
func openbCluster(t testing.TB) cluster.Cluster {
	t.Helper()
	return read(t, "openb/openb_node_list_gpu_node.csv", trace.ReadOpenbNodes)
}

func openbPods(t testing.TB, workload string) []cluster.Job {
	t.Helper()
	return read(t, "openb/"+workload+".csv", trace.ReadOpenbPods)
}
