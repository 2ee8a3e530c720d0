package train

import (
	"math"
	"slices"

	"weft.dev/weft/internal/interference/model"
)

// calibration says how residuals become bounds.
type calibration struct {
	coverage float64
	run      int  // samples of a run
	grouped  bool // groups were held out, not samples at random: a bound must hold in each group of a run
}

// How many samples a run has: of 60, at 90 %, five are below its bound. Where each group of a run is asked for itself,
// runs are longer, and a group of fewer than leastGroup samples in it has no say.
const (
	randomRun  = 60
	groupRun   = 100
	leastGroup = 10
)

// leastGroups is the fewest groups that held-out residuals must come from to speak for a group that is new. Of k
// groups the next may be the worst with chance 1/(k+1): with fewer than five, that is far above any nominal rate.
const leastGroups = 5

// calibrationOf is that of a split.
func calibrationOf(f *folds, coverage float64) calibration {
	if f.random {
		return calibration{coverage: coverage, run: randomRun}
	}
	return calibration{coverage: coverage, run: groupRun, grouped: true}
}

// calibrateEach makes a bound for each GPU model of the layout, from its own samples or, where they are fewer than a
// run, from all.
func calibrateEach(d *Data, calib []judged, c calibration) []model.Bound {
	bounds := make([]model.Bound, len(d.Layout.GPUs))
	for g, gpu := range d.Layout.GPUs {
		var some []judged
		for _, s := range calib {
			if d.Pairs[s.row/2].GPU == gpu {
				some = append(some, s)
			}
		}
		if len(some) < c.run {
			some = calib
		}
		bounds[g] = calibrate(d, some, c)
	}
	return bounds
}

// calibrate makes the bounds of a score from samples that the fit had not seen (Mondrian conformal prediction, Vovk et
// al. 2003, with the score as the category). Samples are cut by score into runs, and a run's bound is the largest rate
// that at most a share 1 - coverage of its n samples (n+1, counting the one to come) is below, in the run and in each
// held-out group in it. Where a higher run has a lower bound, it holds below too. So among samples like these a share
// of at least coverage has its rate at or above the bound, and the same holds among those whose bound reaches any
// floor: the false admits, which a bound with one offset for all scores does not limit.
func calibrate(d *Data, calib []judged, c calibration) model.Bound {
	if len(calib) == 0 {
		return model.Bound{}
	}
	sorted := slices.Clone(calib)
	slices.SortFunc(sorted, func(a, b judged) int {
		switch {
		case a.score < b.score:
			return -1
		case a.score > b.score:
			return 1
		}
		return a.row - b.row
	})
	runs := max(1, len(sorted)/c.run)
	bound := model.Bound{High: highOf(d, calib, c.coverage)}
	low := 1.0
	for r := runs - 1; r >= 0; r-- {
		run := sorted[r*len(sorted)/runs : (r+1)*len(sorted)/runs]
		low = min(low, c.safe(d, run))
		bound.Knots = append(bound.Knots, model.Knot{Score: round(run[0].score), Low: low})
	}
	slices.Reverse(bound.Knots)
	return bound
}

// safe is the bound of one run.
func (c *calibration) safe(d *Data, run []judged) float64 {
	low := safeRate(d, run, 1-c.coverage)
	if !c.grouped {
		return low
	}
	byGroup := map[int][]judged{}
	for _, s := range run {
		byGroup[s.group] = append(byGroup[s.group], s)
	}
	for _, some := range byGroup {
		if len(some) >= leastGroup {
			low = min(low, safeRate(d, some, 1-c.coverage))
		}
	}
	return low
}

// safeRate is the floor(miss (n+1))-th smallest rate of some samples; 0 when that is none of them.
func safeRate(d *Data, some []judged, miss float64) float64 {
	rates := make([]float64, len(some))
	for i, s := range some {
		rates[i] = d.y[s.row]
	}
	slices.Sort(rates)
	at := int(math.Floor(miss*float64(len(rates)+1)+rounding)) - 1
	if at < 0 {
		return 0
	}
	return rates[at]
}

// rounding is more than products of shares and counts are off by.
const rounding = 1e-9

// highOf is the offset that the share coverage of rates do not exceed the mean by.
func highOf(d *Data, calib []judged, coverage float64) float64 {
	above := make([]float64, len(calib))
	for i, s := range calib {
		above[i] = d.y[s.row] - s.mean
	}
	return round(max(0, Quantile(above, coverage)))
}
