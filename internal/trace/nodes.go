package trace

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/unit"
)

// clusterForm is one recognised kind of cluster file.
type clusterForm struct {
	required, optional []string
	add                func(c *cluster.Cluster, t *Table, gpusPerNode int)
}

// clusterForms, told apart by their first columns. The first is the project's own.
var clusterForms = []clusterForm{
	{[]string{"node", "gpus"}, []string{"gpu_model", "gpu_memory_mib", "cpu_milli", "memory_mib", "vc", "count"}, ownNodes},
	{[]string{"sn", "cpu_milli", "memory_mib", "gpu", "model"}, nil, openbNode},
	{[]string{"vc", "node num"}, nil, phillyNodes},
	{[]string{"num_switch", "num_node_p_switch", "num_gpu_p_node"}, []string{"num_cpu_p_node", "mem_p_node"}, tiresiasNodes},
}

const (
	maxGPUsPerNode = 1024
	maxNodes       = 1_000_000

	// StandardGPUsPerNode is the node of the Philly study: eight GPUs.
	StandardGPUsPerNode = 8
)

// ReadCluster reads a cluster, nodes in file order, in one of four forms told by the header: the project's own
// node,gpus[,gpu_model,gpu_memory_mib,cpu_milli,memory_mib,vc,count], where count repeats a node; openb's node list;
// Philly's node count per virtual cluster, each with gpusPerNode GPUs (0 means StandardGPUsPerNode); and a cluster
// file of the Tiresias simulator. A cluster without a GPU is an error.
func ReadCluster(file string, r io.Reader, gpusPerNode int) (cluster.Cluster, error) {
	if gpusPerNode <= 0 {
		gpusPerNode = StandardGPUsPerNode
	}
	in, err := open(file, r)
	if err != nil {
		return cluster.Cluster{}, err
	}
	t, err := openTable(file, newCSVRows(in, 0), clusterForms[0].required)
	if err != nil {
		return cluster.Cluster{}, err
	}
	form := clusterForms[0]
	for _, f := range clusterForms {
		if slices.Contains(t.header, f.required[0]) && slices.Contains(t.header, f.required[1]) {
			form = f
			break
		}
	}
	if err := t.check(Columns{Required: form.required, Optional: form.optional}); err != nil {
		return cluster.Cluster{}, err
	}
	var c cluster.Cluster
	for t.Next() {
		if cellsFilled(t, form.filled()) {
			form.add(&c, t, gpusPerNode)
		}
	}
	if err := t.Err(); err != nil {
		return cluster.Cluster{}, err
	}
	if err := checkNodes(file, c); err != nil {
		return cluster.Cluster{}, err
	}
	return c, nil
}

// filled are the required columns whose cells may not be empty: openb leaves the model of a node without GPUs empty.
func (f clusterForm) filled() []string {
	return slices.DeleteFunc(slices.Clone(f.required), func(c string) bool { return c == "model" })
}

func checkNodes(file string, c cluster.Cluster) error {
	if c.GPUs() == 0 {
		return Errors{{Code: "no_gpu", File: file, Message: "the cluster has no GPU", Fix: "give nodes with GPUs"}}
	}
	seen := make(map[string]bool, len(c.Nodes))
	for _, n := range c.Nodes {
		if seen[n.Name] {
			return Errors{{Code: "double_id", File: file, Column: "node", Value: clean(n.Name),
				Message: fmt.Sprintf("node %s stands twice", clean(n.Name)), Fix: "give every node a name of its own, or use count"}}
		}
		seen[n.Name] = true
	}
	return nil
}

func ownNodes(c *cluster.Cluster, t *Table, _ int) {
	n := cluster.Node{
		Name:      strings.Clone(t.Text("node")),
		VC:        strings.Clone(t.Text("vc")),
		GPUModel:  strings.Clone(t.Text("gpu_model")),
		GPUs:      t.Int("gpus", 0, maxGPUsPerNode, 0),
		GPUMemory: t.mebibytes("gpu_memory_mib"),
		CPU:       unit.MilliCPU(t.Int("cpu_milli", 0, maxMilliCPU, 0)),
		Memory:    unit.FromMiB(t.Float("memory_mib", 0, maxHostMemoryMiB, 0)),
	}
	count := t.Int("count", 1, maxNodes, 1)
	if t.Text("count") == "" {
		addNode(c, t, n)
		return
	}
	addNodes(c, t, n, n.Name, count)
}

func openbNode(c *cluster.Cluster, t *Table, _ int) {
	addNode(c, t, cluster.Node{
		Name:     strings.Clone(t.Text("sn")),
		GPUModel: strings.Clone(t.Text("model")),
		GPUs:     t.Int("gpu", 0, maxGPUsPerNode, 0),
		CPU:      unit.MilliCPU(t.Int("cpu_milli", 0, maxMilliCPU, 0)),
		Memory:   unit.FromMiB(t.Float("memory_mib", 0, maxHostMemoryMiB, 0)),
	})
}

func phillyNodes(c *cluster.Cluster, t *Table, gpusPerNode int) {
	vc := strings.Clone(t.Text("vc"))
	addNodes(c, t, cluster.Node{VC: vc, GPUs: gpusPerNode}, vc, t.Int("node num", 1, maxNodes, 1))
}

func tiresiasNodes(c *cluster.Cluster, t *Table, _ int) {
	n := cluster.Node{
		GPUs:   t.Int("num_gpu_p_node", 0, maxGPUsPerNode, 0),
		CPU:    unit.MilliCPU(t.Int("num_cpu_p_node", 0, maxMilliCPU/1000, 0)) * 1000,
		Memory: unit.FromMiB(t.Float("mem_p_node", 0, maxHostMemoryMiB/1024, 0) * 1024),
	}
	for s := range t.Int("num_switch", 1, maxNodes, 1) {
		if !addNodes(c, t, n, "switch-"+strconv.Itoa(s), t.Int("num_node_p_switch", 1, maxNodes, 1)) {
			return
		}
	}
}

// addNodes adds count copies of a node, named base-0, base-1, ...
func addNodes(c *cluster.Cluster, t *Table, n cluster.Node, base string, count int) bool {
	for i := range count {
		n.Name = base + "-" + strconv.Itoa(i)
		if !addNode(c, t, n) {
			return false
		}
	}
	return true
}

func addNode(c *cluster.Cluster, t *Table, n cluster.Node) bool {
	if len(c.Nodes) >= maxNodes {
		t.fault(&Error{Code: "out_of_range", Line: t.line, Message: fmt.Sprintf("more than %d nodes", maxNodes)})
		return false
	}
	c.Nodes = append(c.Nodes, n)
	return true
}
