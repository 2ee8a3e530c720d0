package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"weft.dev/weft/internal/agent"
	"weft.dev/weft/internal/arbiter"
	"weft.dev/weft/internal/device"
	"weft.dev/weft/internal/emugpu"
	"weft.dev/weft/internal/kube/driver"
	"weft.dev/weft/internal/trace"
)

// agentCommand serves the GPUs of this machine and looks into the agent.
type agentCommand struct {
	Serve   agentServeCommand   `cmd:"" default:"withargs" help:"Serve the GPUs of this machine until Ctrl-C (what weft agent does by itself)."`
	Stats   agentStatsCommand   `cmd:"" help:"What each job has and waits for, per GPU."`
	Events  agentEventsCommand  `cmd:"" help:"What happened: overruns, refusals, processes that escaped."`
	Metrics agentMetricsCommand `cmd:"" help:"The same figures as text for Prometheus."`
}

// agentServeCommand serves GPUs.
type agentServeCommand struct {
	Local bool `help:"Serve jobs of this machine, started with weft exec."`
	agentNodeFlags
	Dir      string        `env:"WEFT_DIR" placeholder:"DIR" help:"Folder of its sockets and its state. Default: /run/weft, or weft in the user's runtime folder."`
	Emulate  bool          `help:"Emulate GPUs in this process. With WEFT_EMU_SOCKET instead, those of a running weft emugpu are served."`
	GPUs     int           `name:"gpus" default:"4" help:"How many to emulate, 1 to 16."`
	Model    []string      `default:"a10" placeholder:"M" help:"Models to emulate, repeated in turn: ${gpus}."`
	Minimum  float64       `placeholder:"F" help:"Share of a GPU that besteffort jobs get even beside busy higher ones, in [0, 1)."`
	Loss     float64       `default:"0.01" placeholder:"F" help:"Share of a higher job's time that lower ones may cost it, in (0, 1)."`
	Grace    time.Duration `default:"200us" help:"Before a lower class gets what a higher one just left, while its gaps are not known."`
	MaxDrain time.Duration `name:"max-drain" default:"80ms" help:"After which a process that does not give the token back is overrun."`
	Settle   time.Duration `default:"500ms" help:"After a restart, for processes to come back before anybody is granted."`
	NVML     string        `name:"nvml" placeholder:"PATH" help:"The driver's management library, or its folder. Default: where the system has it."`
	Locks    string        `default:"/run/weft/gpu" placeholder:"DIR" help:"Folder of the locks that keep two agents off one GPU. Emulated GPUs: in the agent's folder."`
	JSON     bool          `name:"json" help:"Write the log as JSON."`
}

// Help is what weft agent serve --help adds.
func (agentServeCommand) Help() string {
	return `Jobs take turns on the GPUs, and memory that they do not use between iterations goes to others. The log goes to
stderr. If the agent ends or is killed, jobs go on; the next one on the same folder takes over where it was.

With --node the jobs are containers of a Kubernetes node, and the kubelet asks for them (docs/kube-node.md).

Examples:
  weft agent --local --emulate --gpus 2 --dir /tmp/weft
  weft agent --local --minimum 0.2
  weft agent --node gpu-node-1 --kubeconfig /etc/kubernetes/kubelet.conf --metrics :9401`
}

// Run implements the command.
func (c *agentServeCommand) Run(ctx context.Context, s *session) (err error) {
	if err := c.check(); err != nil {
		return asInput(err, c.JSON)
	}
	if c.Dir, err = filepath.Abs(cmp.Or(c.Dir, defaultDir())); err != nil {
		return err
	}
	if err := c.makeDir(); err != nil {
		return asInput(err, c.JSON)
	}
	o := agent.Options{Dir: c.Dir, Locks: c.Locks, Log: newLogger(s.stderr, c.JSON), Arbiter: arbiter.Options{
		Loss: c.Loss, Minimum: c.Minimum, Grace: c.Grace, MaxDrain: c.MaxDrain, Settle: c.Settle}}
	gpus, err := c.open(&o)
	if err != nil {
		return asInput(err, c.JSON)
	}
	defer func() { err = errors.Join(err, gpus.close()) }()
	serveMany()
	a, err := agent.Open(ctx, o)
	var locked *agent.LockedError
	if errors.As(err, &locked) {
		return asInput(trace.Errors{{Code: "in_use", File: c.Dir, Message: locked.Error(), Why: "one agent serves a GPU", Fix: fmt.Sprintf("kill %d, or another --dir and other GPUs", locked.PID)}}, c.JSON)
	}
	if err != nil {
		return err
	}
	return errors.Join(c.serve(ctx, s, a, &o), a.Close())
}

// serve lets the agent serve, and says so, until ctx ends.
func (c *agentServeCommand) serve(ctx context.Context, s *session, a *agent.Agent, o *agent.Options) error {
	var tasks []func(context.Context) error
	ready := func() error { return nil }
	if c.Node != "" {
		d, err := c.openDriver(ctx, a, o)
		if err != nil {
			return asInput(err, c.JSON)
		}
		defer d.Close()
		ready = d.Ready
		tasks = append(tasks, failing(d.Failed()))
	}
	if c.Metrics != "" {
		ln, err := net.Listen("tcp", c.Metrics)
		if err != nil {
			return asInput(flagError("--metrics", c.Metrics, err.Error(), "", "another address, or none"), c.JSON)
		}
		tasks = append(tasks, func(ctx context.Context) error { return serveHTTP(ctx, ln, agentHandler(a, ready)) })
	}
	if _, err := fmt.Fprintf(s.stdout, "agent ready: %s (%d GPUs)\n", c.Dir, len(o.Machine.GPUs())); err != nil {
		return err
	}
	return together(ctx, append(tasks, untilEnd))
}

