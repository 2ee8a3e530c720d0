package workload

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"weft.dev/weft/internal/interference"
)

func TestGenerateIsDeterministicAndFitsItsTables(t *testing.T) {
	o := Options{Jobs: 20_000, Span: 7 * 24 * time.Hour, Mix: LightMix(), Floor: 0.85, Users: 20, Seed: 42}
	jobs := Generate(o)
	if !reflect.DeepEqual(jobs, Generate(o)) {
		t.Fatal("equal options give other jobs")
	}
	seconds := make([]float64, len(jobs))
	single := 0
	for i, j := range jobs {
		if j.Submit.Seconds() >= o.Span.Seconds() || i > 0 && j.Submit < jobs[i-1].Submit {
			t.Fatalf("job %d submitted at %v", i, j.Submit)
		}
		seconds[i] = j.Duration.Seconds()
		if j.Workers == 1 {
			single++
		}
	}
	slices.Sort(seconds)
	if median := seconds[len(seconds)/2]; median < 1050 || median > 1250 {
		t.Errorf("median run time %.0f s, published 1144", median)
	}
	if p90 := seconds[len(seconds)*9/10]; p90 < 10_000 || p90 > 12_500 {
		t.Errorf("90 %% run time %.0f s, published 11266", p90)
	}
	if share := float64(single) / float64(len(jobs)); share < 0.92 || share > 0.945 {
		t.Errorf("single-GPU jobs %.3f, published 0.932", share)
	}
}

func TestMixesAreMeasured(t *testing.T) {
	table := interference.Catalogue("p100")
	for _, c := range append(LightMix(), WholeMix()...) {
		if _, ok := table.Lookup(c); !ok {
			t.Errorf("%s is not in the catalogue", c)
		}
	}
	if n := len(WholeMix()); n != 26 {
		t.Errorf("%d configurations, want 26", n)
	}
}
