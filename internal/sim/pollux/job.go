package pollux

import (
	"fmt"
	"math"

	"weft.dev/weft/internal/trace"
)

// restartS is how long a job stands still after each change of its allocation, its first start included, in seconds:
// a figure of the published simulator.
const restartS = 30

// job is the state of one job.
type job struct {
	index    int // in the caller's list
	row      trace.PolluxJob
	app      *application
	split    split
	nodes    []int // node of each group of replicas, in order of allocation; none while it waits
	groups   []int // replicas on each of nodes
	time     stepTime
	pause    float64 // s of standstill left
	progress float64
	epoch    int
	done     bool
	end      float64 // s

	begun       bool
	start       float64 // s, of the first allocation
	executed    float64 // s with an allocation
	preemptions int
	estimates   int // allocations whose step time is an estimate

	attained float64 // Tiresias: s of running as its rounds count it
}

func newJob(index int, row trace.PolluxJob, app *application) *job {
	return &job{index: index, row: row, app: app, split: app.split(row.Batch, row.Replicas)}
}

func (j *job) allocated() bool { return len(j.nodes) > 0 }

// allocate starts the job on new GPUs at now.
func (j *job) allocate(now float64, nodes, groups []int) error {
	t, from, err := j.app.times.at(j.app.name, groups, j.split.local)
	if err != nil {
		return rowError(j.row, err)
	}
	if from == estimated {
		j.estimates++
	}
	if !j.begun {
		j.begun, j.start = true, now
	}
	j.nodes, j.groups, j.time, j.pause = nodes, groups, t, restartS
	return nil
}

func rowError(row trace.PolluxJob, err error) error {
	return fmt.Errorf("job %q on line %d: %w", row.Name, row.Line, err)
}

// advance lets the job run from now for some seconds. Within them it may pass several epochs, each after a whole
// number of seconds, as the published simulator has it.
func (j *job) advance(now, seconds float64) error {
	if !j.allocated() || j.done {
		return nil
	}
	left := seconds - min(j.pause, seconds)
	j.pause -= seconds - left
	for left > 0 {
		goodput, err := j.app.goodput(j.split, j.time, j.epoch)
		if err != nil {
			return rowError(j.row, err)
		}
		target := j.app.epoch[j.epoch].target
		if j.progress+float64(goodput*left) < target {
			j.progress += float64(goodput * left)
			break
		}
		j.epoch++
		left -= math.RoundToEven((target - j.progress) / goodput)
		j.progress = target
		if j.epoch == j.app.epochs {
			j.done, j.end = true, now+seconds-left
			seconds -= left
			break
		}
	}
	j.executed += seconds
	return nil
}