// untilEnd waits for the end.
func untilEnd(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (c *agentServeCommand) check() error {
	var faults []error
	if c.Local == (c.Node != "") {
		faults = append(faults, flagError("--local", "", "where are the jobs?", "an agent serves one kind of them", "weft agent --local, or weft agent --node NAME in a cluster"))
	}
	if !(c.Minimum >= 0 && c.Minimum < 1) {
		faults = append(faults, flagError("--minimum", fmt.Sprint(c.Minimum), fmt.Sprintf("minimum %v is outside [0, 1)", c.Minimum), "it is a share of a GPU", "0.2 for 20 %"))
	}
	if !(c.Loss > 0 && c.Loss < 1) {
		faults = append(faults, flagError("--loss", fmt.Sprint(c.Loss), fmt.Sprintf("loss %v is outside (0, 1)", c.Loss), "it is a share of a job's time", "0.01 for 1 %"))
	}
	if c.Node != "" && (c.Window < leastWindow || c.Window > mostWindow) {
		faults = append(faults, flagError("--window", c.Window.String(), fmt.Sprintf("%v is outside [%v, %v]", c.Window, leastWindow, mostWindow), "", "20s"))
	}
	for _, d := range []struct {
		flag string
		is   time.Duration
	}{{"--grace", c.Grace}, {"--max-drain", c.MaxDrain}, {"--settle", c.Settle}} {
		if d.is <= 0 || d.is > time.Minute {
			faults = append(faults, flagError(d.flag, d.is.String(), fmt.Sprintf("%v is outside (0s, 1m]", d.is), "", "500ms"))
		}
	}
	return errors.Join(faults...)
}

// newLogger is the log of a command that serves.
func newLogger(w io.Writer, asJSON bool) *slog.Logger {
	if asJSON {
		return slog.New(slog.NewJSONHandler(w, nil))
	}
	return slog.New(slog.NewTextHandler(w, nil))
}

// served are the GPUs of an agent, and what ends with them.
type served struct{ ends []func() error }

func (s *served) close() error {
	var err error
	for i := len(s.ends) - 1; i >= 0; i-- {
		err = errors.Join(err, s.ends[i]())
	}
	return err
}

// open finds the GPUs: real ones, those of a running weft emugpu, or its own emulated ones.
func (c *agentServeCommand) open(o *agent.Options) (gpus *served, err error) {
	gpus = &served{}
	defer func() {
		if err != nil {
			err = errors.Join(err, gpus.close())
		}
	}()
	socket := os.Getenv("WEFT_EMU_SOCKET")
	if c.Emulate {
		socket = filepath.Join(c.Dir, "emulated.sock")
		broker, err := c.emulate(socket)
		if err != nil {
			return gpus, err
		}
		gpus.ends = append(gpus.ends, broker.Close)
	}
	if socket != "" {
		if err := c.useEmulated(o, gpus, socket); err != nil {
			return gpus, err
		}
	}
	o.Machine, err = device.Open(c.NVML)
	if errors.Is(err, device.ErrNone) {
		return gpus, trace.Errors{{Code: "no_gpu", File: "this machine", Message: err.Error(), Why: "an agent serves GPUs", Fix: "--emulate makes some to try it on"}}
	}
	if err == nil {
		gpus.ends = append(gpus.ends, o.Machine.Close)
	}
	return gpus, err
}

// emulate starts emulated GPUs in this process.
func (c *agentServeCommand) emulate(socket string) (*emugpu.Broker, error) {
	serve := emugpuServeCommand{GPUs: c.GPUs, Model: c.Model, Socket: socket, Scale: 1, Slice: emugpu.DefaultSlice, Switch: 50 * time.Microsecond, Seed: 42}
	options, err := serve.options()
	if err != nil {
		return nil, err
	}
	return emugpu.Start(options)
}

// useEmulated lets the agent and its jobs see emulated GPUs, and has its grants held against the launches there.
func (c *agentServeCommand) useEmulated(o *agent.Options, gpus *served, socket string) error {
	folder, err := libraries()
	if err != nil {
		return err
	}
	emulated := filepath.Join(folder, "emu")
	if c.NVML == "" {
		c.NVML = emulated
	}
	if err := os.Setenv("WEFT_EMU_SOCKET", socket); err != nil { // for the management library
		return err
	}
	audit, err := emugpu.OpenAudit(socket)
	if err != nil {
		return err
	}
	gpus.ends = append(gpus.ends, func() error { audit.Close(); return nil })
	o.Audit = audit
	o.Env = map[string]string{"WEFT_EMU_SOCKET": socket, "LD_LIBRARY_PATH": emulated}
	o.Locks = filepath.Join(c.Dir, "locks")
	if c.Node != "" {
		o.Env = driver.Environment(socket)
		return os.Chmod(socket, 0o666) // for the users of containers; those of the node do not come to it through the agent's folder
	}
	return nil
}

// defaultDir is where the agent of this user is.
func defaultDir() string {
	if runtime := os.Getenv("XDG_RUNTIME_DIR"); runtime != "" && os.Geteuid() != 0 {
		return filepath.Join(runtime, "weft")
	}
	return "/run/weft"
}
