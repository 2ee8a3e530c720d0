package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"weft.dev/weft/internal/emugpu"
	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/trace"
	"weft.dev/weft/internal/unit"
)

// emugpuStatsCommand shows the figures of emulated GPUs.
type emugpuStatsCommand struct {
	Socket string `required:"" env:"WEFT_EMU_SOCKET" placeholder:"PATH" help:"Where weft emugpu serves. Default: $WEFT_EMU_SOCKET."`
	JSON   bool   `name:"json" help:"Write JSON for programs."`
}

// Help is what weft emugpu stats --help adds.
func (emugpuStatsCommand) Help() string {
	return `Times are those of the GPUs, computed and not measured. With an agent that audits its tokens (weft agent --emulate),
the launches that broke them are counted.

Examples:
  weft emugpu stats --socket /run/gpus.sock
  weft emugpu stats --json`
}

// Run implements the command.
func (c *emugpuStatsCommand) Run(s *session) error {
	o, err := dialEmulated(c.Socket, c.JSON)
	if err != nil {
		return err
	}
	defer o.Close()
	stats, err := o.Stats()
	if err != nil {
		return err
	}
	if c.JSON {
		s.writeJSON(stats)
		return nil
	}
	return writeEmulated(s, &stats)
}

// dialEmulated connects to emulated GPUs.
func dialEmulated(socket string, asJSON bool) (*emugpu.Observer, error) {
	o, err := emugpu.Dial(socket)
	var gone *emugpu.UnreachableError
	if errors.As(err, &gone) {
		return nil, &failure{inputError{trace.Errors{{Code: "unreachable", File: socket, Message: "no emulated GPUs: " + gone.Why,
			Fix: "weft emugpu --socket " + shellWord(socket)}}, asJSON}, exitUnreachable}
	}
	return o, err
}

// writeEmulated writes the figures as tables.
func writeEmulated(s *session, stats *emugpu.Stats) error {
	gpus := &report.Table{Columns: []report.Column{{Title: "GPU"}, {Title: "NAME", Shrink: true}, {Title: "HEALTH"}, {Title: "BUSY", Number: true},
		{Title: "SWITCHING", Number: true}, {Title: "IN USE", Number: true}, {Title: "USABLE", Number: true}, {Title: "LAUNCHES", Number: true}}}
	for _, g := range stats.GPUs {
		health := g.Health
		if g.LastXID > 0 {
			health += fmt.Sprintf(" XID %d", g.LastXID)
		}
		gpus.Rows = append(gpus.Rows, report.Cells(fmt.Sprintf("gpu%d", g.Index), g.Name, health, part(g.Busy, stats.Now), part(g.Switching, stats.Now),
			g.Used.String(), g.Usable.String(), report.Count(int(g.Launches))))
	}
	processes := &report.Table{Columns: []report.Column{{Title: "PID", Number: true}, {Title: "NAME", Shrink: true}, {Title: "GPU"}, {Title: "BUSY", Number: true},
		{Title: "KERNELS", Number: true}, {Title: "IN USE", Number: true}, {Title: "PEAK", Number: true}, {Title: "STATE"}}}
	for _, p := range stats.Processes {
		state := "attached"
		if p.Ended {
			state = "ended"
		}
		for _, g := range p.GPUs {
			processes.Rows = append(processes.Rows, report.Cells(strconv.Itoa(int(p.PID)), p.Name, fmt.Sprintf("gpu%d", g.Index),
				report.Elapsed(g.Busy), report.Count(int(g.Kernels)), g.Bytes.String(), g.Peak.String(), state))
		}
	}
	err := gpus.Write(s.stdout, s.screen)
	if len(processes.Rows) > 0 {
		_, blank := fmt.Fprintln(s.stdout)
		err = errors.Join(err, blank, processes.Write(s.stdout, s.screen))
	}
	return errors.Join(err, writeVerdict(s, stats))
}

