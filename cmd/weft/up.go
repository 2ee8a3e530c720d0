package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"weft.dev/weft/internal/agent"
	"weft.dev/weft/internal/arbiter"
	"weft.dev/weft/internal/catalogue"
	"weft.dev/weft/internal/config"
	"weft.dev/weft/internal/dispatch"
	"weft.dev/weft/internal/estimate"
	"weft.dev/weft/internal/interference/model"
	"weft.dev/weft/internal/local"
	"weft.dev/weft/internal/trace"
	"weft.dev/weft/internal/unit"
	"weft.dev/weft/internal/web"
	"weft.dev/weft/internal/web/client"
)

// upCommand is the daemon of one machine.
type upCommand struct {
	Emulate      int           `placeholder:"N" help:"Emulate N GPUs, 1 to 16. They outlive a daemon that is killed, as real ones do."`
	GPUMemory    unit.Bytes    `name:"gpu-memory" placeholder:"16GiB" help:"Memory of each emulated GPU. Default: the model's."`
	GPUModel     []string      `name:"gpu-model" default:"a10" placeholder:"M" help:"Models to emulate, repeated in turn: ${gpus}."`
	Interference []string      `placeholder:"A:B=F" help:"Emulated programs of names A and B take F times as long while both have work."`
	State        string        `placeholder:"DIR" help:"Folder of all that is kept. Default: /var/lib/weft, or weft in the user's state folder."`
	Listen       string        `placeholder:"ADDR" help:"Address of the web page and /metrics, such as 127.0.0.1:7070. none for none; port 0 takes a free one. Default: 127.0.0.1:7070."`
	OpenMetrics  bool          `name:"metrics-open" help:"/metrics needs no token."`
	Minimum      float64       `placeholder:"F" help:"Share of a GPU that besteffort jobs get even beside busy higher ones, in [0, 1)."`
	Window       time.Duration `default:"20s" help:"Over which a job's rate is observed, 1s to 10m."`
	Grace        time.Duration `default:"30s" help:"Between SIGTERM and SIGKILL when a job is stopped."`
	MaxResidents int           `name:"max-residents" default:"4" help:"Jobs on one GPU at most, 1 to 8."`
	Locks        string        `default:"/run/weft/gpu" placeholder:"DIR" help:"Folder of the locks that keep two daemons off one GPU."`
	NVML         string        `name:"nvml" placeholder:"PATH" help:"The driver's management library, or its folder. Default: where the system has it."`
	JSON         bool          `name:"json" help:"Write the log as JSON."`
}

// Help is what weft up --help adds.
func (upCommand) Help() string {
	return `Queues jobs (weft run), places them on as few GPUs as their floors allow, runs them, observes them, and moves them where
a floor is broken. As root it serves all users, else its own. If it ends or is killed, jobs go on, and the next
weft up takes them over. The log goes to stderr.

Examples:
  weft up
  weft up --emulate 4 --gpu-memory 16GiB
  weft up --state /scratch/weft --listen 127.0.0.1:0`
}

// Run implements the command.
func (c *upCommand) Run(ctx context.Context, s *session) (err error) {
	settings, err := c.check()
	if err != nil {
		return asInput(err, c.JSON)
	}
	if err := os.MkdirAll(settings.State, 0o711); err != nil {
		return asInput(c.unusableState(writing(err)), c.JSON)
	}
	log := newLogger(s.stderr, c.JSON)
	o, gpus, err := c.options(settings, log)
	if err != nil {
		return asInput(c.inUse(err), c.JSON)
	}
	listeners, err := c.listen(ctx, settings)
	if err != nil {
		return errors.Join(asInput(err, c.JSON), gpus.close())
	}
	defer listeners.Close()
	token, err := web.Token(settings.State)
	if err != nil {
		return errors.Join(asInput(err, c.JSON), gpus.close())
	}
	if listeners.TCP != nil {
		o.Page = web.PageURL(listeners.TCP.Addr(), "")
	}
	serveMany()
	b, err := local.Open(ctx, o)
	if err != nil {
		return errors.Join(asInput(c.inUse(err), c.JSON), gpus.close())
	}
	return c.serve(ctx, s, b, gpus, listeners, token, log)
}

