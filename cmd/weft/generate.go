package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/trace"
	"weft.dev/weft/internal/workload"
)

// generateCommand writes a synthetic job log.
type generateCommand struct {
	Jobs   int      `default:"1000" help:"Jobs to write, 1 to 10,000,000."`
	Days   float64  `default:"7" help:"Days over which they are submitted."`
	Mix    string   `default:"light" enum:"light,gentle,whole" help:"Models: the 13 gentlest P100 configurations of the built-in pairs, the 8 gentlest of them, or all 26."`
	Floor  float64  `default:"0.85" help:"Floor of every job, in (0, 1]."`
	Copies positive `placeholder:"N" help:"Instead of a log: N jobs of every configuration of the mix, without times."`
	Users  int      `default:"20" help:"Users that submit them."`
	Seed   uint64   `default:"42" help:"Equal seeds give equal logs."`
}

// Help is what weft generate --help adds.
func (generateCommand) Help() string {
	return `Arrivals, run times and gang sizes follow the published Philly traces.

Examples:
  weft generate > jobs.csv
  weft generate --jobs 20000 --days 30 --mix whole --seed 7 > jobs.csv
  weft generate --copies 8 > mix.csv`
}

// Run implements the command.
func (c *generateCommand) Run(ctx context.Context, s *session) error {
	if err := c.check(); err != nil {
		return asInput(err, false)
	}
	mix := workload.MixNamed(c.Mix)
	s.progress.Report("generate", 0, c.Jobs, "jobs")
	jobs, ok := await(ctx, func() []cluster.Job {
		if c.Copies > 0 {
			return workload.Copies(mix, int(c.Copies), c.Floor)
		}
		return workload.Generate(workload.Options{Jobs: c.Jobs, Span: time.Duration(c.Days * 24 * float64(time.Hour)), Mix: mix,
			Floor: c.Floor, Users: c.Users, Seed: c.Seed})
	})
	if !ok {
		return ctx.Err()
	}
	return trace.WriteJobs(untilDone{ctx, s.stdout}, jobs, c.Copies == 0)
}

func (c *generateCommand) check() error {
	var faults []error
	if c.Jobs < 1 || c.Jobs > 10_000_000 {
		faults = append(faults, flagError("--jobs", fmt.Sprint(c.Jobs), fmt.Sprintf("%d jobs are outside [1, 10,000,000]", c.Jobs), "", "write a number in that range"))
	}
	if !(c.Days > 0 && c.Days <= 36500) {
		faults = append(faults, flagError("--days", fmt.Sprint(c.Days), fmt.Sprintf("%v days are outside (0, 36500]", c.Days), "", "7 for a week"))
	}
	if !(c.Floor > 0 && c.Floor <= 1) {
		faults = append(faults, flagError("--floor", fmt.Sprint(c.Floor), fmt.Sprintf("floor %v is outside (0, 1]", c.Floor), "", "0.85 for 85 %"))
	}
	if c.Copies > 100_000 {
		faults = append(faults, flagError("--copies", fmt.Sprint(c.Copies), fmt.Sprintf("%d copies are outside [1, 100,000]", c.Copies), "", "8"))
	}
	if c.Users < 0 || c.Users > 1_000_000 {
		faults = append(faults, flagError("--users", fmt.Sprint(c.Users), fmt.Sprintf("%d users are outside [0, 1,000,000]", c.Users), "", "20; 0 names none"))
	}
	return errors.Join(faults...)
}

// untilDone is a writer that fails once its context ended.
type untilDone struct {
	ctx context.Context
	w   io.Writer
}

// Write implements io.Writer.
func (u untilDone) Write(b []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.w.Write(b)
}
