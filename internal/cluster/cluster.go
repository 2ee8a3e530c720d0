// Package cluster describes what jobs run on and what runs there: nodes and GPUs, jobs and their workers, an
// immutable Snapshot of who resides where, and an Overlay to try changes on, with checkpoint and rollback.
package cluster

import "weft.dev/weft/internal/unit"

// Node is one machine. Zero CPU or Memory means "not a limit".
type Node struct {
	Name      string
	VC        string // virtual cluster it belongs to; "" for one shared pool
	GPUModel  string
	GPUs      int
	GPUMemory unit.Bytes // usable memory of each GPU; 0 means "not a limit"
	CPU       unit.MilliCPU
	Memory    unit.Bytes
}

// Cluster is the machines a trace is replayed on, in a fixed order: every "lowest index" rule means this order.
type Cluster struct {
	Nodes []Node
}

// Uniform is a cluster of n equal nodes with the given GPUs each.
func Uniform(n, gpusPerNode int) Cluster {
	c := Cluster{Nodes: make([]Node, n)}
	for i := range c.Nodes {
		c.Nodes[i] = Node{GPUs: gpusPerNode}
	}
	return c
}

// GPUs is the number of GPUs in the cluster.
func (c Cluster) GPUs() int {
	total := 0
	for _, n := range c.Nodes {
		total += n.GPUs
	}
	return total
}

// Part is the nodes of one virtual cluster, in order.
func (c Cluster) Part(vc string) Cluster {
	var part Cluster
	for _, n := range c.Nodes {
		if n.VC == vc {
			part.Nodes = append(part.Nodes, n)
		}
	}
	return part
}
