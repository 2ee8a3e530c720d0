package sim_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/policy"
	"weft.dev/weft/internal/sim"
	"weft.dev/weft/internal/unit"
)

// TestSRTFIsOptimal compares SRTF on one GPU with the best of all preemptive schedules, for whole seconds.
func TestSRTFIsOptimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		jobs := drawJobs(t, 4, 1, false)
		for i := range jobs {
			jobs[i].Submit /= 2
			jobs[i].Submit -= jobs[i].Submit % unit.Seconds(1)
			jobs[i].Duration = min(jobs[i].Duration, 4*time.Second)
		}
		c := cluster.Uniform(1, 1)
		r := mustRun(t, sim.Config{Cluster: c, Jobs: jobs, Order: policy.SRTF(), Placer: consolidated(c, jobs)})
		best := bestTotal(jobs)
		if got := r.AvgJCT * float64(r.Jobs); math.Abs(got-float64(best)) > 1e-6 {
			t.Errorf("total completion time %g s, the best is %d s", got, best)
		}
	})
}

// bestTotal is the least sum of completion times in seconds, by trying every job in every second.
func bestTotal(jobs []cluster.Job) int {
	type key struct {
		at   int
		left [4]int
	}
	known := map[key]int{}
	var search func(key) int
	search = func(k key) int {
		if v, ok := known[k]; ok {
			return v
		}
		best, waiting, live := math.MaxInt32, false, 0
		for i := range jobs {
			if k.left[i] > 0 {
				waiting = true
				if int(jobs[i].Submit.Seconds()) <= k.at {
					live++
				}
			}
		}
		if !waiting {
			return 0
		}
		next := k
		next.at++
		if live == 0 {
			best = search(next)
		}
		for i := range jobs {
			if k.left[i] > 0 && int(jobs[i].Submit.Seconds()) <= k.at {
				n := next
				n.left[i]--
				best = min(best, live+search(n)) // each live job is in the system for this second
			}
		}
		known[k] = best
		return best
	}
	var start key
	for i := range jobs {
		start.left[i] = int(jobs[i].Duration / time.Second)
	}
	return search(start)
}

// TestPreemptiveOrders compares the preemptive orders, for jobs of one GPU each, with a replay second by second that
// sorts all live jobs and runs the first ones.
func TestPreemptiveOrders(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		jobs := drawJobs(t, 12, 1, false)
		for i := range jobs {
			jobs[i].Duration += time.Second
		}
		c, order := cluster.Uniform(rapid.IntRange(1, 3).Draw(t, "nodes"), 2), drawOrder(t)
		if !order.Preemptive {
			return
		}
		r := mustRun(t, sim.Config{Cluster: c, Jobs: jobs, Order: order, Placer: consolidated(c, jobs)})
		ends := tickByTick(jobs, c.GPUs(), order)
		for i, o := range r.Outcomes {
			if o.End != ends[i] {
				t.Errorf("%s: job %d ends at %g s, second by second at %g s", order.Name, i, o.End.Seconds(), ends[i].Seconds())
			}
		}
		if r.Migrations != 0 {
			t.Errorf("%d migrations, though any GPU will do", r.Migrations)
		}
	})
}

func tickByTick(jobs []cluster.Job, gpus int, order policy.Order) []unit.Time {
	type live struct {
		queue          int
		since          unit.Time
		left, attained time.Duration
	}
	state, ends := make([]live, len(jobs)), make([]unit.Time, len(jobs))
	for i, j := range jobs {
		state[i] = live{since: j.Submit, left: j.Duration}
	}
	for now, done := unit.Time(0), 0; done < len(jobs); now = now.Add(time.Second) {
		var here []int
		for i, j := range jobs {
			if j.Submit <= now && state[i].left > 0 {
				here = append(here, i)
			}
		}
		rank := func(i int) int64 {
			return order.Rank(&jobs[i], policy.Standing{Remaining: state[i].left, Since: state[i].since})
		}
		slices.SortStableFunc(here, func(a, b int) int {
			if d := state[a].queue - state[b].queue; d != 0 {
				return d
			}
			return int(rank(a)/1000 - rank(b)/1000)
		})
		for _, i := range here[:min(gpus, len(here))] {
			s := &state[i]
			s.left -= time.Second
			s.attained += time.Second
			if s.queue < len(order.Limits) && s.attained >= order.Limits[s.queue] {
				s.queue, s.since = s.queue+1, now.Add(time.Second)
			}
			if s.left == 0 {
				ends[i] = now.Add(time.Second)
				done++
			}
		}
	}
	return ends
}
