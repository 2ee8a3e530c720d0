package muri

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"weft.dev/weft/internal/trace"
)

// overheadGPUs are the gang sizes that overheadSeconds has a column for.
var overheadGPUs = [...]int{1, 2, 4, 8, 16, 32}

// overheadSeconds is the time a job loses to a restart, by model and gang size (overheadGPUs), as measured by
// Muri's authors and written in their simulator (Rivendile/Muri, simulator/jobs.py).
var overheadSeconds = map[string][len(overheadGPUs)]float64{
	"vgg16":              {7, 7, 8, 9, 9, 10},
	"vgg19":              {7, 7, 8, 9, 10, 10},
	"resnet18":           {4, 5, 5, 7, 7, 7},
	"shufflenet_v2_x1_0": {4, 4, 5, 5, 7, 8},
	"bert":               {10, 10, 10, 10, 10, 10},
	"gpt2":               {10, 10, 10, 10, 10, 10},
	"a2c":                {38, 39, 39, 46, 46, 46},
	"dqn":                {5, 5, 6, 6, 8, 8},
}

// overhead is the restart time of a job in seconds. A gang size between the measured ones takes that of the next
// larger, one above all that of the largest: the authors' traces have neither. An unmeasured model is an error.
func overhead(j trace.MuriJob) (float64, error) {
	row, known := overheadSeconds[j.Model]
	if !known {
		models := slices.Sorted(maps.Keys(overheadSeconds))
		return 0, fmt.Errorf("job %q on line %d: no restart overhead was measured for model %q, only for %s",
			j.ID, j.Line, j.Model, strings.Join(models, ", "))
	}
	column, _ := slices.BinarySearch(overheadGPUs[:], j.GPUs)
	return row[min(column, len(row)-1)], nil
}
