package demo

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/catalogue"
	"weft.dev/weft/internal/emugpu"
	"weft.dev/weft/internal/unit"
)

// Job is one training job of a group. It behaves as its configuration of the catalogue does alone on the GPU it was
// measured on, in slow motion: share of an iteration with a kernel running, peak memory, and the iteration's length times
// SlowMotion.
type Job struct {
	Name         string // unique in its group
	Model, Batch string
	GPU          string // of the figures
	Class        box.Class
	Floor        float64
	Iterations   int
	Kernels      int           // in an iteration
	Kernel       time.Duration // length of each
	Gap          time.Duration // on the host, after the kernels
	Peak         unit.Bytes    // with all that follows
	Persistent   unit.Bytes    // always held, beside the context
	Context      unit.Bytes    // of the program on the GPU
}

// Iteration is how long an iteration takes alone.
func (j *Job) Iteration() time.Duration { return time.Duration(j.Kernels)*j.Kernel + j.Gap }

// Alone is how long the job takes by itself.
func (j *Job) Alone() time.Duration { return time.Duration(j.Iterations) * j.Iteration() }

// Mix says from which configurations of the catalogue a group is drawn.
type Mix string

// The mixes. A configuration belongs to one by the share of time in which its kernels run when it is alone.
const (
	Typical   Mix = "typical"   // 40 to 80 %
	Saturated Mix = "saturated" // above 80 %
	Light     Mix = "light"     // below 45 %
)

// Mixes are all mixes.
func Mixes() []Mix { return []Mix{Typical, Saturated, Light} }

// within says whether a utilisation belongs to the mix.
func (m Mix) within(utilisation float64) bool {
	switch m {
	case Saturated:
		return utilisation > 0.8
	case Light:
		return utilisation > 0 && utilisation < 0.45
	}
	return utilisation >= 0.4 && utilisation <= 0.8
}

// Range says it in words.
func (m Mix) Range() string {
	return map[Mix]string{Saturated: "more than 80 %", Light: "less than 45 %", Typical: "40 to 80 %"}[m]
}

// What a configuration needs to be drawn: shorter iterations would cost the processors of this machine more than GPUs, and
// longer ones would be too few in a job of some seconds to tell a rate.
const (
	leastIteration = 10 * time.Millisecond
	mostIteration  = 200 * time.Millisecond
)

// SlowMotion is how many times longer than in the catalogue iterations take, kernels and gaps alike: sixteen programs at
// the speed of an A100 would keep the processors of a small machine busier than the GPUs.
const SlowMotion = 5

// kernelLength is about how long a kernel is. Those of models are shorter and more; an iteration has as much kernel time.
const kernelLength = 2 * time.Millisecond

// persistentFraction is how much of a peak a job always holds. No source of the catalogue says; docs/memory.md assumes it, too.
const persistentFraction = 0.1

// Floors of the classes: a guaranteed job asks for what `weft run` asks for by itself, a burstable one for half of a GPU, and
// a besteffort one for next to nothing.
const (
	guaranteedFloor = 0.9
	burstableFloor  = 0.5
	besteffortFloor = 0.05
)

// configurations are the entries of the catalogue that a mix is drawn from, in the catalogue's order.
func configurations(mix Mix, most unit.Bytes) []catalogue.Entry {
	return slices.DeleteFunc(catalogue.All(), func(e catalogue.Entry) bool {
		length := iteration(e)
		return !mix.within(e.GPUUtil) || e.Rate <= 0 || e.Peak == 0 || e.Peak > most || length < leastIteration || length > mostIteration
	})
}

// iteration is how long an iteration of an entry takes alone, by the catalogue.
func iteration(e catalogue.Entry) time.Duration {
	return time.Duration(float64(time.Second) / e.Rate)
}

// Group draws jobs: equal arguments give equal groups. A quarter of them is guaranteed, three eighths are burstable, the
// rest besteffort, in random order. Each takes between least and most when alone, and fits on the GPU.
func Group(mix Mix, jobs int, least, most time.Duration, gpu emugpu.GPU, seed uint64) ([]Job, error) {
	entries := configurations(mix, gpu.Usable)
	if len(entries) == 0 {
		return nil, fmt.Errorf("the catalogue has no configuration of the mix %q that fits into %v", mix, gpu.Usable)
	}
	random := rand.New(rand.NewPCG(seed, 0))
	classes := classes(jobs)
	random.Shuffle(len(classes), func(i, k int) { classes[i], classes[k] = classes[k], classes[i] })
	group := make([]Job, jobs)
	for i := range group {
		e := entries[random.IntN(len(entries))]
		length := least + time.Duration(random.Int64N(int64(most-least)+1))
		group[i] = job(i, e, classes[i], length, gpu.Context)
	}
	return group, nil
}

// job makes a job of a length from a configuration.
func job(number int, e catalogue.Entry, class box.Class, length time.Duration, context unit.Bytes) Job {
	whole := SlowMotion * float64(iteration(e))
	busy := e.GPUUtil * whole
	kernels := max(1, int(math.Round(busy/float64(kernelLength))))
	j := Job{Name: fmt.Sprintf("%02d-%s-%s", number+1, e.Model, e.Batch), Model: e.Model, Batch: e.Batch, GPU: e.GPU, Class: class,
		Iterations: max(1, int(float64(length)/whole)), Kernels: kernels, Kernel: time.Duration(busy / float64(kernels)),
		Gap: time.Duration(whole - busy), Peak: e.Peak, Persistent: unit.Bytes(persistentFraction * float64(e.Peak)), Context: context}
	switch class {
	case box.Guaranteed:
		j.Floor = guaranteedFloor
	case box.BestEffort:
		j.Floor = besteffortFloor
	default:
		j.Floor = burstableFloor
	}
	return j
}

// classes are the classes of a number of jobs.
func classes(jobs int) []box.Class {
	list := make([]box.Class, jobs)
	guaranteed := (jobs + 2) / 4
	burstable := (jobs - guaranteed) / 2
	for i := range list {
		switch {
		case i < guaranteed:
			list[i] = box.Guaranteed
		case i < guaranteed+burstable:
			list[i] = box.Burstable
		default:
			list[i] = box.BestEffort
		}
	}
	return list
}
