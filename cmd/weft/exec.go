package main

import (
	"bytes"
	"cmp"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"weft.dev/weft/internal/agent"
	"weft.dev/weft/internal/spelling"
	"weft.dev/weft/internal/trace"
	"weft.dev/weft/internal/unit"
)

// execCommand runs a program under the agent, in this process.
type execCommand struct {
	Socket    string      `env:"WEFT_DIR" placeholder:"DIR" help:"The agent's folder, or that of an allocation to join. Default: /run/weft, or weft in the user's runtime folder."`
	Name      string      `placeholder:"N" help:"Name of the job. Default: that of the program."`
	GPU       []string    `name:"gpu" default:"0" placeholder:"0,1" help:"GPUs of the job: numbers or UUIDs."`
	Class     string      `enum:"guaranteed,burstable,besteffort" default:"burstable" help:"How far it may be held back for others: guaranteed, burstable or besteffort."`
	Weight    int         `default:"1" help:"Its share within its class, relative to others: 1 to 1000."`
	Reserved  *unit.Bytes `placeholder:"4GiB" help:"Memory of each GPU that is always its own. Default: a quarter of the GPU, or none beside --peak."`
	Peak      *unit.Bytes `placeholder:"8GiB" help:"Memory of each GPU that it uses at most beyond that, within an iteration."`
	Cooperate bool        `help:"It hands unused memory over at its iterations (weft.torch, weft_iteration): its peak is lent to others meanwhile."`
	Command   []string    `arg:"" passthrough:"" placeholder:"CMD" help:"The program and its arguments, after --."`
}

// Help is what weft exec --help adds.
func (execCommand) Help() string {
	return `weft exec becomes the program: its pid, signals and exit code are the program's own. The job ends when the program and
what it started end. Exit codes before that: 2 bad input, 4 no agent, 125 trouble of weft, 126 not executable, 127 not found.

Examples:
  weft exec --socket /tmp/weft --gpu 0 --class guaranteed --reserved 6GiB -- python3 train.py
  weft exec --socket /tmp/weft --class besteffort --reserved 1GiB --peak 4GiB --cooperate -- ./probe`
}

// Exit codes of what comes before the program.
const (
	exitTrouble       = 125
	exitNotExecutable = 126
	exitNoProgram     = 127
)

// Run implements the command.
func (c *execCommand) Run(ctx context.Context, s *session) error {
	var err error
	if c.Command, err = commandIn(c.Command, "exec", false); err != nil {
		return err
	}
	path, err := findProgram(c.Command)
	if err != nil {
		return err
	}
	folder, err := libraries()
	if err != nil {
		return troubled(err)
	}
	if strings.ContainsAny(folder, ": ") {
		return troubled(trace.Errors{{Code: "library_path", File: folder, Message: "a blank or colon in the folder of libweft.so",
			Why: "the loader takes them for the end of a name", Fix: "name another folder in WEFT_LIB"}})
	}
	warn(s, path)
	dir, err := c.join(ctx, s)
	if err != nil {
		return err
	}
	environment, err := agent.Environment(os.Environ(), folder, dir)
	if err != nil {
		return troubled(err)
	}
	err = syscall.Exec(path, c.Command, environment)
	return &failure{inputError{trace.Errors{{Code: "not_executable", File: path, Message: fmt.Sprintf("%s: %v", c.Command[0], err),
		Fix: "check the file's format and its #! line"}}, false}, exitNotExecutable}
}

// troubled is a fault of weft's own.
func troubled(err error) error {
	faults := faultsIn(err)
	if len(faults) == 0 {
		faults = trace.Errors{{Code: "failed", File: "weft exec", Message: err.Error()}}
	}
	return &failure{inputError{faults, false}, exitTrouble}
}

// commandIn is a program and its arguments: the words after the flags of a command of weft, and after "--". Without that, a first word
// like a flag is one that the command does not know.
func commandIn(words []string, verb string, asJSON bool) ([]string, error) {
	switch {
	case len(words) > 0 && words[0] == "--":
		return words[1:], nil
	case len(words) > 0 && strings.HasPrefix(words[0], "-"):
		flag, _, _ := strings.Cut(words[0], "=")
		return nil, misuse("unknown flag "+flag, "weft "+verb, asJSON)
	}
	return words, nil
}

