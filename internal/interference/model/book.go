package model

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"weft.dev/weft/internal/interference"
)

// Job is what is known of a configuration on a GPU model before it shares. 0 is unknown.
type Job struct {
	Rate      float64 `json:"rate,omitempty"`       // steps per second alone
	GPUUtil   float64 `json:"gpu_util,omitempty"`   // share of the time with a kernel on the GPU, 0..1
	MemUtil   float64 `json:"mem_util,omitempty"`   // share of the time with memory traffic, 0..1
	MemoryMiB float64 `json:"memory_mib,omitempty"` // peak
}

// Entry is one job of a book. Source says whose measurement it is: rates of different campaigns do not compare.
type Entry struct {
	Source, GPU string
	Config      interference.Config
	Job
}

// entryForm is an entry in a model file.
type entryForm struct {
	Source string `json:"source"`
	GPU    string `json:"gpu"`
	Model  string `json:"model"`
	Batch  string `json:"batch,omitempty"`
	Job
}

// MarshalJSON implements json.Marshaler.
func (e Entry) MarshalJSON() ([]byte, error) {
	return json.Marshal(entryForm{e.Source, e.GPU, e.Config.Model, e.Config.Batch, e.Job})
}

// UnmarshalJSON implements json.Unmarshaler.
func (e *Entry) UnmarshalJSON(text []byte) error {
	var f entryForm
	if err := json.Unmarshal(text, &f); err != nil {
		return err
	}
	*e = Entry{f.Source, f.GPU, interference.Config{Model: f.Model, Batch: f.Batch}, f.Job}
	return nil
}

// Book holds what is known of jobs alone. The zero value is empty. A job that is entered again keeps what was known
// of it and gains what was not.
type Book struct {
	jobs     map[bookKey]Job
	families map[familyKey][]string // batches, in order of entry
	entries  []bookKey              // in order of first entry
}

type bookKey struct {
	source, gpu string
	config      interference.Config
}

type familyKey struct{ source, gpu, model string }

// Enter adds a job.
func (b *Book) Enter(e Entry) {
	if b.jobs == nil {
		b.jobs, b.families = map[bookKey]Job{}, map[familyKey][]string{}
	}
	k := bookKey{e.Source, e.GPU, e.Config}
	known, ok := b.jobs[k]
	if !ok {
		f := familyKey{e.Source, e.GPU, e.Config.Model}
		b.families[f] = append(b.families[f], e.Config.Batch)
		b.entries = append(b.entries, k)
	}
	fill := func(to *float64, from float64) {
		if *to == 0 {
			*to = from
		}
	}
	fill(&known.Rate, e.Rate)
	fill(&known.GPUUtil, e.GPUUtil)
	fill(&known.MemUtil, e.MemUtil)
	fill(&known.MemoryMiB, e.MemoryMiB)
	b.jobs[k] = known
}

// Entries is the content of the book, in order of first entry.
func (b *Book) Entries() []Entry {
	list := make([]Entry, len(b.entries))
	for i, k := range b.entries {
		list[i] = Entry{k.source, k.gpu, k.config, b.jobs[k]}
	}
	return list
}

// Find is what is known of a configuration on a GPU model. An empty source takes the source that entered it first.
func (b *Book) Find(source, gpu string, c interference.Config) (Job, bool) {
	job, ok := b.jobs[bookKey{b.sourceOf(source, gpu, c), gpu, c}]
	return job, ok
}

// common is the first source that knows both configurations on a GPU model; "" when none does.
func (b *Book) common(gpu string, c, d interference.Config) string {
	for _, k := range b.entries {
		if k.gpu == gpu && k.config == c {
			if _, ok := b.jobs[bookKey{k.source, gpu, d}]; ok {
				return k.source
			}
		}
	}
	return ""
}

// sourceOf is the source to look a configuration up in: the one asked for, else the first that knows it on the GPU
// model.
func (b *Book) sourceOf(source, gpu string, c interference.Config) string {
	if _, ok := b.jobs[bookKey{source, gpu, c}]; ok || source != "" {
		return source
	}
	for _, k := range b.entries {
		if k.gpu == gpu && k.config == c {
			return k.source
		}
	}
	return source
}

