package emugpu

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"weft.dev/weft/internal/emugpu/model"
	"weft.dev/weft/internal/unit"
)

// Options say which GPUs to emulate.
type Options struct {
	Socket   string  // path of the control socket; "" makes one in a new temporary folder
	GPUs     []GPU   // 1 to 16
	Seed     uint64  // of UUIDs
	Clock    Clock   // default real
	Scale    float64 // model time per real time, 0.001 to 10,000; 0 is 1; real clock only
	Slice    time.Duration
	Switch   time.Duration // of contexts
	FIFO     bool
	Slowdown map[model.Pair]float64 // by the names of programs
}

// Bounds and defaults of options.
const (
	MaxGPUs   = maxGPUs
	MaxMemory = 64 * unit.TiB
	MinScale  = 0.001
	MaxScale  = 10_000
	MinSlice  = time.Microsecond
	MaxSlice  = time.Minute

	DefaultSlice = 2 * time.Millisecond
)

// GPU describes one device.
type GPU struct {
	Name         string     // as the driver says it
	Total        unit.Bytes // as nvidia-smi shows it
	Usable       unit.Bytes // as cuDeviceTotalMem says
	Context      unit.Bytes // what a context takes
	Major, Minor int        // compute capability
	Processors   int        // SMs
	CopyRate     unit.Bytes // per second, each direction
	MemoryRate   unit.Bytes // per second, within the device
}

// models are the GPUs known by name: published figures of the vendor, rounded; the copy rate is what PCIe gives in
// practice (12 GB/s for generation 3, 24 for 4, 50 for 5).
var models = []struct {
	key string
	gpu GPU
}{
	{"t4", gpu("Tesla T4", 16*unit.GiB, 15*unit.GiB, 75, 40, 12, 320)},
	{"p100", gpu("Tesla P100-PCIE-16GB", 16*unit.GiB, 16276*unit.MiB, 60, 56, 12, 732)},
	{"v100", gpu("Tesla V100-PCIE-16GB", 16*unit.GiB, 16151*unit.MiB, 70, 80, 12, 900)},
	{"a10", gpu("NVIDIA A10", 24*unit.GiB, 23040*unit.MiB, 86, 72, 24, 600)},
	{"l4", gpu("NVIDIA L4", 24*unit.GiB, 22570*unit.MiB, 89, 58, 24, 300)},
	{"a100", gpu("NVIDIA A100 80GB PCIe", 80*unit.GiB, 81038*unit.MiB, 80, 108, 24, 1935)},
	{"h100", gpu("NVIDIA H100 80GB HBM3", 80*unit.GiB, 81090*unit.MiB, 90, 132, 50, 3350)},
	{"h200", gpu("NVIDIA H200", 141*unit.GiB, 143155*unit.MiB, 90, 132, 50, 4800)},
}

func gpu(name string, total, usable unit.Bytes, capability, processors, copyGB, memoryGB int) GPU {
	const gb = 1_000_000_000
	return GPU{Name: name, Total: total, Usable: min(usable, total), Context: 256 * unit.MiB, Major: capability / 10, Minor: capability % 10,
		Processors: processors, CopyRate: unit.Bytes(copyGB) * gb, MemoryRate: unit.Bytes(memoryGB) * gb}
}

// Models are the names of the GPUs that are known.
func Models() []string {
	names := make([]string, len(models))
	for i, m := range models {
		names[i] = m.key
	}
	return names
}

// Model is the GPU of a name.
func Model(name string) (GPU, bool) {
	for _, m := range models {
		if strings.EqualFold(m.key, name) {
			return m.gpu, true
		}
	}
	return GPU{}, false
}

// complete checks options and fills in what is left to be chosen.
func (o *Options) complete() error {
	if o.Scale == 0 {
		o.Scale = 1
	}
	if o.Slice == 0 {
		o.Slice = DefaultSlice
	}
	switch {
	case len(o.GPUs) < 1 || len(o.GPUs) > maxGPUs:
		return fmt.Errorf("%d emulated GPUs are outside [1, %d]", len(o.GPUs), maxGPUs)
	case !(o.Scale >= MinScale && o.Scale <= MaxScale):
		return fmt.Errorf("scale %v is outside [0.001, 10000]", o.Scale)
	case o.Clock == Virtual && o.Scale != 1:
		return fmt.Errorf("scale %v: a virtual clock has none", o.Scale)
	case o.Slice < MinSlice || o.Slice > MaxSlice:
		return fmt.Errorf("slice %v is outside [1us, 1m]", o.Slice)
	case o.Switch < 0 || o.Switch > MaxSlice:
		return fmt.Errorf("switch %v is outside [0, 1m]", o.Switch)
	case len(o.Socket) > 100:
		return fmt.Errorf("socket path of %d bytes: a unix socket has room for 100; use a shorter folder than %s", len(o.Socket), filepath.Dir(o.Socket))
	}
	for i, g := range o.GPUs {
		if err := g.check(); err != nil {
			return fmt.Errorf("gpu%d: %w", i, err)
		}
	}
	return checkSlowdowns(o.Slowdown)
}

func (g GPU) check() error {
	switch {
	case g.Name == "" || len(g.Name) > 95:
		return fmt.Errorf("name %q: 1 to 95 bytes", g.Name)
	case g.Total < unit.MiB || g.Total > MaxMemory:
		return fmt.Errorf("memory %v is outside [1 MiB, 64 TiB]", g.Total)
	case g.Usable < unit.MiB || g.Usable > g.Total:
		return fmt.Errorf("usable memory %v is outside [1 MiB, %v]", g.Usable, g.Total)
	case g.Context < 0:
		return fmt.Errorf("context memory %v is negative", g.Context)
	case g.Processors < 1 || g.CopyRate < 1 || g.MemoryRate < 1:
		return fmt.Errorf("processors and rates have to be above 0")
	}
	return nil
}

func checkSlowdowns(pairs map[model.Pair]float64) error {
	var faults []string
	for pair, f := range pairs {
		if !(f >= 1 && f <= model.MaxSlowdown) || math.IsNaN(f) {
			faults = append(faults, fmt.Sprintf("interference %s:%s=%v is outside [1, %v]", pair.Of, pair.Beside, f, model.MaxSlowdown))
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("%s", slices.Min(faults))
}
