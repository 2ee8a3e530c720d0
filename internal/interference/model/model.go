// Package model predicts how much jobs that share a GPU slow each other down, from what is known of each alone. It is
// pure: a model is data, made by package train and kept as versioned JSON.
package model

import (
	_ "embed"
	"slices"

	"weft.dev/weft/internal/interference"
)

// Version is that of the model files that this program reads and writes.
const Version = 1

// Basis says what a prediction rests on, and with it which bound holds.
type Basis string

// The bases, from firm to weak. A lower bound is as wide as errors were where a fit stood before the same question.
const (
	Known  Basis = "known"   // both jobs were measured in other pairs on this GPU model: errors on random pairs
	Probed Basis = "probed"  // a new job was measured beside others: errors on held-out models after as many probes
	New    Basis = "new job" // a job with features and no measured pair: errors on held-out models
	Prior  Basis = "prior"   // GPU model, source or features unknown: half of the least rate of the training
)

// Model is a fitted predictor. It is immutable.
type Model struct {
	Version  int       `json:"version"`
	Coverage float64   `json:"coverage"` // nominal share of rates at or above the lower bound
	Seed     uint64    `json:"seed"`
	Sources  []string  `json:"sources"`
	Pairs    int       `json:"pairs"`
	Layout   Layout    `json:"layout"`
	Names    []string  `json:"features"`
	Jobs     []Entry   `json:"jobs"`   // what the training knew of jobs alone
	Ranges   []Range   `json:"ranges"` // per feature, over the training
	Mean     Ensemble  `json:"mean"`
	Known    []Bound   `json:"known"`  // by GPU model of the layout
	Probed   [][]Bound `json:"probed"` // by the number of probes, from 1
	Kappa    float64   `json:"kappa"`  // probes that weigh as much as a prediction
	New      []Bound   `json:"new"`
	Prior    Spread    `json:"prior"`
}

// Range is the least and the most of a feature. Unknown everywhere is a range with Least above Most.
type Range struct {
	Least float64 `json:"l"`
	Most  float64 `json:"m"`
}

// Spread is what to expect where nothing is known, from the rates of all the training.
type Spread struct {
	Least float64 `json:"least"` // half of the least rate
	Mean  float64 `json:"mean"`
	Most  float64 `json:"most"`
}

//go:embed default.json
var defaultModel []byte

// Default is the model that ships with the program, trained on public pairs (see docs/predict.md).
func Default() (*Model, error) { return Decode(defaultModel) }

// Predictor answers from a model, a book of jobs and probes. It is safe for concurrent use once made.
type Predictor struct {
	m        *Model
	book     *Book
	trained  map[bookKey]bool
	features []Feature
	shifts   map[shiftKey][]float64
}

// Predictor answers for the jobs that the model was trained on and for more: entries add what is known of others, and
// probes are measured pairs of them.
func (m *Model) Predictor(more []Entry, probes []Probe) *Predictor {
	p := &Predictor{m: m, book: &Book{}, trained: map[bookKey]bool{}, features: m.Layout.Features()}
	for _, e := range m.Jobs {
		p.book.Enter(e)
		p.trained[bookKey{e.Source, e.GPU, e.Config}] = true
	}
	for _, e := range more {
		p.book.Enter(e)
	}
	p.shifts = p.probe(probes)
	return p
}

// GPUs are the GPU models that the model was trained on.
func (m *Model) GPUs() []string { return m.Layout.GPUs }

// Trained says whether the model was trained on pairs of a configuration on a GPU model.
func (m *Model) Trained(gpu string, c interference.Config) bool {
	return slices.ContainsFunc(m.Jobs, func(e Entry) bool { return e.GPU == gpu && e.Config == c })
}
