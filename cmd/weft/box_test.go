package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// builtLibraries is where make build leaves the libraries.
const builtLibraries = "../../bin/lib"

// scenarioTime is how long a daemon may take to start, and anything to become so.
const scenarioTime = 30 * time.Second

// up starts a daemon. Its state is in $WORK/state, and commands find it without being told so.
func up(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("usage: up args...")
	}
	folder, err := filepath.Abs(builtLibraries)
	ts.Check(err)
	ts.Setenv("WEFT_LIB", folder)
	ts.Setenv("WEFT_RUNTIME_DIR", ts.MkAbs("run"))
	weft, err := exec.LookPath("weft")
	ts.Check(err)
	state, err := os.MkdirTemp("/tmp", "weft-up-") // short: sockets are in it
	ts.Check(err)
	log, err := os.OpenFile(ts.MkAbs("up.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	ts.Check(err)
	command := exec.Command(weft, append([]string{"up", "--emulate", "2", "--gpu-memory", "16GiB", "--state", state, "--listen", "none"}, args...)...)
	command.Dir, command.Stdout, command.Stderr = ts.MkAbs("."), log, log
	command.Env = append(os.Environ(), "WEFT_LIB="+folder, "WEFT_RUNTIME_DIR="+ts.MkAbs("run"), "WEFT_CONFIG="+ts.Getenv("WEFT_CONFIG"), "HOME="+ts.MkAbs("."))
	ts.Check(command.Start())
	ts.Setenv("UP", strconv.Itoa(command.Process.Pid))
	ts.Defer(func() {
		stopAll(ts)
		_ = command.Process.Signal(syscall.SIGTERM) // it may be gone
		_ = command.Wait()                          // as it was told
		_ = log.Close()
		_ = os.RemoveAll(state) // it is told by the next lack of room
	})
	for began := time.Now(); ts.Exec("weft", "status") != nil; time.Sleep(50 * time.Millisecond) {
		if time.Since(began) > scenarioTime {
			ts.Fatalf("no daemon: %s", ts.ReadFile("up.log"))
		}
	}
}

// stopAll ends what a scenario left running.
func stopAll(ts *testscript.TestScript) {
	if ts.Exec("weft", "ps", "--json") != nil {
		return
	}
	var list struct{ Jobs []struct{ ID uint64 } }
	if json.Unmarshal([]byte(ts.ReadFile("stdout")), &list) != nil {
		return
	}
	for _, j := range list.Jobs {
		id := strconv.FormatUint(j.ID, 10)
		_ = ts.Exec("weft", "stop", id) // it may be done
		_ = ts.Exec("weft", "wait", id) // its status says nothing here
	}
}

func eventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: eventually TEXT command...")
	}
	pattern, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		_ = ts.Exec(args[1], args[2:]...) // its output tells
		out := ts.ReadFile("stdout")
		if pattern.MatchString(out) {
			return
		}
		if time.Since(began) > scenarioTime {
			ts.Fatalf("never %q:\n%s\n%s", args[0], bytes.TrimSpace([]byte(out)), ts.ReadFile("up.log"))
		}
	}
}