// serve serves until ctx ends. Emulated GPUs end with the daemon when no job uses them.
func (c *upCommand) serve(ctx context.Context, s *session, b *local.Box, gpus *served, l *web.Listeners, token string, log *slog.Logger) error {
	if err := l.Open(); err != nil { // not before: until the state is locked another daemon may have them
		return errors.Join(err, b.Close(), gpus.close())
	}
	forget, err := client.Register(filepath.Join(b.Dir(), client.SocketName))
	if err != nil {
		log.Warn("clients must be told the state folder", "fault", err)
		forget = func() {}
	}
	server := web.New(b, web.Options{Token: token, OpenMetrics: c.OpenMetrics, Log: log})
	c.announce(s, b, l, token)
	err = server.Serve(ctx, l)
	forget()
	running := b.Status().Running
	err = errors.Join(err, b.Close())
	if running > 0 {
		_, _ = fmt.Fprintf(s.stderr, "weft: %d jobs go on; weft up takes them over again\n", running)
	} else if c.Emulate > 0 {
		err = errors.Join(err, endEmulated(b.Dir()))
	}
	return errors.Join(err, gpus.close())
}

// announce says that the daemon is ready, and where its page is.
func (c *upCommand) announce(s *session, b *local.Box, l *web.Listeners, token string) {
	status := b.Status()
	kind := "GPUs"
	if status.Emulated {
		kind = "emulated GPUs"
	}
	_, _ = fmt.Fprintf(s.stdout, "weft is up: %d %s, state in %s\n", status.GPUs, kind, status.State)
	if l.TCP != nil {
		_, _ = fmt.Fprintf(s.stdout, "page: %s\n", web.PageURL(l.TCP.Addr(), token))
	}
	if s.tty {
		_, _ = fmt.Fprintln(s.stdout, "next: weft run --floor 0.8 -- python3 train.py")
	}
}

// check fills what the flags leave open and holds them against their bounds.
func (c *upCommand) check() (*config.Loaded, error) {
	flags := map[string]string{}
	if c.State != "" {
		flags["state"] = c.State
	}
	if c.Listen != "" {
		flags["listen"] = c.Listen
	}
	settings, err := config.Load(config.Standard(flags))
	if err != nil {
		return nil, err
	}
	var faults []error
	if settings.State, err = filepath.Abs(cmp.Or(settings.State, client.DefaultState())); err != nil {
		return nil, err
	}
	serve := agentServeCommand{Local: true, Minimum: c.Minimum, Loss: 0.01, Grace: time.Millisecond, MaxDrain: time.Millisecond, Settle: time.Millisecond}
	faults = append(faults, serve.check())
	if c.Window < time.Second || c.Window > 10*time.Minute {
		faults = append(faults, flagError("--window", c.Window.String(), fmt.Sprintf("%v is outside [1s, 10m]", c.Window), "a rate needs some iterations to be seen", "20s"))
	}
	if c.Grace <= 0 || c.Grace > time.Hour {
		faults = append(faults, flagError("--grace", c.Grace.String(), fmt.Sprintf("%v is outside (0s, 1h]", c.Grace), "", "30s"))
	}
	if c.MaxResidents < 1 || c.MaxResidents > 8 {
		faults = append(faults, flagError("--max-residents", fmt.Sprint(c.MaxResidents), fmt.Sprintf("%d is outside [1, 8]", c.MaxResidents), "", "4"))
	}
	if c.Emulate < 0 {
		faults = append(faults, flagError("--emulate", fmt.Sprint(c.Emulate), fmt.Sprintf("%d GPUs are outside [1, 16]", c.Emulate), "", "4"))
	}
	if c.Emulate == 0 && (c.GPUMemory > 0 || len(c.Interference) > 0) {
		faults = append(faults, flagError("--gpu-memory", "", "of which emulated GPUs?", "it is theirs", "--emulate 4"))
	}
	return settings, errors.Join(faults...)
}

