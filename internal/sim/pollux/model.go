package pollux

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"weft.dev/weft/internal/trace"
)

// settings are what the published simulator fixes for an application (petuum/adaptdl, branch osdi21-artifact,
// simulator/applications.py).
type settings struct {
	initialBatch int // the batch size that progress counts in
	maxBatch     int
	epochs       int
	maxLocal     int // samples that a GPU holds; 0 means the largest measured
}

var applications = map[string]settings{
	"bert":        {12, 384, 2, 0},
	"cifar10":     {128, 4096, 100, 0},
	"deepspeech2": {20, 640, 80, 0},
	"imagenet":    {200, 12800, 90, 0},
	"ncf":         {256, 32768, 10, 0},
	"yolov3":      {8, 512, 50, 8},
}

// application is the model of one application: how fast it goes and how much a step is worth.
type application struct {
	name string
	settings
	batches []int              // measured batch sizes, ascending
	epoch   []epochMeasurement // by epoch
	times   *stepTimes
}

// epochMeasurement holds an epoch's statistics by index in application.batches.
type epochMeasurement struct {
	sqr, variance []float64
	target        float64 // progress at which the epoch is over: the least over batch sizes
}

// newApplication gathers the measurements of an application. It is an error where a batch size lacks an epoch.
func newApplication(name string, p *trace.PolluxProfiles) (*application, error) {
	fixed, known := applications[name]
	if !known {
		return nil, fmt.Errorf("no application %q in the published simulator", name)
	}
	times, err := newStepTimes(name, p.StepTimes)
	if err != nil {
		return nil, err
	}
	a := &application{name: name, settings: fixed, times: times}
	if a.maxLocal == 0 {
		a.maxLocal = times.maxLocal
	}
	return a, a.addStatistics(p.Statistics)
}

func (a *application) addStatistics(rows []trace.PolluxStatistic) error {
	byKey := map[[2]int]trace.PolluxStatistic{}
	for _, r := range rows {
		if r.Application == a.name {
			byKey[[2]int{r.Batch, r.Epoch}] = r
			a.batches = append(a.batches, r.Batch)
		}
	}
	slices.Sort(a.batches)
	a.batches = slices.Compact(a.batches)
	if len(a.batches) == 0 {
		return fmt.Errorf("no progress was measured for application %q", a.name)
	}
	for e := range a.epochs {
		m := epochMeasurement{target: math.Inf(1)}
		for _, b := range a.batches {
			r, ok := byKey[[2]int{b, e}]
			if !ok {
				return fmt.Errorf("no progress was measured for %s with batch size %d in epoch %d", a.name, b, e)
			}
			m.sqr, m.variance = append(m.sqr, r.GradSqr), append(m.variance, r.GradVar)
			m.target = min(m.target, r.Progress)
		}
		a.epoch = append(a.epoch, m)
	}
	return nil
}

// gradient is the squared norm and the variance of the gradient with a batch size in an epoch, linear between the
// measured batch sizes. It is an error outside them.
func (a *application) gradient(batch, epoch int) (sqr, variance float64, err error) {
	m := a.epoch[epoch]
	i, exact := slices.BinarySearchFunc(a.batches, batch, cmp.Compare[int])
	if exact {
		return m.sqr[i], m.variance[i], nil
	}
	if i == 0 || i == len(a.batches) {
		return 0, 0, fmt.Errorf("no gradient was measured for %s with batch size %d, only %d to %d",
			a.name, batch, a.batches[0], a.batches[len(a.batches)-1])
	}
	x, x0, x1 := float64(batch), float64(a.batches[i-1]), float64(a.batches[i])
	return line(x, x0, x1, m.sqr[i-1], m.sqr[i]), line(x, x0, x1, m.variance[i-1], m.variance[i]), nil
}

// split is how a batch is spread: accumulate+1 passes of local samples on each replica, one synchronisation.
type split struct{ replicas, local, accumulate int }

// roundingSlack keeps a quotient that is whole but for rounding from being rounded up.
const roundingSlack = 1e-8

func ceilQuotient(a, b int) int { return int(math.Ceil(float64(a)/float64(b) - roundingSlack)) }

// split spreads a batch over replicas so that a pass fits in a GPU.
func (a *application) split(batch, replicas int) split {
	perReplica := ceilQuotient(batch, replicas)
	s := split{replicas: replicas, accumulate: ceilQuotient(perReplica, a.maxLocal) - 1}
	if replicas == 1 && batch > a.initialBatch {
		s.accumulate = max(1, s.accumulate) // one replica measures gradient noise between passes
	}
	passes := s.accumulate + 1
	s.local = min(ceilQuotient(perReplica, passes), a.maxBatch/(replicas*passes))
	return s
}

func (s split) batch() int { return s.replicas * s.local * (s.accumulate + 1) }

// goodput is progress per second: the worth of a step against one of the initial batch size, over its time.
func (a *application) goodput(s split, t stepTime, epoch int) (float64, error) {
	sqr, variance, err := a.gradient(s.batch(), epoch)
	if err != nil {
		return 0, err
	}
	scale := float64(s.batch()) / float64(a.initialBatch)
	gain := (variance + sqr) / (variance/scale + sqr)
	return gain / (t.step + float64((t.step-t.sync)*float64(s.accumulate))), nil
}
