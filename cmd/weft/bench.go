package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"weft.dev/weft/internal/bench"
	"weft.dev/weft/internal/device"
	"weft.dev/weft/internal/emugpu"
	"weft.dev/weft/internal/report"
)

// benchCommand measures a node.
type benchCommand struct {
	GPU      int           `name:"gpu" default:"0" help:"Index of the GPU to measure on. Nothing else should use it meanwhile."`
	Emulate  bool          `help:"Measure on an emulated GPU: what weft itself costs, without a GPU."`
	Duration time.Duration `default:"2s" help:"Length of one run: longer is steadier."`
	JSON     bool          `name:"json" help:"Write JSON."`
}

// Help is what weft bench --help adds.
func (*benchCommand) Help() string {
	return `Measures what weft costs on a node and whether it holds what it promises: run it on each new node. It starts an
agent of its own and programs under it, for about a minute. Exit 1 says that a limit was exceeded.

Examples:
  weft bench --emulate        on any machine
  weft bench --gpu 1 --json   on the second GPU, for a program`
}

// Run implements the command.
func (c *benchCommand) Run(ctx context.Context, s *session) error {
	if c.Duration < 200*time.Millisecond {
		return asInput(flagError("--duration", c.Duration.String(), "a run of "+c.Duration.String()+" is too short to tell anything",
			"a figure needs some hundred iterations", "2s, or at least 200ms"), c.JSON)
	}
	if c.GPU < 0 || c.Emulate && c.GPU >= emugpu.MaxGPUs {
		return asInput(flagError("--gpu", strconv.Itoa(c.GPU), fmt.Sprintf("no GPU %d", c.GPU), "GPUs are numbered from 0", "--gpu 0"), c.JSON)
	}
	programs, err := libraries()
	if err != nil {
		return asInput(err, c.JSON)
	}
	weft, err := os.Executable()
	if err != nil {
		return err
	}
	o := bench.Options{Weft: weft, Programs: programs, GPU: c.GPU}
	if c.Emulate {
		o.Emulated = c.GPU + 1
	} else if err := findGPU(c.GPU); err != nil {
		return asInput(err, c.JSON)
	}
	bed, err := bench.Open(ctx, o)
	if err != nil {
		return err
	}
	result, err := bench.All(ctx, bed, bench.Scale(c.Duration), func(stage, of int, name string) {
		s.progress.Report("bench", stage, of, name)
	})
	s.progress.Done()
	err = errors.Join(err, bed.Close())
	if c.JSON {
		s.writeJSON(result)
		return err
	}
	return errors.Join(err, writeBench(s, &result, c.Emulate))
}

// findGPU says what is wrong where there is no GPU of that number to measure on.
func findGPU(number int) error {
	machine, err := device.Open("")
	if err != nil {
		return flagError("--gpu", strconv.Itoa(number), fmt.Sprintf("no GPU to measure on: %v", err), "", "--emulate measures on an emulated one")
	}
	if n := len(machine.GPUs()); number >= n {
		err = flagError("--gpu", strconv.Itoa(number), fmt.Sprintf("no GPU %d", number), fmt.Sprintf("this machine has %d, numbered from 0", n), "--gpu 0")
	}
	return errors.Join(err, machine.Close())
}

// writeBench writes the table of a result, and returns an error if a limit was exceeded.
func writeBench(s *session, r *bench.Result, emulated bool) error {
	where := ""
	if emulated {
		where = "(emulated)"
	}
	t := &report.Table{Columns: []report.Column{
		{Title: "CHECK"}, {Title: "RESULT", Number: true}, {Title: "LIMIT", Number: true}, {Title: where},
	}}
	exceeded := 0
	for _, check := range r.Checks() {
		row := report.Cells(check.Name, check.Result, check.Limit, check.Verdict())
		if check.Known && !check.Held {
			row[3].Mark = report.Bad
			exceeded++
		}
		t.Rows = append(t.Rows, row)
	}
	if err := t.Write(s.stdout, s.screen); err != nil {
		return err
	}
	if exceeded > 0 {
		return fmt.Errorf("%d of %d limits exceeded: is something else using this machine or its GPU?", exceeded, len(t.Rows))
	}
	return nil
}
