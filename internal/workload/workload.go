// Package workload generates jobs for whoever has no log at hand: arrivals, run times and gang sizes drawn from the
// published distributions of a real cluster, models drawn from the measured configurations.
package workload

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/interference"
	"weft.dev/weft/internal/unit"
)

// Options describe a workload.
type Options struct {
	Jobs  int
	Span  time.Duration         // over which jobs are submitted
	Mix   []interference.Config // drawn from uniformly; none means jobs without a model
	Floor float64               // of every job, in (0, 1]
	Users int                   // drawn from uniformly
	Seed  uint64
}

// The figures below were computed from 82,247 jobs of the Microsoft Philly traces of 2017 (msr-fiddle/philly-traces, CC
// BY 4.0, in the form of siasosp23/artifacts).

// runTimes are quantiles of the run time in seconds.
var runTimes = []struct{ share, seconds float64 }{
	{0, 1}, {.01, 17}, {.05, 48}, {.1, 61}, {.2, 75}, {.3, 209}, {.4, 599}, {.5, 1144}, {.6, 1821}, {.7, 2549},
	{.8, 4244}, {.9, 11266}, {.95, 43648}, {.99, 254884}, {.999, 1186475}, {1, 4628226},
}

// gangs are shares of jobs by workers, larger ones than 8 left out (0.34 %).
var gangs = []struct {
	workers int
	share   float64
}{{1, .9317}, {2, .0221}, {4, .0227}, {8, .0235}}

// hours are submissions by hour of the day (UTC), relative to the mean.
var hours = [24]float64{
	1.27, .98, 1.12, 1.10, .70, 1.15, 1.67, 2.09, 1.11, 1.01, 1.02, .87,
	.75, .70, .64, .65, .88, .67, .80, .73, 1.02, .92, 1.13, 1.01,
}

// Generate draws the jobs of a workload, sorted by submission; equal options give equal jobs. O(n log n).
func Generate(o Options) []cluster.Job {
	random := rand.New(rand.NewPCG(o.Seed, 0))
	jobs := make([]cluster.Job, o.Jobs)
	for i := range jobs {
		j := &jobs[i]
		j.Submit = submission(random, o.Span)
		j.Duration = unit.Duration(runTime(random.Float64()))
		j.Workers = gang(random.Float64())
		j.Share = unit.WholeGPU
		j.Floor = o.Floor
		if o.Users > 0 {
			j.User = fmt.Sprintf("user%02d", random.IntN(o.Users)+1)
		}
		if len(o.Mix) > 0 {
			c := o.Mix[random.IntN(len(o.Mix))]
			j.Model, j.Batch = c.Model, c.Batch
		}
	}
	slices.SortStableFunc(jobs, func(a, b cluster.Job) int { return cmp.Compare(a.Submit, b.Submit) })
	for i := range jobs {
		jobs[i].ID = fmt.Sprintf("job%05d", i+1)
	}
	return jobs
}

// Draw draws configurations of a mix uniformly; equal seeds draw alike.
func Draw(mix []interference.Config, seed uint64) func() (model, batch string) {
	random := rand.New(rand.NewPCG(seed, 1))
	return func() (model, batch string) {
		c := mix[random.IntN(len(mix))]
		return c.Model, c.Batch
	}
}

// Copies is copies one-worker jobs of every configuration of a mix, without times.
func Copies(mix []interference.Config, copies int, floor float64) []cluster.Job {
	var jobs []cluster.Job
	for _, c := range mix {
		for i := range copies {
			jobs = append(jobs, cluster.Job{ID: fmt.Sprintf("%s#%d", c, i+1), Model: c.Model, Batch: c.Batch, Workers: 1,
				Share: unit.WholeGPU, Floor: floor})
		}
	}
	return jobs
}

// submission draws a whole second of the span, by rejection against the hour's share.
func submission(random *rand.Rand, span time.Duration) unit.Time {
	busiest := slices.Max(hours[:])
	seconds := max(1, int64(span/time.Second))
	for {
		at := random.Int64N(seconds)
		if random.Float64()*busiest < hours[at/3600%24] {
			return unit.Time(at) * unit.Time(time.Second)
		}
	}
}

// runTime is the q-quantile in whole seconds, log-linear between the table's entries.
func runTime(q float64) float64 {
	for i := 1; i < len(runTimes); i++ {
		a, b := runTimes[i-1], runTimes[i]
		if q <= b.share {
			part := (q - a.share) / (b.share - a.share)
			return math.Round(a.seconds * math.Pow(b.seconds/a.seconds, part))
		}
	}
	return runTimes[len(runTimes)-1].seconds
}

func gang(q float64) int {
	for _, g := range gangs {
		if q -= g.share; q < 0 {
			return g.workers
		}
	}
	return 1
}

// MixNamed is LightMix for "light", GentleMix for "gentle", WholeMix for "whole", and nil for any other name.
func MixNamed(name string) []interference.Config {
	switch name {
	case "gentle":
		return GentleMix()
	case "light":
		return LightMix()
	case "whole":
		return WholeMix()
	}
	return nil
}

// LightMix is the 13 configurations of the catalogue's P100 that slow each other least: small training jobs that leave
// most of a GPU idle.
func LightMix() []interference.Config {
	return []interference.Config{
		{Model: "A3C"}, {Model: "LM", Batch: "5"}, {Model: "LM", Batch: "10"}, {Model: "LM", Batch: "20"},
		{Model: "Recommendation", Batch: "512"}, {Model: "Recommendation", Batch: "1024"},
		{Model: "Recommendation", Batch: "2048"}, {Model: "Recommendation", Batch: "4096"},
		{Model: "Transformer", Batch: "16"}, {Model: "Transformer", Batch: "32"}, {Model: "Transformer", Batch: "64"},
		{Model: "ResNet-18", Batch: "16"}, {Model: "ResNet-18", Batch: "32"},
	}
}

// GentleMix is the eight of LightMix that leave most of a P100 to others: three of them often run on one at more than nine
// tenths of their speed.
func GentleMix() []interference.Config {
	return []interference.Config{
		{Model: "A3C"}, {Model: "Recommendation", Batch: "512"}, {Model: "Recommendation", Batch: "1024"},
		{Model: "Recommendation", Batch: "2048"}, {Model: "Recommendation", Batch: "4096"},
		{Model: "Transformer", Batch: "16"}, {Model: "Transformer", Batch: "32"}, {Model: "ResNet-18", Batch: "16"},
	}
}

// WholeMix is every configuration of the catalogue's P100.
func WholeMix() []interference.Config {
	table := interference.Catalogue("p100")
	mix := make([]interference.Config, table.Len())
	for i := range mix {
		mix[i] = table.Config(i)
	}
	return mix
}
