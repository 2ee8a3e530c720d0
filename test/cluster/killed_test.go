package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// asOwner, in the environment, makes the test's program bring up a cluster, say so, and wait: "detached" or "own". With killedAt it is
// killed shortly after it has said that.
const (
	asOwner  = "WEFT_CLUSTER_TEST_OWNER"
	killedAt = "WEFT_CLUSTER_TEST_KILLED"
)

// own is the program that asOwner makes of the tests. Its own timer kills it, since a test that is held up may come too late into a step.
func own(kind string) error {
	say := func(line string) {
		fmt.Println(line)
		if line == os.Getenv(killedAt) {
			time.AfterFunc(500*time.Millisecond, func() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) }) // into the step
		}
	}
	_, err := Up(context.Background(), Options{Detach: kind == "detached", Progress: say})
	if err != nil {
		return err
	}
	say("up")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// needNode skips a test where the machine can have no cluster, or waits for one that somebody else has.
func needNode(t *testing.T) {
	t.Helper()
	long(t)
	SkipOr(t, Check())
	if _, err := Find(t.Context()); err != nil {
		SkipOr(t, err)
	}
	const patience = 10 * time.Minute
	release, err := Turn(t.Context(), patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	unlock, err := lockFree(t.Context(), Options{Wait: patience, Progress: func(line string) { t.Log(line) }})
	if err != nil {
		t.Fatal(err)
	}
	unlock()
	t.Cleanup(func() { // if the test did not
		if _, err := Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// TestOwnerKilled kills who brings a cluster up, while it comes up and after. The next one who comes removes what is left.
func TestOwnerKilled(t *testing.T) {
	needNode(t)
	before := stateNow(t)
	for _, c := range []struct{ kind, until string }{
		{"own", "control plane"}, {"detached", "control plane"}, {"detached", "node"}, {"own", "up"},
	} {
		t.Run(c.kind+" at "+c.until, func(t *testing.T) {
			owner, out := again(t, asOwner+"="+c.kind, killedAt+"="+c.until, inTurn+"=1")
			reach(t, out, c.until)
			if err := owner.Wait(); owner.ProcessState.Exited() {
				t.Fatalf("it ended before it was killed: %v", err)
			}
			if _, err := Open(); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("what is left counts as a cluster: %v", err)
			}
			if was, err := Down(t.Context()); err != nil || !was {
				t.Errorf("ending what is left: %v, %v", was, err)
			}
			sameState(t, before)
			if was, err := Down(t.Context()); err != nil || was {
				t.Errorf("ending nothing: %v, %v", was, err)
			}
		})
	}
}

// reach reads lines until one is what is waited for.
func reach(t *testing.T, out io.Reader, until string) {
	t.Helper()
	lines := bufio.NewScanner(out)
	var said []string
	for lines.Scan() {
		if said = append(said, lines.Text()); lines.Text() == until {
			return
		}
	}
	t.Fatalf("it never says %q, but %s", until, strings.Join(said, "; "))
}

// TestUpInterrupted ends the context while a cluster comes up: everything of it is gone when Up returns. A cluster that is
// up, and was to stay, is found by others and ended by Down.
func TestUpInterrupted(t *testing.T) {
	needNode(t)
	before := stateNow(t)
	for _, at := range []string{"interfaces, control groups, certificates", "control plane", "node"} {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := Up(ctx, Options{Progress: func(line string) {
			if line == at {
				cancel()
			}
		}})
		if cancel(); !errors.Is(err, context.Canceled) {
			t.Errorf("interrupted at %q: %v", at, err)
		}
		sameState(t, before)
	}
}

// TestCloseIsOfItsOwn ends a cluster behind the back of who has it, and brings up another one: closing the first one does
// nothing to the second.
func TestCloseIsOfItsOwn(t *testing.T) {
	needNode(t)
	first := up(t, Options{})
	if was, err := Down(t.Context()); err != nil || !was {
		t.Fatal(was, err)
	}
	second := up(t, Options{})
	if err := first.Close(t.Context()); err != nil {
		t.Error(err)
	}
	for _, name := range second.Components() {
		if err := second.Component(name).Ready(t.Context()); err != nil {
			t.Errorf("%s of the second cluster: %v", name, err)
		}
	}
}

// TestDetachedStays has another process bring up a cluster and end: it is there, serves, and Down ends it.
func TestDetachedStays(t *testing.T) {
	needNode(t)
	before := stateNow(t)
	owner := exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), asOwner+"=detached", inTurn+"=1")
	owner.Stdin = nil // it ends when it is up
	if out, err := owner.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	run(t, c, pod("other", NodeName, nil), "Running")
	if err := c.Component(Containerd).Restart(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := Up(t.Context(), Options{}); !errors.Is(err, ErrUp) {
		t.Errorf("a second cluster: %v", err)
	}
	if was, err := Down(t.Context()); err != nil || !was {
		t.Errorf("%v, %v", was, err)
	}
	sameState(t, before)
}
