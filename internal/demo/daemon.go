package demo

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/shepherd"
	"weft.dev/weft/internal/web/client"
)

// daemon is `weft up` as a process.
type daemon struct {
	state  string
	cmd    *exec.Cmd
	client *client.Client
	said   *buffer
	ended  chan struct{} // closed with the process's end
	err    error         // of that, once ended is closed
}

// buffer keeps what a process says; it may be read meanwhile.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.TrimSpace(b.b.String())
}

// plainEnvironment is that of this process without what steers weft: neither a daemon nor settings that are there change a demo.
func plainEnvironment() []string {
	return slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "WEFT_") })
}

// startDaemon starts a daemon on emulated GPUs in a folder, and returns once it answers.
func startDaemon(ctx context.Context, s Setup, dir string) (*daemon, error) {
	state := filepath.Join(dir, "state")
	d := &daemon{state: state, said: &buffer{}, ended: make(chan struct{}), client: newClient(state)}
	d.cmd = exec.Command(s.Weft, "up", "--emulate", strconv.Itoa(len(s.GPUs)), "--gpu-memory", strconv.FormatInt(int64(s.Memory), 10), "--state", state, "--listen", "none")
	d.cmd.Env = append(plainEnvironment(), "WEFT_LIB="+s.Programs, "WEFT_RUNTIME_DIR="+dir, "XDG_CONFIG_HOME="+dir, "WEFT_CONFIG="+filepath.Join(dir, "none.yaml"))
	d.cmd.Stdout, d.cmd.Stderr = d.said, d.said
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C in the terminal is for its owner, who stops the jobs first
	d.cmd.WaitDelay = patience
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		d.err = d.cmd.Wait()
		close(d.ended)
	}()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		if _, err := d.client.Status(ctx); err == nil {
			return d, nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-d.ended:
			return nil, fmt.Errorf("weft up ended: %w: %s", d.err, d.said)
		case <-limit.C:
			return nil, errors.Join(fmt.Errorf("weft up did not answer for %v: %s", patience, d.said), d.end(ctx))
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), d.end(ctx))
		}
	}
}

// end stops all jobs, then the daemon.
func (d *daemon) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience) // also after a Ctrl-C
	defer cancel()
	d.stopJobs(ctx)
	d.client.Close()
	_ = d.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-d.ended:
	case <-time.After(patience):
		_ = d.cmd.Process.Kill()
		<-d.ended
		return fmt.Errorf("weft up did not end within %v: %s", patience, d.said)
	}
	return nil
}

// stopJobs asks all jobs to end and waits until none lives, or the context ends.
func (d *daemon) stopJobs(ctx context.Context) {
	for {
		jobs, err := d.client.Jobs(ctx, false, "")
		if err != nil || len(jobs) == 0 {
			return
		}
		live := false
		for _, j := range jobs {
			if j.State != box.Done {
				live = true
				_, _ = d.client.Stop(ctx, j.ID) // it may have ended
			}
		}
		if !live {
			return
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return
		}
	}
}

// running is how long a job ran by its own account, all attempts together.
func (d *daemon) running(ctx context.Context, id box.ID) (time.Duration, error) {
	text, err := d.output(ctx, id, shepherd.Stdout)
	if err != nil {
		return 0, err
	}
	var all time.Duration
	var s spell
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		if !s.hear(lines.Bytes()) {
			all += s.running
			s = spell{}
			s.hear(lines.Bytes())
		}
	}
	return all + s.running, lines.Err()
}

// output is what a job wrote to a stream.
func (d *daemon) output(ctx context.Context, id box.ID, stream shepherd.Stream) ([]byte, error) {
	in, err := d.client.Log(ctx, id, 0, false)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }() // only read from
	var text []byte
	frames := shepherd.NewDecoder(in)
	for {
		f, err := frames.Next()
		if errors.Is(err, io.EOF) {
			return text, nil
		}
		if err != nil {
			return nil, fmt.Errorf("log of job %d: %w", id, err)
		}
		if f.Stream == stream {
			text = append(text, f.Bytes...)
		}
	}
}

// lastWords is what a job that failed said.
func (d *daemon) lastWords(ctx context.Context, id box.ID) string {
	text, err := d.output(ctx, id, shepherd.Stderr)
	if err != nil {
		return err.Error()
	}
	const most = 500
	return strings.TrimSpace(string(text[max(0, len(text)-most):]))
}
