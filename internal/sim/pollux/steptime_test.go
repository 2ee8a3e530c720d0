package pollux

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"weft.dev/weft/internal/trace"
)

func TestRotationKeyIsTheSmallestRotation(t *testing.T) {
	for key, placement := range map[string][]int{"1": {1}, "244": {4, 4, 2}, "1424": {2, 4, 1, 4}, "": {10, 2}} {
		if got := rotationKey(placement); got != key {
			t.Errorf("key of %v is %q, want %q", placement, got, key)
		}
	}
}

func TestStepTimeSources(t *testing.T) {
	row := func(placement string, nodes, replicas, local int, step float64) trace.PolluxStepTime {
		return trace.PolluxStepTime{Application: "bert", Placement: placement, Nodes: nodes, Replicas: replicas,
			LocalBatch: local, StepS: step, SyncS: step / 10}
	}
	times, err := newStepTimes("bert", []trace.PolluxStepTime{
		row("13", 2, 4, 10, 1), row("13", 2, 4, 4, 0.4), row("22", 2, 4, 4, 0.8), row("22", 2, 4, 10, 2),
		row("", 4, 4, 4, 3), row("", 4, 4, 10, 3),
		{Application: "ncf", Placement: "4", Nodes: 1, Replicas: 4, LocalBatch: 4, StepS: 9},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name      string
		placement []int
		local     int
		step      float64
		from      source
	}{
		{"measured placement", []int{3, 1}, 10, 1, measured},
		{"linear in the local batch", []int{3, 1}, 7, 0.7, measured},
		{"scalability row", []int{1, 1, 1, 1}, 7, 3, measured},
		{"between node counts", []int{2, 1, 1}, 4, (0.6 + 3) / 2, estimated},
		{"the published simulator's value", []int{4, 4, 4, 2, 2}, 12, 1.845758, measured},
	} {
		got, from, err := times.at("bert", c.placement, c.local)
		if err != nil || math.Abs(got.step-c.step) > 1e-12 || from != c.from {
			t.Errorf("%s: %v (source %d), error %v; want %v (source %d)", c.name, got, from, err, c.step, c.from)
		}
	}
	if mean := times.byShape[shape{2, 4}]; len(mean) != 2 || math.Abs(mean[0].step-0.6) > 1e-12 || mean[1].step != 1.5 {
		t.Errorf("means of the shape 2 nodes, 4 replicas: %v, want 0.6 and 1.5", mean)
	}
	for _, local := range []int{3, 11} {
		if _, _, err := times.at("bert", []int{3, 1}, local); err == nil || !strings.Contains(err.Error(), "4 replicas on 2 nodes") {
			t.Errorf("local batch %d: error %v, want one that names the shape", local, err)
		}
	}
	if _, err := newStepTimes("gpt", nil); err == nil {
		t.Error("an application without measurements has no error")
	}
}

// TestEstimatesAreNearThePublishedInterpolation backs the bound that between states.
func TestEstimatesAreNearThePublishedInterpolation(t *testing.T) {
	profiles, compared := readProfiles(t), 0
	for q, want := range interpolated {
		times, err := newStepTimes(q.application, profiles.StepTimes)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := times.between(shape{q.nodes, q.replicas}, q.local)
		if !ok {
			t.Logf("%+v: no estimate", q)
			continue
		}
		compared++
		off := math.Abs(got.step-want.step) / want.step
		t.Logf("%+v: estimate %.4f s, published %.4f s: %.1f %%", q, got.step, want.step, 100*off)
		if off > 0.011 {
			t.Errorf("%+v: estimate %v s, published %v s", q, got.step, want.step)
		}
	}
	if compared < 8 {
		t.Errorf("only %d shapes compared", compared)
	}
}

func TestSplitHoldsTheBatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"bert", "cifar10", "imagenet", "yolov3"}).Draw(t, "application")
		a := &application{name: name, settings: applications[name]}
		a.maxLocal = rapid.IntRange(1, 300).Draw(t, "maxLocal")
		replicas := rapid.IntRange(1, 64).Draw(t, "replicas")
		batch := rapid.IntRange(replicas, a.maxBatch).Draw(t, "batch")
		s := a.split(batch, replicas)
		if s.local > a.maxLocal || s.local < 0 || s.batch() > a.maxBatch {
			t.Fatalf("%s: batch %d on %d replicas becomes %+v of %d samples; limits %d, %d",
				name, batch, replicas, s, s.batch(), a.maxLocal, a.maxBatch)
		}
		passes := replicas * (s.accumulate + 1)
		if cut := s.batch() < batch; cut && s.local < a.maxBatch/passes {
			t.Fatalf("%s: batch %d on %d replicas is cut to %d below the limit %d", name, batch, replicas, s.batch(), a.maxBatch)
		}
	})
}
