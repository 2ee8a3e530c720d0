package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"weft.dev/weft/internal/emugpu"
	"weft.dev/weft/internal/emugpu/model"
	"weft.dev/weft/internal/unit"
)

// emugpuCommand serves emulated GPUs and looks into them.
type emugpuCommand struct {
	Serve emugpuServeCommand `cmd:"" default:"withargs" help:"Serve emulated GPUs until Ctrl-C (what weft emugpu does by itself)."`
	Stats emugpuStatsCommand `cmd:"" help:"What they did: exact figures per GPU and process."`
	Fault emugpuFaultCommand `cmd:"" help:"Make something go wrong on one: hang, oom, xid, lost, slow; reset ends it."`
}

// emugpuServeCommand serves emulated GPUs.
type emugpuServeCommand struct {
	GPUs         int           `name:"gpus" default:"4" help:"How many, 1 to 16."`
	Model        []string      `default:"a10" placeholder:"M" help:"Their models, repeated in turn: ${gpus}."`
	Memory       unit.Bytes    `placeholder:"24GiB" help:"Memory of each, as nvidia-smi shows it. Default: the model's."`
	Usable       unit.Bytes    `placeholder:"22GiB" help:"What of it programs can have. Default: the model's share."`
	Socket       string        `placeholder:"PATH" help:"Where to serve. Default: a new temporary folder."`
	Clock        string        `enum:"real,virtual" default:"real" help:"real: work takes its time. virtual: time jumps to the next end once all threads wait."`
	Scale        float64       `default:"1" help:"How much faster than real time passes, 0.001 to 10,000."`
	Slice        time.Duration `default:"2ms" help:"Turn of a context while others wait."`
	Switch       time.Duration `default:"50us" help:"Time that changing the context takes."`
	FIFO         bool          `name:"fifo" help:"Kernels run to their end in the order of submission; no slices."`
	Interference []string      `placeholder:"A:B=F" help:"Programs of names A and B take F times as long while both have work; A:B and B:A may differ."`
	Seed         uint64        `default:"42" help:"Equal seeds give equal UUIDs."`
	Linger       time.Duration `placeholder:"D" help:"End once nobody was connected for so long. Default: never."`
}

// Help is what weft emugpu serve --help adds.
func (emugpuServeCommand) Help() string {
	return `Programs see the GPUs through an emulated libcuda.so.1. Paste the two lines that are printed into their shell. A
program's name, for --interference, is WEFT_EMU_NAME or that of its executable. docs/emulator.md says what is
emulated, and what must not be concluded from it.

Examples:
  weft emugpu --gpus 2
  weft emugpu --gpus 4 --model a10,a10,h100,h100 --scale 10
  weft emugpu --gpus 1 --memory 8GiB --clock virtual --interference bert:resnet=1.3`
}

// Run implements the command.
func (c *emugpuServeCommand) Run(ctx context.Context, s *session) error {
	o, err := c.options()
	if err != nil {
		return asInput(err, false)
	}
	serveMany()
	b, err := emugpu.Start(o)
	if err != nil {
		return err
	}
	err = c.announce(s, b.Socket())
	if err == nil {
		c.linger(ctx, b)
	}
	return errors.Join(err, b.Close())
}

// linger waits for the end of the context, or until nobody has been connected for as long as was asked.
func (c *emugpuServeCommand) linger(ctx context.Context, b *emugpu.Broker) {
	if c.Linger <= 0 {
		<-ctx.Done()
		return
	}
	look := time.NewTicker(max(c.Linger/10, 10*time.Millisecond))
	defer look.Stop()
	used := time.Now()
	for time.Since(used) < c.Linger {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			if b.Connections() > 0 {
				used = time.Now()
			}
		}
	}
}

// announce writes what a shell needs to run programs on the GPUs.
func (c *emugpuServeCommand) announce(s *session, socket string) error {
	folder, missing := libraries()
	if missing == nil {
		folder = filepath.Join(folder, "emu")
		_, missing = os.Stat(filepath.Join(folder, "libcuda.so.1"))
	}
	if missing != nil {
		folder = "DIR"
		_, _ = fmt.Fprintln(s.stderr, "note: the emulated libcuda.so.1 was not found: make build makes it in bin/lib/emu; DIR stands for its folder")
	}
	_, err := fmt.Fprintf(s.stdout, "export WEFT_EMU_SOCKET=%s\nexport LD_LIBRARY_PATH=%s${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}\n",
		shellWord(socket), shellWord(folder))
	return err
}

