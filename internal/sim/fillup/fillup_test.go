package fillup_test

import (
	"context"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/policy"
	"weft.dev/weft/internal/sim/fillup"
	"weft.dev/weft/internal/unit"
)

func TestRunRefuses(t *testing.T) {
	c, good := cluster.Uniform(2, 2), []cluster.Job{{ID: "a", Workers: 1, Share: 500}}
	for _, tc := range []struct {
		what string
		c    cluster.Cluster
		pods []cluster.Job
		o    fillup.Options
		want string
	}{
		{"no GPUs", cluster.Uniform(2, 0), good, fillup.Options{Policy: "fgd", Fill: 1}, "no GPUs"},
		{"no pods", c, nil, fillup.Options{Policy: "fgd", Fill: 1}, "no pod asks for a GPU"},
		{"no GPU pods", c, []cluster.Job{{CPU: 1}}, fillup.Options{Policy: "fgd", Fill: 1}, "no pod asks for a GPU"},
		{"no fill", c, good, fillup.Options{Policy: "fgd"}, "fill 0"},
		{"fill NaN", c, good, fillup.Options{Policy: "fgd", Fill: math.NaN()}, "fill NaN"},
		{"fill infinite", c, good, fillup.Options{Policy: "fgd", Fill: math.Inf(1)}, "fill +Inf"},
		{"no such policy", c, good, fillup.Options{Policy: "best", Fill: 1}, `"best" is none of`},
		{"negative pod", c, append(good, cluster.Job{ID: "b", Workers: -1}), fillup.Options{Policy: "fgd", Fill: 1}, `"b": negative`},
	} {
		if _, err := fillup.Run(context.Background(), tc.c, tc.pods, tc.o); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want one with %q", tc.what, err, tc.want)
		}
	}
}

// countdown is a context that ends at the n-th question.
type countdown struct {
	context.Context
	left int
}

func (c *countdown) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

func TestRunReturnsWhatItHasWhenStopped(t *testing.T) {
	c := cluster.Uniform(10, 10)
	whole := []cluster.Job{{ID: "a", Workers: 1, Share: 1000}}
	o := fillup.Options{Policy: "bestfit", Seed: 1, Fill: 1}
	all, err := fillup.Run(context.Background(), c, whole, o)
	if err != nil || all.Placed != 100 || all.Failed != 0 || all.Final().Allocation != 100 {
		t.Fatalf("%+v, %v", all, err)
	}
	r, err := fillup.Run(&countdown{context.Background(), 150}, c, whole, o)
	if !errors.Is(err, context.Canceled) || r == nil {
		t.Fatalf("result %v, error %v", r, err)
	}
	if r.Placed == 0 || r.Placed >= 100 || !reflect.DeepEqual(r.Points, all.Points[:len(r.Points)]) {
		t.Errorf("stopped after %d pods with %+v, unlike %+v", r.Placed, r.Points, all.Points)
	}
	if r, err := fillup.Run(&countdown{context.Background(), 3}, c, whole, o); !errors.Is(err, context.Canceled) || r != nil {
		t.Errorf("stopped before the first pod: %v, %v", r, err)
	}
	var none fillup.Result
	if none.Final() != (fillup.Point{}) {
		t.Error("nothing arrived, but there is a final point")
	}
}

// TestRunByHand: pods of a whole GPU on 4 nodes of one GPU, up to 1.5 times their number. The first four fit; each
// leaves a quarter less free, none of it fragmented.
func TestRunByHand(t *testing.T) {
	whole := []cluster.Job{{ID: "a", Workers: 1, Share: 1000}}
	for _, name := range policy.ScoredNames() {
		r, err := fillup.Run(context.Background(), cluster.Uniform(4, 1), whole, fillup.Options{Policy: name, Fill: 1.5})
		if err != nil {
			t.Fatal(err)
		}
		want := []fillup.Point{{25, 1, 25, 0}, {50, 1, 50, 0}, {75, 1, 75, 0}, {100, 1, 100, 0}, {125, 1, 100, 0}, {150, 1, 100, 0}}
		if !reflect.DeepEqual(r.Points, want) || r.Placed != 4 || r.Failed != 2 {
			t.Errorf("%s: %d placed, %d failed, %+v", name, r.Placed, r.Failed, r.Points)
		}
	}
}

// TestRunKeepsItsLaws on random clusters: every pod arrives once or more, demand ends within one pod of the fill,
// nothing above 100 % is given out, allocation never falls, what is free bounds what is fragmented, and the same seed
// gives the same result.
func TestRunKeepsItsLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := cluster.Uniform(rapid.IntRange(1, 5).Draw(t, "nodes"), rapid.IntRange(1, 4).Draw(t, "gpus"))
		jobs := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) cluster.Job {
			return cluster.Job{ID: rapid.StringMatching("[a-d]").Draw(t, "id"), Workers: rapid.IntRange(0, 3).Draw(t, "workers"),
				Share: rapid.SampledFrom([]unit.MilliGPU{300, 500, 1000}).Draw(t, "share")}
		}), 1, 10).Draw(t, "pods")
		jobs = append(jobs, cluster.Job{ID: "e", Workers: 1, Share: 700})
		o := fillup.Options{Policy: rapid.SampledFrom(policy.ScoredNames()).Draw(t, "policy"), Seed: rapid.Int64().Draw(t, "seed"), Fill: 2}
		r, err := fillup.Run(context.Background(), c, jobs, o)
		if err != nil {
			t.Fatal(err)
		}
		again, err := fillup.Run(context.Background(), c, jobs, o)
		if err != nil || !reflect.DeepEqual(r, again) {
			t.Fatalf("two runs differ: %+v, %+v, %v", r, again, err)
		}
		arrivals, last := 0, fillup.Point{Arrived: -1}
		for _, p := range r.Points {
			if p.Arrived <= last.Arrived || p.Allocation < last.Allocation-1e-9 || p.Allocation > 100 || p.Fragmentation < 0 ||
				p.Allocation+p.Fragmentation > 100.01 {
				t.Fatalf("%+v after %+v", p, last)
			}
			arrivals += p.Arrivals
			last = p
		}
		if arrivals != r.Placed+r.Failed || arrivals < len(jobs) {
			t.Fatalf("%d arrivals in the points, %d placed, %d failed, %d pods", arrivals, r.Placed, r.Failed, len(jobs))
		}
	})
}
