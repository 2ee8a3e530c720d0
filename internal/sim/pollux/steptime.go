package pollux

import (
	"cmp"
	"fmt"
	"slices"

	"weft.dev/weft/internal/trace"
)

// stepTime is an iteration of an allocation: all of it, and the part that goes into synchronisation, in seconds.
type stepTime struct{ step, sync float64 }

// point is a measured step time at a batch size per replica.
type point struct {
	local int
	stepTime
}

// shape is what is known of a placement beside its exact form.
type shape struct{ nodes, replicas int }

// query is a step time asked for where nothing was measured.
type query struct {
	application            string
	nodes, replicas, local int
}

// interpolated are the step times of the published workloads for numbers of nodes and replicas that were not
// measured. The published simulator (petuum/adaptdl, branch osdi21-artifact, simulator/applications.py) interpolates
// them in a triangulation of all measurements by nodes, replicas and local batch; these are the values it finds.
var interpolated = map[query]stepTime{
	{"bert", 5, 16, 12}:       {1.845758, 0.9535585},
	{"cifar10", 5, 12, 341}:   {0.28723568763, 0.02253734067},
	{"cifar10", 5, 16, 256}:   {0.22946775333, 0.02213076667},
	{"cifar10", 7, 16, 256}:   {0.24714325333, 0.05081926667},
	{"imagenet", 7, 24, 134}:  {0.75071354167, 0.07941891667},
	{"imagenet", 9, 32, 200}:  {1.0808085, 0.08314275},
	{"imagenet", 10, 32, 200}: {1.068365, 0.0712385},
	{"imagenet", 13, 48, 134}: {0.771043, 0.093348},
}

// stepTimes are one application's measurements, each list by local batch.
type stepTimes struct {
	byPlacement map[string][]point
	byShape     map[shape][]point // means over the placements of a shape
	maxLocal    int               // largest local batch measured for a placement
}

func newStepTimes(application string, rows []trace.PolluxStepTime) (*stepTimes, error) {
	s := &stepTimes{byPlacement: map[string][]point{}, byShape: map[shape][]point{}}
	for _, r := range rows {
		if r.Application != application {
			continue
		}
		p := point{r.LocalBatch, stepTime{r.StepS, r.SyncS}}
		at := shape{r.Nodes, r.Replicas}
		s.byShape[at] = append(s.byShape[at], p)
		if r.Placement != "" {
			s.byPlacement[r.Placement] = append(s.byPlacement[r.Placement], p)
			s.maxLocal = max(s.maxLocal, r.LocalBatch)
		}
	}
	if s.maxLocal == 0 {
		return nil, fmt.Errorf("no step time was measured for a placement of application %q", application)
	}
	for at, points := range s.byShape {
		s.byShape[at] = meanByBatch(points)
	}
	for placement, points := range s.byPlacement {
		s.byPlacement[placement] = meanByBatch(points)
	}
	return s, nil
}

// meanByBatch sorts points by local batch and joins those of one batch into their mean.
func meanByBatch(points []point) []point {
	slices.SortStableFunc(points, func(a, b point) int { return cmp.Compare(a.local, b.local) })
	joined := points[:0]
	for len(points) > 0 {
		n := 1
		sum := points[0].stepTime
		for ; n < len(points) && points[n].local == points[0].local; n++ {
			sum.step += points[n].step
			sum.sync += points[n].sync
		}
		joined = append(joined, point{points[0].local, stepTime{sum.step / float64(n), sum.sync / float64(n)}})
		points = points[n:]
	}
	return joined
}

// source says where a step time comes from.
type source uint8

const (
	measured  source = iota // or interpolated as the published simulator does
	estimated               // weft's own estimate
)

// at is the step time of a placement with a local batch: from the measurements of that placement, else from the
// means of all with as many nodes and replicas, linear in the local batch; else one of interpolated; else an
// estimate between neighbouring numbers of nodes. It is an error where none of them covers the local batch.
func (s *stepTimes) at(application string, placement []int, local int) (stepTime, source, error) {
	if points, ok := s.byPlacement[rotationKey(placement)]; ok {
		if t, ok := linear(points, local); ok {
			return t, measured, nil
		}
	}
	at := shape{nodes: len(placement)}
	for _, n := range placement {
		at.replicas += n
	}
	if t, ok := linear(s.byShape[at], local); ok {
		return t, measured, nil
	}
	if t, ok := interpolated[query{application, at.nodes, at.replicas, local}]; ok {
		return t, measured, nil
	}
	if t, ok := s.between(at, local); ok {
		return t, estimated, nil
	}
	return stepTime{}, estimated, fmt.Errorf("no step time was measured for %s on %d replicas on %d nodes with %d samples each",
		application, at.replicas, at.nodes, local)
}

// between is linear between the nearest measured numbers of nodes, fewer and more, with as many replicas. The
// published simulator triangulates instead; for the shapes in interpolated the two differ by at most 1.1 %.
func (s *stepTimes) between(at shape, local int) (stepTime, bool) {
	fewer, more := at, at
	var low, high stepTime
	for found := false; !found; {
		if fewer.nodes--; fewer.nodes < 1 {
			return stepTime{}, false
		}
		low, found = linear(s.byShape[fewer], local)
	}
	for found := false; !found; {
		if more.nodes++; more.nodes > at.replicas {
			return stepTime{}, false
		}
		high, found = linear(s.byShape[more], local)
	}
	x, x0, x1 := float64(at.nodes), float64(fewer.nodes), float64(more.nodes)
	return stepTime{line(x, x0, x1, low.step, high.step), line(x, x0, x1, low.sync, high.sync)}, true
}

// linear interpolates between neighbouring points; not beyond the first and last.
func linear(points []point, local int) (stepTime, bool) {
	i, exact := slices.BinarySearchFunc(points, local, func(p point, v int) int { return cmp.Compare(p.local, v) })
	if exact {
		return points[i].stepTime, true
	}
	if i == 0 || i == len(points) {
		return stepTime{}, false
	}
	a, b := points[i-1], points[i]
	return stepTime{
		line(float64(local), float64(a.local), float64(b.local), a.step, b.step),
		line(float64(local), float64(a.local), float64(b.local), a.sync, b.sync),
	}, true
}

// line is the value at x of the line through (x0, y0) and (x1, y1).
func line(x, x0, x1, y0, y1 float64) float64 {
	slope := (y1 - y0) / (x1 - x0)
	return float64(slope*(x-x0)) + y0
}

// rotationKey writes the lexicographically smallest rotation of a placement, a digit per node. Placements with a
// node of ten or more replicas were not measured and have no key.
func rotationKey(placement []int) string {
	digits := make([]byte, len(placement))
	for i, n := range placement {
		if n > 9 {
			return ""
		}
		digits[i] = byte('0' + n)
	}
	twice := string(digits) + string(digits)
	key := string(digits)
	for i := range digits {
		key = min(key, twice[i:i+len(digits)])
	}
	return key
}