// part is a share of the time so far.
func part(d time.Duration, now unit.Time) string {
	if now <= 0 {
		return report.None
	}
	return report.Percent(float64(d) / float64(now))
}

func writeVerdict(s *session, stats *emugpu.Stats) error {
	_, err := fmt.Fprintf(s.stdout, "\n%s clock, %s\n", stats.Clock, report.Elapsed(time.Duration(stats.Now)))
	if !stats.Audited {
		return err
	}
	v := stats.Verdict
	_, said := fmt.Fprintf(s.stdout, "audit: %s launches, %s outside a token, %s under an old token, %s after an overrun, %s of unmanaged processes\n",
		report.Count(int(v.Launches)), report.Count(int(v.Outside)), report.Count(int(v.TwoHolders)), report.Count(int(v.Overrun)), report.Count(int(v.Unmanaged)))
	return errors.Join(err, said)
}

// emugpuFaultCommand makes something go wrong.
type emugpuFaultCommand struct {
	Kind   string `arg:"" help:"hang, oom, xid, lost, slow or reset."`
	Value  string `arg:"" optional:"" help:"hang, oom: how many (1). xid: its number. slow: a time."`
	GPU    int    `name:"gpu" default:"0" help:"Index of the GPU."`
	Socket string `required:"" env:"WEFT_EMU_SOCKET" placeholder:"PATH" help:"Where weft emugpu serves. Default: $WEFT_EMU_SOCKET."`
}

// Help is what weft emugpu fault --help adds.
func (emugpuFaultCommand) Help() string {
	return `  hang [N]   the next N kernels on the GPU never end until their process does
  oom [N]    the next N allocations on the GPU fail
  xid N      the driver reports XID N, and breaks contexts as that XID does
  lost       the GPU falls off the bus: its contexts break, new ones are refused
  slow TIME  every slow call of every program takes so much longer; 0s ends it
  reset      the GPU is well again

Examples:
  weft emugpu fault hang --gpu 1
  weft emugpu fault xid 48 --gpu 0 --socket /run/gpus.sock
  weft emugpu fault slow 20ms`
}

// Run implements the command.
func (c *emugpuFaultCommand) Run(*session) error {
	f, err := c.fault()
	if err != nil {
		return asInput(err, false)
	}
	o, err := dialEmulated(c.Socket, false)
	if err != nil {
		return err
	}
	defer o.Close()
	if err := o.Fault(f); err != nil {
		return asInput(flagError("KIND, --gpu", c.Kind, err.Error(), "", "weft emugpu fault --help lists the faults, weft emugpu stats the GPUs"), false)
	}
	return nil
}

func (c *emugpuFaultCommand) fault() (emugpu.Fault, error) {
	kind, ok := emugpu.FaultNamed(c.Kind)
	f := emugpu.Fault{Kind: kind, GPU: c.GPU, Number: 1}
	wrong := func(why, fix string) error {
		return flagError("VALUE", c.Value, fmt.Sprintf("%s %q", c.Kind, c.Value), why, fix)
	}
	var err error
	switch {
	case !ok:
		return f, flagError("KIND", c.Kind, fmt.Sprintf("unknown fault %q", c.Kind), "", "one of "+strings.Join(emugpu.Faults(), ", "))
	case kind == emugpu.Slow:
		var d time.Duration
		if d, err = time.ParseDuration(c.Value); err != nil || d < 0 {
			return f, wrong("slow needs a time", "slow 20ms")
		}
		f.Number = uint64(d)
	case kind == emugpu.Lost || kind == emugpu.Reset:
		if c.Value != "" {
			return f, wrong("it has no number", c.Kind)
		}
	case kind == emugpu.XID && c.Value == "":
		return f, wrong("xid needs a number", "xid 79")
	case c.Value != "":
		if f.Number, err = strconv.ParseUint(c.Value, 10, 32); err != nil || f.Number == 0 {
			return f, wrong("not a whole number of at least 1", c.Kind+" 1")
		}
	}
	return f, nil
}
