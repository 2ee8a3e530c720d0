// Package fillup replays the fill-up experiment of the fragmentation study (Weng et al., USENIX ATC 2023): pods arrive
// in random order, one after the other, until they ask for a given multiple of a cluster's GPUs. None departs, and one
// that does not fit is not tried again. What is compared is how much of the GPUs each placement manages to give out,
// and how much of what is left no typical pod could use.
package fillup

import (
	"context"
	"errors"
	"fmt"
	"math"
	randv2 "math/rand/v2"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/policy"
	"weft.dev/weft/internal/unit"
)

// Options says which experiment to run.
type Options struct {
	Policy string  // one of policy.ScoredNames
	Seed   int64   // of the arrivals, of the nodes' labels, and of the placement "random"
	Fill   float64 // GPUs asked for at the end, as a multiple of the cluster's: 1.3 in the study
}

// Point is the state of the cluster around one percent of arrived demand: means over all arrivals that leave the
// demand arrived so far nearest to it (a half rounds to the even percent).
type Point struct {
	Arrived       int     `json:"arrived_pct"`       // percent of the cluster's GPUs
	Arrivals      int     `json:"arrivals"`          // how many the means are over
	Allocation    float64 `json:"allocation_pct"`    // percent of the GPUs given out
	Fragmentation float64 `json:"fragmentation_pct"` // percent of the GPUs expected not to be usable by the next pod
}

// Result is the curves of one experiment: a Point for every percent of arrived demand, ascending.
type Result struct {
	Points []Point
	Placed int // pods that fitted
	Failed int // pods that did not
}

// Final is the last point: the study's figures. It is zero when nothing arrived.
func (r *Result) Final() Point {
	if len(r.Points) == 0 {
		return Point{}
	}
	return r.Points[len(r.Points)-1]
}

// Run fills the cluster. It is deterministic: the same inputs give the same result. When ctx ends before it does, it
// returns what it has so far with ctx's error. O(arrivals x nodes).
func Run(ctx context.Context, c cluster.Cluster, pods []cluster.Job, o Options) (*Result, error) {
	capacity := unit.MilliGPU(c.GPUs()) * unit.WholeGPU
	if capacity == 0 {
		return nil, errors.New("fill up: the cluster has no GPUs")
	}
	if !(o.Fill > 0) || math.IsInf(o.Fill, 0) {
		return nil, fmt.Errorf("fill up: fill %v is not a positive number", o.Fill)
	}
	jobs, labels, err := arrivals(ctx, pods, len(c.Nodes), o.Fill*float64(capacity), o.Seed)
	if err != nil {
		return nil, err
	}
	placer, err := policy.NewScored(o.Policy, c, jobs, policy.ScoredOptions{Labels: labels, Typical: pods,
		Random: randv2.New(randv2.NewPCG(uint64(o.Seed), 0))})
	if err != nil {
		return nil, fmt.Errorf("fill up: %w", err)
	}
	return fill(ctx, placer, jobs, float64(c.GPUs()))
}

func fill(ctx context.Context, placer *policy.Scored, jobs []cluster.Job, gpus float64) (*Result, error) {
	r, b := &Result{}, bins{gpus: gpus}
	var arrived, used unit.MilliGPU
	for i := range jobs {
		if err := ctx.Err(); err != nil {
			r.Points = b.points
			return r, fmt.Errorf("fill up: stopped after %d of %d pods: %w", i, len(jobs), err)
		}
		arrived += demand(&jobs[i])
		if _, ok := placer.Place(i); ok {
			used += demand(&jobs[i])
			r.Placed++
		} else {
			r.Failed++
		}
		b.add(arrived, used, placer.Fragmentation())
	}
	b.close()
	r.Points = b.points
	return r, nil
}

// demand is what a pod asks for of all GPUs together.
func demand(j *cluster.Job) unit.MilliGPU { return unit.MilliGPU(j.Workers) * j.Share }
