package pollux

import (
	"context"
	"errors"
	"time"

	"weft.dev/weft/internal/trace"
	"weft.dev/weft/internal/unit"
)

// Standalone gives the run time of a job alone on an empty cluster by the rules of the replay, from its first
// allocation to its end, the restart pause included. The function keeps what it found; it is not for concurrent use.
func Standalone(ctx context.Context, profiles *trace.PolluxProfiles, nodes, gpusPerNode int) func(trace.PolluxJob) (time.Duration, error) {
	alone := newSolo(profiles, nodes, gpusPerNode)
	return func(row trace.PolluxJob) (time.Duration, error) {
		if row.Replicas > nodes*gpusPerNode {
			return 0, errors.New(tooLarge(nodes * gpusPerNode))
		}
		s, err := alone.seconds(ctx, row)
		return unit.Duration(s), err
	}
}

// solo finds standalone run times.
type solo struct {
	models             *models
	nodes, gpusPerNode int
	known              map[soloKey]float64
}

// soloKey is all that a standalone run time depends on.
type soloKey struct {
	application     string
	replicas, batch int
}

func newSolo(profiles *trace.PolluxProfiles, nodes, gpusPerNode int) *solo {
	return &solo{newModels(profiles), nodes, gpusPerNode, map[soloKey]float64{}}
}

// seconds replays a cluster that sees this one job.
func (s *solo) seconds(ctx context.Context, row trace.PolluxJob) (float64, error) {
	key := soloKey{row.Application, row.Replicas, row.Batch}
	if v, ok := s.known[key]; ok {
		return v, nil
	}
	app, err := s.models.application(row.Application)
	if err != nil {
		return 0, rowError(row, err)
	}
	row.SubmitS = 0
	j := newJob(0, row, app)
	l := &loop{policy: newTiresias(s.nodes, s.gpusPerNode), coming: []*job{j}}
	if err := l.run(ctx); err != nil {
		return 0, err
	}
	s.known[key] = j.executed
	return j.executed, nil
}