// options are what the box is opened with, and its GPUs.
func (c *upCommand) options(settings *config.Loaded, log *slog.Logger) (local.Options, *served, error) {
	executable, err := os.Executable()
	if err != nil {
		return local.Options{}, nil, err
	}
	folder, err := libraries()
	if err != nil {
		return local.Options{}, nil, err
	}
	o := local.Options{
		State: settings.State, Executable: executable, Libraries: folder, Version: version(), LogLimit: settings.LogLimit, Grace: c.Grace, Window: c.Window, Log: log,
		Administer: settings.Administers,
		Limits: func(user string) local.Limits {
			l := settings.Of(user)
			return local.Limits{Weight: l.Weight, MaxGPUs: l.MaxGPUs, MaxRunning: l.MaxRunning, MaxWaiting: l.MaxWaiting}
		},
		Dispatch: func(d *dispatch.Options) { d.MaxResidents = c.MaxResidents },
		Agent:    agent.Options{Locks: c.Locks, Log: log, Arbiter: arbiter.Options{Minimum: c.Minimum}},
	}
	gpus, err := c.open(settings.State, &o, log)
	if err != nil {
		return o, nil, err
	}
	o.GPU = catalogue.GPUNamed(o.Agent.Machine.GPUs()[0].Name)
	o.Estimate = func() estimate.Options { return c.estimate(o.GPU) }
	return o, gpus, nil
}

// estimate is what predictions begin with: the model that ships with weft, where it knows GPUs of this kind.
func (c *upCommand) estimate(gpu string) estimate.Options {
	e := estimate.Options{GPU: gpu, Minimum: c.Minimum}
	if m, err := model.Default(); err == nil && gpu != "" {
		e.Predictor = m.Predictor(nil, nil)
	}
	return e
}

// listen makes the sockets, and takes the address of the page.
func (c *upCommand) listen(ctx context.Context, settings *config.Loaded) (*web.Listeners, error) {
	address := settings.Listen
	if address == "none" {
		address = ""
	}
	l, err := web.Listen(ctx, settings.State, address)
	if err != nil && address != "" {
		return nil, trace.Errors{{Code: "listen", File: "command line", Column: "--listen", Value: address, Message: err.Error(), Why: "the web page needs an address of its own",
			Fix: "--listen 127.0.0.1:0 takes a free port, --listen none does without a page"}}
	}
	return l, err
}

// unusableState says what to do about a state folder that cannot be written.
func (c *upCommand) unusableState(err error) error {
	return trace.Errors{{Code: "state", File: cmp.Or(c.State, client.DefaultState()), Message: err.Error(), Why: "all that is kept is in the state folder; jobs that run are untouched",
		Fix: "--state DIR in a folder that you may write to"}}
}

// inUse says who has what this daemon needs.
func (c *upCommand) inUse(err error) error {
	var state *local.LockedError
	if errors.As(err, &state) {
		return trace.Errors{{Code: "in_use", File: state.Dir, Message: fmt.Sprintf("state in use by pid %d", state.PID), Why: "one daemon serves a state folder", Fix: fmt.Sprintf("kill %d, or another --state", state.PID)}}
	}
	var gpu *agent.LockedError
	if errors.As(err, &gpu) {
		return trace.Errors{{Code: "in_use", File: gpu.What, Message: fmt.Sprintf("%s is in use by pid %d", gpu.What, gpu.PID), Why: "one daemon serves a GPU: two would each believe it free",
			Fix: fmt.Sprintf("submit to that daemon (weft status), or kill %d", gpu.PID)}}
	}
	if errors.Is(err, os.ErrPermission) || isReadOnly(err) {
		return c.unusableState(err)
	}
	return err
}