// Side features: what is known of one job alone, by position in a side's vector. NaN is unknown.
const (
	sideRate     = iota // log2 of steps per second
	sideBatch           // log2 of the batch size
	sideSamples         // log2 of samples per second
	sideScaling         // slope of log2 samples/s over log2 batch, near this batch
	sideHeadroom        // log2 of samples/s at the family's fastest batch over those at this one
	sideSpeedup1        // log2 of the rate on reference GPU 2 over that on 1
	sideSpeedup2        // 3 over 2
	sideSpeedup3        // 3 over 1
	sideGPUUtil         // 0..1
	sideMemUtil         // 0..1
	sideMemory          // log2 of MiB
	sideLen
)

// side is the vector of a job. References are up to three GPU models that speeds are compared on.
func (b *Book) side(source, gpu string, c interference.Config, references []string) []float64 {
	source = b.sourceOf(source, gpu, c)
	v := make([]float64, sideLen)
	job := b.jobs[bookKey{source, gpu, c}]
	batch := batchOf(c.Batch)
	v[sideRate], v[sideBatch] = log2(job.Rate), log2(batch)
	v[sideSamples] = log2(job.Rate * batch)
	v[sideScaling], v[sideHeadroom] = b.scaling(source, gpu, c)
	var rates [maxReferences]float64
	for i, r := range references[:min(len(references), len(rates))] {
		rates[i] = b.jobs[bookKey{source, r, c}].Rate
	}
	v[sideSpeedup1] = log2(rates[1]) - log2(rates[0])
	v[sideSpeedup2] = log2(rates[2]) - log2(rates[1])
	v[sideSpeedup3] = log2(rates[2]) - log2(rates[0])
	v[sideGPUUtil], v[sideMemUtil] = orMissing(job.GPUUtil), orMissing(job.MemUtil)
	v[sideMemory] = log2(job.MemoryMiB)
	return v
}

// scaling fits, over the batches of a family, log2 samples/s as a line through the batch asked about, weighted by a
// Gaussian of one doubling around it: near 1 the step takes as long whatever the batch (the GPU waits), near 0 the
// time grows with the batch (the GPU is the limit). The second value is the headroom to the family's fastest batch.
func (b *Book) scaling(source, gpu string, c interference.Config) (slope, headroom float64) {
	at := log2(batchOf(c.Batch))
	here := log2(b.jobs[bookKey{source, gpu, c}].Rate) + at
	if math.IsNaN(here) {
		return math.NaN(), math.NaN()
	}
	var xx, xy float64
	for _, batch := range b.families[familyKey{source, gpu, c.Model}] {
		other := log2(batchOf(batch))
		samples := log2(b.jobs[bookKey{source, gpu, interference.Config{Model: c.Model, Batch: batch}}].Rate) + other
		if math.IsNaN(samples) {
			continue
		}
		headroom = max(headroom, samples-here)
		d := other - at
		w := math.Exp(-d * d / 2)
		xx += w * d * d
		xy += w * d * (samples - here)
	}
	if xx == 0 {
		return math.NaN(), headroom
	}
	return xy / xx, headroom
}

// batchOf is a batch as a number, 0 for one that has none.
func batchOf(batch string) float64 {
	v, err := strconv.ParseFloat(batch, 64)
	if err != nil || !(v > 0) || math.IsInf(v, 0) {
		return 0
	}
	return v
}

func log2(v float64) float64 {
	if v > 0 {
		return math.Log2(v)
	}
	return math.NaN()
}

func orMissing(v float64) float64 {
	if v > 0 {
		return v
	}
	return math.NaN()
}

// maxReferences is how many GPU models speeds are compared on: that many the side features have columns for.
const maxReferences = 3

// References picks the GPU models that speeds are compared on: the three with most entries, in alphabetical order.
func (b *Book) References() []string {
	count := map[string]int{}
	var gpus []string
	for _, k := range b.entries {
		if count[k.gpu]++; count[k.gpu] == 1 {
			gpus = append(gpus, k.gpu)
		}
	}
	slices.Sort(gpus)
	slices.SortStableFunc(gpus, func(x, y string) int { return count[y] - count[x] })
	gpus = gpus[:min(len(gpus), maxReferences)]
	slices.Sort(gpus)
	return gpus
}