// findProgram is the file that a command names.
func findProgram(command []string) (string, error) {
	if len(command) == 0 {
		return "", asInput(flagError("CMD", "", "no program", "weft exec runs one", "weft exec -- python3 train.py"), false)
	}
	path, err := exec.LookPath(command[0])
	switch {
	case err == nil || errors.Is(err, exec.ErrDot):
		return path, nil
	case errors.Is(err, fs.ErrPermission):
		return "", &failure{inputError{trace.Errors{{Code: "not_executable", File: command[0], Message: command[0] + " is not executable",
			Fix: "chmod +x " + shellWord(command[0])}}, false}, exitNotExecutable}
	}
	fault := &trace.Error{Code: "no_program", File: command[0], Message: command[0] + " was not found", Fix: "check its spelling, or write its path"}
	if errors.Is(err, syscall.EISDIR) {
		fault.Message, fault.Fix = command[0]+" is a folder", "name the program in it"
	} else if near := spelling.Near(filepath.Base(command[0]), programsBeside(command[0]), 3); len(near) > 0 {
		fault.Fix = strings.Join(near, ", ") + "?"
	}
	return "", &failure{inputError{trace.Errors{fault}, false}, exitNoProgram}
}

// programsBeside is the names of the programs where one is looked for: in its folder, or those of PATH.
func programsBeside(program string) []string {
	folders := filepath.SplitList(os.Getenv("PATH"))
	if dir := filepath.Dir(program); strings.ContainsRune(program, '/') {
		folders = []string{dir}
	}
	var names []string
	for _, dir := range folders {
		entries, _ := os.ReadDir(dir) // one that cannot be read has no programs
		for _, e := range entries {
			if info, err := os.Stat(filepath.Join(dir, e.Name())); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				names = append(names, e.Name())
			}
		}
	}
	return names
}

// join is the folder of the allocation: the one named, or a new one of the agent there, which ends with this process.
func (c *execCommand) join(ctx context.Context, s *session) (string, error) {
	dir, err := filepath.Abs(cmp.Or(c.Socket, defaultDir()))
	if err != nil {
		return "", troubled(err)
	}
	if _, err := os.Stat(filepath.Join(dir, agent.SocketName)); err == nil {
		return dir, nil
	}
	class, err := agent.ParseClass(c.Class)
	if err != nil {
		return "", troubled(err)
	}
	spec := &agent.Spec{Name: cmp.Or(c.Name, filepath.Base(c.Command[0])), GPUs: c.GPU, Class: class, Weight: c.Weight,
		Reserved: memoryOr(c.Reserved, agent.Default), Peak: memoryOr(c.Peak, agent.Default), Cooperates: c.Cooperate, UID: os.Geteuid(), PID: os.Getpid()}
	waits := time.AfterFunc(2*time.Second, func() {
		_, _ = fmt.Fprintln(s.stderr, "weft: waiting until its memory is free; Ctrl-C gives up")
	})
	answer, err := agentAt{dir}.ask(ctx, agent.Request{Op: agent.OpAllocate, Spec: spec}, false)
	waits.Stop()
	var input *inputError
	var failed *failure
	switch {
	case ctx.Err() != nil: // also where the answer came at that moment: it ends with this process
		return "", statusError(exitInterrupted)
	case err != nil && !errors.As(err, &input) && !errors.As(err, &failed):
		return "", troubled(err)
	}
	return answer.Dir, err
}

func memoryOr(b *unit.Bytes, otherwise unit.Bytes) unit.Bytes {
	if b == nil {
		return otherwise
	}
	return *b
}

// warn says where a program will lose the preloaded library, as far as its file tells.
func warn(s *session, path string) {
	info, err := os.Stat(path)
	if err != nil {
		return
	}
	if info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 && os.Geteuid() != 0 {
		_, _ = fmt.Fprintf(s.stderr, "weft: %s is setuid: the loader drops preloaded libraries, it runs unshared\n", path)
	}
	if static(path) {
		_, _ = fmt.Fprintf(s.stderr, "weft: %s is linked statically: no library can be preloaded, it runs unshared\n", path)
	}
}

// static says whether a program, or the interpreter of a script, has no dynamic loader.
func static(path string) bool {
	head := make([]byte, 256)
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // only read from
	n, _ := f.Read(head)             // an empty file is no program
	if line, is := bytes.CutPrefix(head[:n], []byte("#!")); is {
		line, _, _ = bytes.Cut(line, []byte("\n"))
		fields := strings.Fields(string(line))
		return len(fields) > 0 && fields[0] != path && static(fields[0])
	}
	program, err := elf.NewFile(f)
	if err != nil {
		return false
	}
	return !slices.ContainsFunc(program.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}
