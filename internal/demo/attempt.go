package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
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

	"weft.dev/weft/internal/unit"
)

// codeOOM is how weft-train ends when it is out of GPU memory.
const codeOOM = 3

// patience is how long a process may take to end once it was told to.
const patience = 10 * time.Second

// arguments are those of weft-train for a job, which keeps its checkpoint in a file.
func (j *Job) arguments(checkpoint string) []string {
	return []string{"--name", j.Name, "--model", j.Model, "--batch", j.Batch, "--gpu", j.GPU, "--persistent", size(j.Persistent),
		"--ephemeral", size(j.Peak - j.Persistent - j.Context), "--kernels", strconv.Itoa(j.Kernels),
		"--kernel-us", strconv.FormatFloat(float64(j.Kernel.Nanoseconds())/1e3, 'f', 3, 64),
		"--gap-ms", strconv.FormatFloat(float64(j.Gap.Nanoseconds())/1e6, 'f', 3, 64), "--iterations", strconv.Itoa(j.Iterations),
		"--checkpoint", checkpoint, "--resume"}
}

// size writes a number of bytes as weft-train takes it.
func size(b unit.Bytes) string { return strconv.FormatInt(int64(b), 10) }

// line is what weft-train prints of itself.
type line struct {
	Type       string  `json:"type"` // start, rate, final
	Iterations int     `json:"iterations"`
	Seconds    float64 `json:"seconds"` // since the attempt's start
	Resumed    int     `json:"resumed"`
}

// spell is one attempt of a job as its lines tell it.
type spell struct {
	began      bool
	iterations int // done in all
	running    time.Duration
	final      bool // it told its end
}

// hear takes in a line of an attempt. It returns false for one that begins another attempt, before which this one has ended
// without a word. Lines that are not of weft-train are passed over.
func (s *spell) hear(text []byte) bool {
	var l line
	if json.Unmarshal(text, &l) != nil {
		return true
	}
	switch {
	case l.Type == "start" && s.began:
		return false
	case l.Type == "start":
		s.began, s.iterations = true, l.Resumed
	case l.Type == "rate" || l.Type == "final":
		s.iterations, s.running = l.Iterations, time.Duration(l.Seconds*float64(time.Second))
		s.final = l.Type == "final"
	}
	return true
}

// command is weft-train for a job as a process of its own group: a Ctrl-C in the terminal reaches it through its owner only.
func (p *plain) command(ctx context.Context, job *Job, gpu int) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(p.setup.Programs, "weft-train"),
		append(job.arguments(p.checkpoint(job)), "--devices", strconv.Itoa(gpu))...)
	cmd.Env = append(plainEnvironment(), "WEFT_EMU_SOCKET="+p.broker.Socket(), "LD_LIBRARY_PATH="+filepath.Join(p.setup.Programs, "emu"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = patience
	return cmd
}

// checkpoint is the file that a job goes on from.
func (p *plain) checkpoint(job *Job) string { return filepath.Join(p.dir, job.Name) }

// attempt runs a job until it ends or is out of memory. It keeps the job's checkpoint up to date, as training programs do
// that write one every second.
func (p *plain) attempt(ctx context.Context, number, gpu int) (oom bool, err error) {
	job := &p.setup.Group[number]
	cmd := p.command(ctx, job, gpu)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return false, err
	}
	from := p.since()
	if err := cmd.Start(); err != nil {
		return false, err
	}
	s, began, err := p.follow(out, number)
	if failure := cmd.Wait(); failure != nil || err != nil {
		oom = cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == codeOOM
		if !oom || err != nil {
			return false, p.failed(ctx, job, errors.Join(err, failure), &said)
		}
	}
	to := p.since()
	if !s.final { // it told no end: what it ran since it began
		s.running = to - began
	}
	p.note(number, Stay{gpu, from, to}, s.running, oom)
	return oom, nil
}

// follow reads what an attempt prints, to the end. began is when it began to run.
func (p *plain) follow(out io.Reader, number int) (s spell, began time.Duration, err error) {
	job := &p.setup.Group[number]
	began = p.since()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		before, fresh := s.iterations, !s.began
		s.hear(lines.Bytes())
		if fresh && s.began {
			began = p.since()
		}
		if s.iterations > before && err == nil {
			err = keep(p.checkpoint(job), s.iterations)
			p.tracker.progress(number, s.iterations)
		}
	}
	return s, began, errors.Join(err, lines.Err())
}

// keep writes a checkpoint as weft-train does.
func keep(path string, iterations int) error {
	if err := os.WriteFile(path+".new", fmt.Appendf(nil, "iterations %d\n", iterations), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func (p *plain) failed(ctx context.Context, job *Job, err error, said *bytes.Buffer) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("job %s: %w: %s", job.Name, err, strings.TrimSpace(said.String()))
}
