package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"weft.dev/weft/internal/demo"
	"weft.dev/weft/internal/unit"
)

// demoCommand shows what weft does for a group of jobs on a box of emulated GPUs, or for a log.
type demoCommand struct {
	Plan bool   `help:"Show what weft says of a job log instead: plan and simulate a generated cluster. A few seconds."`
	Dir  string `placeholder:"DIR" help:"Where to put the report (with --plan: and the log). Default: a new temporary folder."`
	JSON bool   `name:"json" help:"Write JSON, and a report only with --dir."`

	Mix    string        `hidden:"" enum:"typical,saturated,light" default:"typical" help:"From which configurations of the catalogue jobs are drawn."`
	Jobs   int           `hidden:"" default:"16" help:"How many."`
	Length time.Duration `hidden:"" default:"11s" help:"Mean length of a job alone."`
	Memory unit.Bytes    `hidden:"" default:"24GiB" help:"Of each GPU."`
	Seed   uint64        `hidden:"" default:"42" help:"Of the draw."`
}

// demoGPUs is how many GPUs the box of the demo has.
const demoGPUs = 4

// Help is what weft demo --help adds.
func (demoCommand) Help() string {
	return `Runs a group of 16 training jobs on four emulated GPUs three times: each job on a GPU of its own, all at once by
the driver's time slices, and under weft. The jobs are real processes that use an emulated GPU as models of the
catalogue do. No GPU, no cluster and no download is needed. Takes two to three minutes and both of two processors.

Examples:
  weft demo
  weft demo --plan`
}

// Run implements the command.
func (c *demoCommand) Run(ctx context.Context, s *session) error {
	if c.Jobs < 1 || c.Jobs > 64 || c.Length < time.Second {
		return asInput(flagError("--jobs, --length", "", fmt.Sprintf("%d jobs of %v", c.Jobs, c.Length), "1 to 64 jobs of at least 1s", "leave both out"), c.JSON)
	}
	if c.Plan && c.JSON {
		return asInput(flagError("--json", "", "--plan shows other commands, each with a --json of its own", "", "leave out --json"), true)
	}
	dir, drop, err := c.dir()
	if err != nil {
		return asInput(err, c.JSON)
	}
	if c.Plan {
		err = c.plan(ctx, s, dir)
	} else {
		err = c.box(ctx, s, dir)
	}
	if err != nil {
		return errors.Join(err, drop())
	}
	return nil
}

// dir is the folder for what the demo leaves behind: "" for none. drop removes it again if it is new.
func (c *demoCommand) dir() (dir string, drop func() error, err error) {
	keep := func() error { return nil }
	switch {
	case c.Dir != "":
		return c.Dir, keep, os.MkdirAll(c.Dir, 0o755)
	case c.JSON:
		return "", keep, nil
	}
	dir, err = os.MkdirTemp("", "weft-demo-")
	return dir, func() error { return os.RemoveAll(dir) }, err
}

// box runs a group in each mode, and writes what came of it.
func (c *demoCommand) box(ctx context.Context, s *session, dir string) error {
	setup, err := c.setup()
	if err != nil {
		return asInput(err, c.JSON)
	}
	var report *target
	if dir != "" {
		if report, err = openTarget(filepath.Join(dir, "report.html")); err != nil {
			return asInput(err, c.JSON)
		}
		defer report.drop()
	}
	study := demoStudy{command: c, setup: setup}
	for i, mode := range demo.Modes() {
		setup.Told = told(s, fmt.Sprintf("[%d/%d %s]", i+1, len(demo.Modes()), mode), len(setup.Group))
		run, err := demo.Execute(ctx, mode, setup)
		s.progress.Done()
		if err != nil {
			return fmt.Errorf("%s: %w", mode, err)
		}
		study.add(run)
	}
	return study.write(s, report)
}

// setup is the box and the group.
func (c *demoCommand) setup() (demo.Setup, error) {
	programs, err := libraries()
	if err != nil {
		return demo.Setup{}, err
	}
	weft, err := os.Executable()
	if err != nil {
		return demo.Setup{}, err
	}
	gpus, err := (&emugpuServeCommand{GPUs: demoGPUs, Model: []string{"a10"}, Memory: c.Memory}).devices()
	if err != nil {
		return demo.Setup{}, err
	}
	group, err := demo.Group(demo.Mix(c.Mix), c.Jobs, c.Length*7/11, c.Length*15/11, gpus[0], c.Seed)
	if err != nil {
		err = flagError("--memory", c.Memory.String(), err.Error(), "", "leave --memory out")
	}
	return demo.Setup{Weft: weft, Programs: programs, GPUs: gpus, Memory: c.Memory, Group: group}, err
}

// told shows how far a mode is. The time left is what the rest takes at the mean speed so far.
func told(s *session, stage string, jobs int) func(int, float64) {
	begun := s.clock()
	return func(done int, share float64) {
		var left time.Duration
		if passed := s.clock().Sub(begun); share > 0.02 {
			left = time.Duration(float64(passed) * (1 - share) / share)
		}
		s.progress.ReportLeft(stage, done, jobs, "jobs", left)
	}
}