// shellWord writes text so that a shell reads it as one word.
func shellWord(text string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-+:@%,", r)
	}
	if text != "" && strings.IndexFunc(text, func(r rune) bool { return !plain(r) }) < 0 {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// options checks the flags.
func (c *emugpuServeCommand) options() (emugpu.Options, error) {
	o := emugpu.Options{Socket: c.Socket, Seed: c.Seed, Scale: c.Scale, Slice: c.Slice, Switch: c.Switch, FIFO: c.FIFO}
	if c.Clock == emugpu.Virtual.String() {
		o.Clock = emugpu.Virtual
	}
	var faults []error
	fault := func(flag, value, message, why, fix string) {
		faults = append(faults, flagError(flag, value, message, why, fix))
	}
	switch {
	case c.GPUs < 1 || c.GPUs > emugpu.MaxGPUs:
		fault("--gpus", fmt.Sprint(c.GPUs), fmt.Sprintf("%d GPUs are outside [1, %d]", c.GPUs, emugpu.MaxGPUs), "", "4")
	case len(c.Model) > c.GPUs:
		fault("--model", strings.Join(c.Model, ","), fmt.Sprintf("%d models for %d GPUs", len(c.Model), c.GPUs), "each GPU has one",
			fmt.Sprintf("--gpus %d", len(c.Model)))
	}
	if !(c.Scale >= emugpu.MinScale && c.Scale <= emugpu.MaxScale) {
		fault("--scale", fmt.Sprint(c.Scale), fmt.Sprintf("scale %v is outside [0.001, 10000]", c.Scale), "", "10 for ten times faster than real")
	} else if c.Scale != 1 && o.Clock == emugpu.Virtual {
		fault("--scale", fmt.Sprint(c.Scale), "a virtual clock has no scale", "it jumps from one end to the next", "leave out --scale")
	}
	if c.Slice < emugpu.MinSlice || c.Slice > emugpu.MaxSlice {
		fault("--slice", c.Slice.String(), fmt.Sprintf("slice %v is outside [1us, 1m]", c.Slice), "", "2ms")
	}
	if c.Switch < 0 || c.Switch > emugpu.MaxSlice {
		fault("--switch", c.Switch.String(), fmt.Sprintf("switch %v is outside [0s, 1m]", c.Switch), "", "50us")
	}
	var err error
	if o.Slowdown, err = slowdowns(c.Interference); err != nil {
		faults = append(faults, err)
	}
	if len(faults) == 0 {
		if o.GPUs, err = c.devices(); err != nil {
			faults = append(faults, err)
		}
	}
	return o, errors.Join(faults...)
}

// devices are the GPUs that the flags describe.
func (c *emugpuServeCommand) devices() ([]emugpu.GPU, error) {
	var list []emugpu.GPU
	for i := range c.GPUs {
		name := c.Model[i%len(c.Model)]
		g, ok := emugpu.Model(name)
		if !ok {
			return nil, flagError("--model", name, fmt.Sprintf("unknown GPU %q", name), "", "one of "+strings.Join(emugpu.Models(), ", "))
		}
		if c.Memory > 0 {
			share := float64(g.Usable) / float64(g.Total)
			g.Total, g.Usable = c.Memory, unit.Bytes(float64(c.Memory)*share)/unit.MiB*unit.MiB
		}
		if c.Usable > 0 {
			g.Usable = c.Usable
		}
		if g.Total > emugpu.MaxMemory || g.Usable <= g.Context || g.Usable > g.Total {
			return nil, flagError("--memory, --usable", "", fmt.Sprintf("usable memory of %v of %v", g.Usable, g.Total),
				fmt.Sprintf("it has to be above %v, which one context takes, and at most the whole; the whole at most %v", g.Context, emugpu.MaxMemory),
				"--memory 24GiB --usable 22GiB")
		}
		list = append(list, g)
	}
	return list, nil
}

// slowdowns reads A:B=F.
func slowdowns(texts []string) (map[model.Pair]float64, error) {
	pairs := map[model.Pair]float64{}
	for _, text := range texts {
		names, factor, _ := strings.Cut(text, "=")
		of, beside, ok := strings.Cut(names, ":")
		f, err := strconv.ParseFloat(factor, 64)
		if !ok || of == "" || beside == "" || err != nil || !(f >= 1 && f <= model.MaxSlowdown) {
			return nil, flagError("--interference", text, fmt.Sprintf("%q is no pair with a slowdown in [1, %d]", text, model.MaxSlowdown),
				"a kernel takes that many times as long", "bert:resnet=1.3")
		}
		pairs[model.Pair{Of: of, Beside: beside}] = f
	}
	return pairs, nil
}
