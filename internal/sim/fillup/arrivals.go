package fillup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand"
	"slices"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/unit"
)

// discarded is how many numbers the study's simulator draws for things of its own between arrivals and labels.
const discarded = 10

// arrivals is the pods in order of arrival and the label of each node, in the study's order of draws from one
// generator: all pods shuffled, then pods drawn with replacement from the list in name order until the next would
// exceed limit (in thousandths of a GPU), then a permutation of the nodes. The test against the limit counts one GPU
// of the pod drawn, however many it asks for: the study's rule, kept.
func arrivals(ctx context.Context, pods []cluster.Job, nodes int, limit float64, seed int64) ([]cluster.Job, []int, error) {
	r := rand.New(rand.NewSource(seed))
	r.Int() // the study seeds something else with it
	jobs := slices.Clone(pods)
	r.Shuffle(len(jobs), func(i, j int) { jobs[i], jobs[j] = jobs[j], jobs[i] })

	var total unit.MilliGPU
	for i := range pods {
		total += demand(&pods[i])
	}
	if total <= 0 {
		return nil, nil, errors.New("fill up: no pod asks for a GPU")
	}
	byName := slices.Clone(pods)
	slices.SortStableFunc(byName, func(a, b cluster.Job) int { return cmp.Compare(a.ID, b.ID) })
	for {
		if err := ctx.Err(); err != nil {
			return nil, nil, fmt.Errorf("fill up: %w", err)
		}
		next := &byName[r.Intn(len(byName))]
		if float64(total+next.Share) > limit {
			break
		}
		jobs = append(jobs, *next)
		total += demand(next)
	}
	for range discarded {
		r.Int63()
	}
	return jobs, r.Perm(nodes), nil
}
