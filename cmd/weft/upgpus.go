package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/local"
	"weft.dev/weft/internal/trace"
)

// emulatedSocket is where the emulated GPUs of a state folder listen.
const emulatedSocket = "emulated.sock"

// emulatedFile says what emulates them, for the next daemon.
const emulatedFile = "emulated.json"

// lingering is how long emulated GPUs wait for somebody to use them, after a daemon that was killed.
const lingering = 10 * time.Second

// emulated is a process of emulated GPUs.
type emulated struct {
	PID  int      `json:"pid"`
	Args []string `json:"args"` // how they were asked for
}

// open finds the GPUs: real ones, those that WEFT_EMU_SOCKET names, or emulated ones in a process of their own.
func (c *upCommand) open(state string, o *local.Options, log *slog.Logger) (*served, error) {
	serve := agentServeCommand{Dir: state, Locks: c.Locks, NVML: c.NVML}
	if c.Emulate > 0 {
		socket := filepath.Join(state, emulatedSocket)
		if err := c.emulate(state, socket, log); err != nil {
			return nil, err
		}
		if err := os.Setenv("WEFT_EMU_SOCKET", socket); err != nil {
			return nil, err
		}
	}
	o.Emulated = os.Getenv("WEFT_EMU_SOCKET") != ""
	gpus, err := serve.open(&o.Agent)
	if socket := os.Getenv("WEFT_EMU_SOCKET"); socket != "" { // beside the GPUs that they are of
		o.Agent.Locks = filepath.Join(filepath.Dir(socket), "locks")
	}
	var faults trace.Errors
	if errors.As(err, &faults) && faults[0].Code == "no_gpu" {
		faults[0].Why, faults[0].Fix = "weft shares GPUs", "weft up --emulate 4 makes some to try it on"
	}
	return gpus, err
}

// emulate makes sure that the GPUs that were asked for are there: those of the last daemon, if they still run, or new ones.
func (c *upCommand) emulate(state, socket string, log *slog.Logger) error {
	args := []string{"emugpu", "serve", "--gpus", strconv.Itoa(c.Emulate), "--model", strings.Join(c.GPUModel, ","), "--socket", socket, "--linger", lingering.String()}
	if c.GPUMemory > 0 {
		args = append(args, "--memory", c.GPUMemory.String())
	}
	for _, x := range c.Interference {
		args = append(args, "--interference", x)
	}
	if old, alive := runningEmulated(state); alive {
		if strings.Join(old.Args, " ") == strings.Join(args, " ") {
			log.Info("the emulated GPUs of the last daemon are still there", "pid", old.PID)
			return nil
		}
		return trace.Errors{{Code: "emulated", File: "command line", Column: "--emulate", Message: fmt.Sprintf("other GPUs are emulated already, by pid %d", old.PID),
			Why: "jobs of the last daemon may use them", Fix: "the same flags as before, or kill " + strconv.Itoa(old.PID) + " to give them up"}}
	}
	check := emugpuServeCommand{GPUs: c.Emulate, Model: c.GPUModel, Memory: c.GPUMemory, Interference: c.Interference, Scale: 1, Slice: 2 * time.Millisecond}
	if _, err := check.options(); err != nil {
		return err
	}
	return startEmulated(state, args)
}

// startEmulated starts the process and waits until it serves.
func startEmulated(state string, args []string) error {
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }() // only read from
	said, err := os.OpenFile(filepath.Join(state, "emulated.log"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return errors.Join(writing(err), in.Close())
	}
	defer func() { _ = said.Close() }() // the process has its own
	command := exec.Command(executable, args...)
	command.Stdout, command.Stderr, command.SysProcAttr = in, said, &syscall.SysProcAttr{Setsid: true}
	err = command.Start()
	_ = in.Close() // the process has its own
	if err != nil {
		return fmt.Errorf("start the emulated GPUs: %w", err)
	}
	go func() { _ = command.Wait() }() // it may end before us, and leaves no zombie
	text, err := json.Marshal(emulated{command.Process.Pid, args})
	if err == nil {
		err = os.WriteFile(filepath.Join(state, emulatedFile), text, 0o600)
	}
	line := make([]byte, 1)
	if _, ended := io.ReadFull(out, line); ended != nil {
		why, _ := os.ReadFile(said.Name())
		return fmt.Errorf("the emulated GPUs did not start: %s", strings.TrimSpace(string(why)))
	}
	return err
}

// runningEmulated is the process of emulated GPUs of a state folder, if it still serves.
func runningEmulated(state string) (emulated, bool) {
	var e emulated
	text, err := os.ReadFile(filepath.Join(state, emulatedFile))
	if err != nil || json.Unmarshal(text, &e) != nil {
		return e, false
	}
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: filepath.Join(state, emulatedSocket), Net: "unixpacket"})
	if err != nil {
		return e, false
	}
	defer func() { _ = conn.Close() }() // nothing was asked
	if peer, err := peerOf(conn); err == nil {
		e.PID = peer
	}
	return e, true
}

// peerOf is the process behind a connection.
func peerOf(conn *net.UnixConn) (int, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var credentials *unix.Ucred
	fault := raw.Control(func(fd uintptr) { credentials, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err := errors.Join(err, fault); err != nil {
		return 0, err
	}
	return int(credentials.Pid), nil
}

// endEmulated ends the emulated GPUs of a state folder, which nothing uses any more.
func endEmulated(state string) error {
	e, alive := runningEmulated(state)
	if !alive {
		return nil
	}
	return errors.Join(syscall.Kill(e.PID, syscall.SIGTERM), os.Remove(filepath.Join(state, emulatedFile)))
}

// isReadOnly says whether an error is that of a folder that cannot be written.
func isReadOnly(err error) bool {
	return errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.EACCES)
}
