package train

import (
	"context"
	"runtime"
	"sync"
)

// judged is one prediction of a sample that the fit had not seen. group is the one that was held out.
type judged struct {
	row, group  int
	mean, score float64
}

// held is what a split gives: for each group the predictions of its samples by a fit without it, and, to calibrate
// those on, every other group predicted by a fit without either. So the calibration asks what the test asks, "what
// if a group is new", and has seen nothing of the test. Too few groups give no calibration.
type held struct {
	folds  *folds
	tests  [][]judged
	calibs [][]judged
}

// calibrated says whether a split of so many groups can speak for one more, with or without one of them held out.
func (f *folds) calibrated() bool { return f.random || f.groups-1 >= leastGroups }

// twoGroups are the groups that a fit goes without; they may be the same.
type twoGroups struct{ a, b int }

// cross fits a learner without each group and, for the calibration, without each two: k (k+1) / 2 fits for k groups.
func cross(ctx context.Context, d *Data, l Learner, f *folds, seed uint64, fitted func()) (*held, error) {
	todo := f.fits()
	found := make([][]judged, len(todo))
	parallel(ctx, len(todo), func(n int) {
		predict := without(d, l, f, todo[n], seed)
		for i := range d.y {
			// only samples of one of the two are judged: those of both would be new twice over
			inA, inB := f.in(i, todo[n].a), f.in(i, todo[n].b)
			if todo[n].a == todo[n].b && inA || inA != inB {
				mean, score := predict(i)
				group := todo[n].a
				if !inA {
					group = todo[n].b
				}
				found[n] = append(found[n], judged{i, group, mean, score})
			}
		}
		fitted()
	})
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return gather(f, todo, found), nil
}

// gather files the predictions of each fit: those of a fit without one group are tests, and those of a fit without
// two calibrate each of them by the other.
func gather(f *folds, todo []twoGroups, found [][]judged) *held {
	h := &held{f, make([][]judged, f.groups), make([][]judged, f.groups)}
	for n, t := range todo {
		if t.a == t.b {
			h.tests[t.a] = found[n]
			continue
		}
		for _, s := range found[n] {
			other := t.a
			if s.group == t.a {
				other = t.b
			}
			h.calibs[other] = append(h.calibs[other], s)
		}
	}
	return h
}

// fits are what a split needs fitted.
func (f *folds) fits() []twoGroups {
	var todo []twoGroups
	for a := range f.groups {
		for b := a; b < f.groups; b++ {
			if a == b || f.calibrated() {
				todo = append(todo, twoGroups{a, b})
			}
		}
	}
	return todo
}

// without fits on the samples of neither group. With none left it knows nothing.
func without(d *Data, l Learner, f *folds, t twoGroups, seed uint64) predictor {
	var kept []int
	for i := range d.y {
		if !f.in(i, t.a) && !f.in(i, t.b) {
			kept = append(kept, i)
		}
	}
	if len(kept) == 0 {
		return func(int) (float64, float64) { return ignorance, leastRate }
	}
	return l.fit(d, kept, seed)
}

// ignorance is the rate that is expected where there is no data at all: two jobs that take turns.
const ignorance = 0.5

// parallel runs n independent tasks on all processors and waits for them. What a task writes is its own, so the
// result does not depend on the order. It stops starting tasks when the context ends.
func parallel(ctx context.Context, n int, task func(int)) {
	var wait sync.WaitGroup
	next := make(chan int)
	for range min(n, runtime.GOMAXPROCS(0)) {
		wait.Go(func() {
			for i := range next {
				task(i)
			}
		})
	}
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		next <- i
	}
	close(next)
	wait.Wait()
}
