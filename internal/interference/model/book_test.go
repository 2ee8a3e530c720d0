package model

import (
	"math"
	"slices"
	"testing"

	"weft.dev/weft/internal/interference"
)

func entry(source, gpu, model, batch string, rate float64) Entry {
	return Entry{source, gpu, interference.Config{Model: model, Batch: batch}, Job{Rate: rate}}
}

func book(entries ...Entry) *Book {
	b := &Book{}
	for _, e := range entries {
		b.Enter(e)
	}
	return b
}

// At one rate whatever the batch, samples double with the batch: slope 1. At a rate that halves with each doubling,
// samples stay: slope 0.
func TestBatchScalingIsTheSlopeOfSamples(t *testing.T) {
	for _, x := range []struct {
		rates    [3]float64
		slope    float64
		headroom float64
	}{{[3]float64{5, 5, 5}, 1, 1}, {[3]float64{8, 4, 2}, 0, 0}} {
		b := book(entry("s", "g", "m", "8", x.rates[0]), entry("s", "g", "m", "16", x.rates[1]), entry("s", "g", "m", "32", x.rates[2]),
			entry("other", "g", "m", "64", 1e6), entry("s", "g", "n", "64", 1e6)) // another campaign's and another model's
		v := b.side("s", "g", interference.Config{Model: "m", Batch: "16"}, nil)
		if math.Abs(v[sideScaling]-x.slope) > 1e-9 || math.Abs(v[sideHeadroom]-x.headroom) > 1e-9 {
			t.Errorf("rates %v: slope %v, headroom %v", x.rates, v[sideScaling], v[sideHeadroom])
		}
	}
}

func TestUnknownFiguresAreMissing(t *testing.T) {
	b := book(entry("s", "g", "m", "", 3), entry("s", "g", "lone", "8", 3))
	for _, c := range []interference.Config{{Model: "m"}, {Model: "nobody", Batch: "8"}, {Model: "lone", Batch: "8"}} {
		v := b.side("s", "g", c, []string{"g", "h"})
		for _, f := range []int{sideScaling, sideSpeedup1, sideSpeedup2, sideSpeedup3, sideGPUUtil, sideMemUtil, sideMemory} {
			if !math.IsNaN(v[f]) {
				t.Errorf("%v: side feature %d is %v", c, f, v[f])
			}
		}
	}
}

func TestBookGainsAndKeepsFigures(t *testing.T) {
	b := book(entry("s", "g", "m", "8", 3))
	e := entry("s", "g", "m", "8", 99)
	e.GPUUtil = 0.5
	b.Enter(e)
	job, ok := b.Find("", "g", e.Config)
	if want := (Job{Rate: 3, GPUUtil: 0.5}); !ok || job != want {
		t.Errorf("%+v, want %+v", job, want)
	}
	if n := len(b.Entries()); n != 1 {
		t.Errorf("%d entries for one job", n)
	}
}

func TestReferencesAreTheMostMeasuredGPUs(t *testing.T) {
	b := book(entry("s", "d", "m", "1", 1), entry("s", "c", "m", "1", 1), entry("s", "c", "m", "2", 1), entry("s", "a", "m", "1", 1),
		entry("s", "a", "m", "2", 1), entry("s", "b", "m", "1", 1))
	if got := b.References(); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("%v", got)
	}
}

// Names and vector agree in length, and names are distinct: model files identify features by them.
func TestLayoutNamesEveryColumn(t *testing.T) {
	l := Layout{References: []string{"g"}, GPUs: []string{"g", "h"}}
	x := l.Vector(book(entry("s", "g", "m", "8", 3)), Query{Source: "s", GPU: "h", Self: interference.Config{Model: "m", Batch: "8"}})
	features := l.Features()
	if len(x) != len(features) {
		t.Fatalf("%d columns, %d names", len(x), len(features))
	}
	seen := map[string]bool{}
	for i, f := range features {
		if seen[f.Name] || f.Label == "" {
			t.Errorf("feature %d %q: repeated or without label", i, f.Name)
		}
		seen[f.Name] = true
	}
	if x[len(x)-2] != 0 || x[len(x)-1] != 1 {
		t.Errorf("GPU columns %v", x[len(x)-2:])
	}
}

// Utilisation terms: what both use, and what exceeds a whole GPU.
func TestPairTermsOfUtilisation(t *testing.T) {
	a, b := entry("s", "g", "m", "8", 3), entry("s", "g", "n", "8", 3)
	a.GPUUtil, b.GPUUtil = 0.7, 0.5
	l := Layout{}
	x := l.Vector(book(a, b), Query{Source: "s", GPU: "g", Self: a.Config, Partner: b.Config})
	want := map[string]float64{"pair_gpu_util_sum": 1.2, "pair_gpu_util_product": 0.35, "pair_gpu_util_over": 0.2, "self_gpu_util": 0.7, "partner_gpu_util": 0.5}
	for i, f := range l.Features() {
		if v, ok := want[f.Name]; ok && math.Abs(x[i]-v) > 1e-9 {
			t.Errorf("%s: %v, want %v", f.Name, x[i], v)
		}
	}
}
