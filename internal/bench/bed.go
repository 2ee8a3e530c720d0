package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Options say where to measure.
type Options struct {
	Weft     string    // the weft binary, which is also agent, emulated GPUs and `weft exec`
	Programs string    // folder of weft-probe and, for emulation, of emu/libcuda.so.1
	GPU      int       // index of the GPU to measure
	Emulated int       // so many emulated GPUs; 0 is the real ones
	GPUs     []string  // further flags of the emulated GPUs
	Agent    []string  // further flags of the agent
	Log      io.Writer // what agent and programs say on stderr; nil discards it
}

// Bed is a node to measure on: an agent and the GPU that it guards.
type Bed struct {
	o      Options
	dir    string
	env    []string
	broker *exec.Cmd
	agent  *exec.Cmd
}

// patience is how long a part of the bed may take to start or to end.
const patience = 15 * time.Second

// Open starts the emulated GPUs, where asked for, and an agent. The caller closes the bed.
func Open(ctx context.Context, o Options) (*Bed, error) {
	dir, err := os.MkdirTemp("", "weft-bench-")
	if err != nil {
		return nil, err
	}
	b := &Bed{o: o, dir: dir, env: os.Environ()}
	if o.Emulated > 0 {
		if err := b.emulate(ctx); err != nil {
			return nil, errors.Join(err, b.Close())
		}
	}
	if err := b.StartAgent(ctx); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func (b *Bed) emulate(ctx context.Context) (err error) {
	socket := filepath.Join(b.dir, "gpus.sock")
	b.env = append(b.env, "WEFT_EMU_SOCKET="+socket, "LD_LIBRARY_PATH="+filepath.Join(b.o.Programs, "emu"))
	b.broker, err = b.start(ctx, append([]string{"emugpu", "--gpus", strconv.Itoa(b.o.Emulated), "--socket", socket}, b.o.GPUs...)...)
	return err
}

// StartAgent starts the agent, which must not run.
func (b *Bed) StartAgent(ctx context.Context) (err error) {
	arguments := append([]string{"agent", "--local", "--dir", b.AgentDir()}, b.o.Agent...)
	b.agent, err = b.start(ctx, arguments...)
	return err
}

// KillAgent kills the agent with SIGKILL, as a crash would.
func (b *Bed) KillAgent() error {
	err := b.agent.Process.Kill()
	_ = b.agent.Wait() // killed, as wanted
	b.agent = nil
	return err
}

// PIDs are the processes of the agent and of the emulated GPUs.
func (b *Bed) PIDs() []int { return []int{b.agent.Process.Pid, b.broker.Process.Pid} }

// AgentDir is the folder that `weft exec --socket` takes.
func (b *Bed) AgentDir() string { return filepath.Join(b.dir, "agent") }

// EmulatedSocket is where the emulated GPUs listen.
func (b *Bed) EmulatedSocket() string { return filepath.Join(b.dir, "gpus.sock") }

// start runs a long-lived part of weft and returns once it has written its first line to stdout.
func (b *Bed) start(ctx context.Context, arguments ...string) (*exec.Cmd, error) {
	cmd := exec.CommandContext(ctx, b.o.Weft, arguments...)
	cmd.Env, cmd.WaitDelay = b.env, patience
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	var said strings.Builder
	cmd.Stderr = &said
	if b.o.Log != nil {
		cmd.Stderr = io.MultiWriter(&said, b.o.Log)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	first := make(chan error, 1)
	go func() {
		lines := bufio.NewReader(out)
		_, err := lines.ReadString('\n')
		first <- err
		_, _ = io.Copy(io.Discard, lines) // nothing that it says later may block it
	}()
	select {
	case err = <-first:
	case <-time.After(patience):
		err = fmt.Errorf("said nothing for %v", patience)
	}
	if err == nil {
		return cmd, nil
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	return nil, fmt.Errorf("weft %s did not start: %w: %s", arguments[0], err, strings.TrimSpace(said.String()))
}

// Close ends the parts and removes their folder.
func (b *Bed) Close() error {
	err := errors.Join(end(b.agent), end(b.broker))
	return errors.Join(err, os.RemoveAll(b.dir))
}

// end asks a part to end and waits for it.
func end(cmd *exec.Cmd) error {
	if cmd == nil {
		return nil
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	timer := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	err := cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil // ended by the signal, by itself, or with its context
	}
	return err
}
