package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Job is how a program is to be treated by the agent. Its zero value is a burstable job on the bed's GPU.
type Job struct {
	Name           string
	Class          string // guaranteed, burstable, besteffort
	Weight         int
	Reserved, Peak string // sizes as `weft exec` takes them
	GPUs           string // comma-separated indexes; "" is the bed's GPU
	Cooperates     bool   // hands unused memory over at its iterations
}

// flags are those of `weft exec`.
func (j *Job) flags(gpu int) []string {
	gpus := j.GPUs
	if gpus == "" {
		gpus = strconv.Itoa(gpu)
	}
	list := []string{"--gpu", gpus}
	for _, f := range []struct{ name, value string }{
		{"--name", j.Name}, {"--class", j.Class}, {"--reserved", j.Reserved}, {"--peak", j.Peak},
	} {
		if f.value != "" {
			list = append(list, f.name, f.value)
		}
	}
	if j.Cooperates {
		list = append(list, "--cooperate")
	}
	if j.Weight > 0 {
		list = append(list, "--weight", strconv.Itoa(j.Weight))
	}
	return list
}

// Program is a program that runs on the bed.
type Program struct {
	cmd         *exec.Cmd
	Out, Errors bytes.Buffer // complete once Wait returned
}

// Command is a program of the bed that was not started: under the agent as a job, or unmanaged where job is nil.
func (b *Bed) Command(ctx context.Context, job *Job, name string, arguments ...string) *Program {
	line := append([]string{b.Path(name)}, arguments...)
	if job != nil {
		line = append(append([]string{b.o.Weft, "exec", "--socket", b.AgentDir()}, job.flags(b.o.GPU)...), append([]string{"--"}, line...)...)
	}
	p := &Program{cmd: exec.CommandContext(ctx, line[0], line[1:]...)}
	p.cmd.Env, p.cmd.WaitDelay = b.env, patience
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.Stdout, p.cmd.Stderr = &p.Out, &p.Errors
	if b.o.Log != nil {
		p.cmd.Stderr = io.MultiWriter(&p.Errors, b.o.Log)
	}
	return p
}

// Path is where a program of the bed is; a path stays as it is.
func (b *Bed) Path(name string) string {
	if strings.ContainsRune(name, filepath.Separator) {
		return name
	}
	return filepath.Join(b.o.Programs, name)
}

// Setenv adds to the environment of the program, which must not have started.
func (p *Program) Setenv(list ...string) { p.cmd.Env = append(p.cmd.Env, list...) }

// Start starts the program.
func (p *Program) Start() error { return p.cmd.Start() }

// PID is the program's process: `weft exec` becomes the program.
func (p *Program) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal to the program.
func (p *Program) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// Ended says whether the process has ended, before or after Wait.
func (p *Program) Ended() bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, p.PID(), &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err != nil || info.Signo != 0
}

// kill ends the program at once.
func (p *Program) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	_ = p.cmd.Wait()         // killed, as wanted
}

// Wait waits for the program's end; the error holds what it said.
func (p *Program) Wait() error {
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(p.cmd.Args, " "), err, strings.TrimSpace(p.Errors.String()))
	}
	return nil
}

// Sample is what weft-probe measured; the members of its other measurements are zero.
type Sample struct {
	Managed    int        `json:"managed"`
	LaunchMin  float64    `json:"launch_min_ns"`
	Rate       float64    `json:"rate_per_s"`
	KernelRate float64    `json:"kernels_per_s"`
	Busy       float64    `json:"busy_fraction"`
	Seconds    float64    `json:"seconds"`
	Count      int        `json:"count"`
	Iterations int        `json:"iterations"`
	LaunchP50  float64    `json:"launch_p50_us"`
	LaunchP99  float64    `json:"launch_p99_us"`
	LaunchMax  float64    `json:"launch_max_us"`
	Stamps     [][3]int64 `json:"stamps_ns"` // intent, launch returned, done; CLOCK_MONOTONIC
}

// Sample waits for the program and reads what it measured.
func (p *Program) Sample() (Sample, error) {
	var s Sample
	if err := p.Wait(); err != nil {
		return s, err
	}
	if err := json.Unmarshal(p.Out.Bytes(), &s); err != nil {
		return s, fmt.Errorf("%s printed no measurement: %w", p.cmd.Path, err)
	}
	return s, nil
}

// Probe runs weft-probe to its end.
func (b *Bed) Probe(ctx context.Context, job *Job, arguments ...string) (Sample, error) {
	p := b.Command(ctx, job, "weft-probe", arguments...)
	if err := p.Start(); err != nil {
		return Sample{}, err
	}
	s, err := p.Sample()
	if err == nil && (s.Managed != 0) != (job != nil) {
		return s, fmt.Errorf("weft-probe says managed=%d: libweft.so is not where it should be", s.Managed)
	}
	return s, err
}

// Run is one program beside others.
type Run struct {
	Job       *Job
	Arguments []string // of weft-probe
}

// Together runs several probes that begin to measure at the same instant.
func (b *Bed) Together(ctx context.Context, runs ...Run) ([]Sample, error) {
	start := Monotonic() + int64(startDelay)
	programs := make([]*Program, len(runs))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for i, r := range runs {
		programs[i] = b.Command(ctx, r.Job, "weft-probe", append(r.Arguments, "--start-ns", strconv.FormatInt(start, 10))...)
		if err := programs[i].Start(); err != nil {
			return nil, err
		}
	}
	samples := make([]Sample, len(runs))
	var first error
	for i, p := range programs {
		s, err := p.Sample()
		if err != nil && first == nil {
			first = err
			cancel()
		}
		samples[i] = s
	}
	return samples, first
}

// startDelay is how long programs that begin together have to get ready.
const startDelay = 700 * time.Millisecond

// Monotonic is CLOCK_MONOTONIC in nanoseconds, the clock of the programs.
func Monotonic() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // no Linux is without it
	}
	return t.Nano()
}

// seconds writes a duration as the programs take it.
func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 6, 64) }
