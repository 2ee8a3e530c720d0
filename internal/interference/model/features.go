package model

import (
	"math"

	"weft.dev/weft/internal/interference"
)

// Query asks for the rate of Self beside Partner on a GPU model. Source says whose campaign the figures are from;
// empty for none.
type Query struct {
	Source, GPU   string
	Self, Partner interference.Config
	MemoryMiB     float64 // of both together, where that alone is known; 0 unknown
	Doubted       bool    // a figure of theirs was ignored because it cannot be: the bound is one basis weaker
}

// Owner says whose feature drove a prediction.
type Owner int

// The owners of features.
const (
	OwnSelf Owner = iota
	OwnPartner
	OwnPair
	OwnGPU
)

// Feature is one entry of a feature vector: its stable name in model files, and what people call it.
type Feature struct {
	Name  string
	Owner Owner
	Label string
}

// sideFeatures are what a model sees of each job alone. The plain rate is left out: what a step is differs from
// model to model, and trees would learn each model's own; the pair terms compare rates.
var sideFeatures = []struct {
	name, label string
	at          int
}{
	{"batch", "batch size", sideBatch},
	{"samples", "samples per second", sideSamples},
	{"scaling", "batch scaling", sideScaling},
	{"headroom", "batch scaling", sideHeadroom},
	{"speedup1", "speed-up on faster GPUs", sideSpeedup1},
	{"speedup2", "speed-up on faster GPUs", sideSpeedup2},
	{"speedup3", "speed-up on faster GPUs", sideSpeedup3},
	{"gpu_util", "utilisation", sideGPUUtil},
	{"mem_util", "memory bandwidth", sideMemUtil},
	{"memory", "memory", sideMemory},
}

// pairFeatures compare the two. Sums are of what adds up on the GPU; over is what exceeds a whole GPU.
var pairFeatures = []struct {
	name, label string
	of          func(a, b []float64) float64
}{
	{"rate_ratio", "step-rate ratio", func(a, b []float64) float64 { return a[sideRate] - b[sideRate] }},
	{"samples_ratio", "samples-per-second ratio", func(a, b []float64) float64 { return a[sideSamples] - b[sideSamples] }},
	{"samples_sum", "samples per second of both", func(a, b []float64) float64 { return a[sideSamples] + b[sideSamples] }},
	{"scaling_sum", "batch scaling of both", func(a, b []float64) float64 { return a[sideScaling] + b[sideScaling] }},
	{"scaling_product", "batch scaling of both", func(a, b []float64) float64 { return a[sideScaling] * b[sideScaling] }},
	{"scaling_over", "batch scaling of both", func(a, b []float64) float64 { return over(1-a[sideScaling], 1-b[sideScaling]) }},
	{"headroom_sum", "batch scaling of both", func(a, b []float64) float64 { return a[sideHeadroom] + b[sideHeadroom] }},
	{"speedup1_sum", "speed-up on faster GPUs of both", func(a, b []float64) float64 { return a[sideSpeedup1] + b[sideSpeedup1] }},
	{"speedup2_sum", "speed-up on faster GPUs of both", func(a, b []float64) float64 { return a[sideSpeedup2] + b[sideSpeedup2] }},
	{"gpu_util_sum", "utilisation of both", func(a, b []float64) float64 { return a[sideGPUUtil] + b[sideGPUUtil] }},
	{"gpu_util_product", "utilisation of both", func(a, b []float64) float64 { return a[sideGPUUtil] * b[sideGPUUtil] }},
	{"gpu_util_over", "utilisation of both", func(a, b []float64) float64 { return over(a[sideGPUUtil], b[sideGPUUtil]) }},
	{"mem_util_sum", "memory bandwidth of both", func(a, b []float64) float64 { return a[sideMemUtil] + b[sideMemUtil] }},
	{"mem_util_product", "memory bandwidth of both", func(a, b []float64) float64 { return a[sideMemUtil] * b[sideMemUtil] }},
	{"mem_util_over", "memory bandwidth of both", func(a, b []float64) float64 { return over(a[sideMemUtil], b[sideMemUtil]) }},
}

// over is how far two shares together exceed a whole. NaN stays NaN.
func over(a, b float64) float64 { return max(0, a+b-1) }

// Layout is the order of features in a vector.
type Layout struct {
	References []string `json:"references"` // GPU models that speeds are compared on
	GPUs       []string `json:"gpus"`       // GPU models with a column of their own
}

// Features describes the columns of a vector.
func (l *Layout) Features() []Feature {
	var list []Feature
	for _, f := range sideFeatures {
		list = append(list, Feature{"self_" + f.name, OwnSelf, f.label}, Feature{"partner_" + f.name, OwnPartner, f.label})
	}
	for _, f := range pairFeatures {
		list = append(list, Feature{"pair_" + f.name, OwnPair, f.label})
	}
	list = append(list, Feature{"pair_memory", OwnPair, "memory of both"}, Feature{"pair_twin", OwnPair, "same model"})
	for _, g := range l.GPUs {
		list = append(list, Feature{"gpu_" + g, OwnGPU, "GPU model"})
	}
	return list
}

// Vector is the feature vector of a query, from what the book knows. NaN is unknown.
func (l *Layout) Vector(b *Book, q Query) []float64 {
	self := b.side(q.Source, q.GPU, q.Self, l.References)
	partner := b.side(q.Source, q.GPU, q.Partner, l.References)
	x := make([]float64, 0, 2*len(sideFeatures)+len(pairFeatures)+2+len(l.GPUs))
	for _, f := range sideFeatures {
		x = append(x, self[f.at], partner[f.at])
	}
	for _, f := range pairFeatures {
		x = append(x, f.of(self, partner))
	}
	memory := log2(math.Exp2(self[sideMemory]) + math.Exp2(partner[sideMemory]))
	if math.IsNaN(memory) {
		memory = log2(q.MemoryMiB)
	}
	x = append(x, memory, indicator(q.Self.Model == q.Partner.Model))
	for _, g := range l.GPUs {
		x = append(x, indicator(g == q.GPU))
	}
	return x
}

func indicator(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
