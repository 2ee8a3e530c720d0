package profile

import (
	"maps"
	"slices"
)

// Shape is how a worker's ephemeral memory is spread over an iteration, without units: entry i is the share of time
// it holds more than i/len and at most (i+1)/len of its maximum. Entries sum to 1.
type Shape []float64

// shapes are time shares of twelve equal levels, computed from allocator events that others published:
//   - resnet50-w0, resnet50-w4: pytorch/kineto samples (BSD-3-Clause), ResNet-50 on one GPU with 0 and 4 data-loading
//     workers, six iterations each;
//   - v100-training, training-categorised: facebookresearch/HolisticTraceAnalysis test data (MIT), five iterations
//     each, the former on a V100.
//
// Rounding leaves each sum within 0.0002 of 1; NamedShape scales it to 1.
var shapes = map[string]Shape{
	"flat":        nil,
	"resnet50-w0": {.4837, .0240, .0144, .0239, .0180, .0173, .0328, .0451, .0391, .0714, .0769, .1535},
	"resnet50-w4": {.2486, .0289, .0177, .0348, .0267, .0300, .0439, .0635, .0542, .1019, .1208, .2291},
	"v100-training": {
		.1322, .0425, .0381, .0557, .0214, .0314, .0185, .0759, .0798, .0720, .0446, .3878,
	},
	"training-categorised": {
		.0376, .0278, .0312, .0378, .0498, .0440, .0502, .0893, .0989, .1392, .1679, .2263,
	},
}

// NamedShape is the measured shape of that name, scaled to sum to 1; the empty name is flat.
func NamedShape(name string) (Shape, bool) {
	if name == "" {
		return nil, true
	}
	shape, ok := shapes[name]
	sum := 0.0
	for _, f := range shape {
		sum += f
	}
	scaled := slices.Clone(shape)
	for i := range scaled {
		scaled[i] /= sum
	}
	return scaled, ok
}

// ShapeNames lists the measured shapes in alphabetical order.
func ShapeNames() []string { return slices.Sorted(maps.Keys(shapes)) }
