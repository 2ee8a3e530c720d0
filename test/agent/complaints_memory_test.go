package agent

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"weft.dev/weft/internal/agent"
	"weft.dev/weft/internal/bench"
	"weft.dev/weft/internal/unit"
	"weft.dev/weft/test/suite"
)

// TestComplaintNewEntryPoint has the manifest checked against all known symbols, and the check against new ones.
func TestComplaintNewEntryPoint(t *testing.T) {
	suite.Long(t)
	if err := suite.Shim(built.Lib, "test-manifest"); err != nil {
		t.Fatal(err)
	}
}

// asked asks the bed's agent one question.
func asked(t *testing.T, b *bench.Bed, r agent.Request) agent.Response {
	t.Helper()
	c, err := agent.Dial(soon(t), b.AgentDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }() // it is answered
	answer, err := c.Ask(soon(t), r)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// open lets users other than the test's into a folder.
func open(t *testing.T, dir string) {
	t.Helper()
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
}

// TestComplaintSSHSession runs a program that came in without the job's environment, as one does in a session of SSH: it is seen
// within seconds, and charged to its user's job; what is nobody's is named with its user.
func TestComplaintSSHSession(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the driver's list, looked at once a second")
	}
	b := bed(t, 1)
	const user = 65534
	asked(t, b, agent.Request{Op: agent.OpAllocate, Spec: &agent.Spec{Name: "theirs", GPUs: []string{"0"}, Class: 1, UID: user, Reserved: 2 * unit.GiB}})
	for _, dir := range []string{built.Dir, filepath.Dir(b.EmulatedSocket())} {
		open(t, dir)
	}
	if err := os.Chmod(b.EmulatedSocket(), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		user uint32
		seen func() (bytes unit.Bytes, seen bool)
	}{
		{user, func() (unit.Bytes, bool) {
			j, _ := jobOf(t, b, "theirs")
			return j.Memory[0].Used, len(j.Escaped) > 0
		}},
		{user - 1, func() (unit.Bytes, bool) {
			foreign := known(t, b).GPUs[0].Foreign
			return append(foreign, agent.Escaped{})[0].Bytes, len(foreign) > 0 && strings.Contains(events(t, b), "of user 65533 uses")
		}},
	} {
		cmd := exec.Command(filepath.Join(built.Lib, "weft-train"), "--persistent", "512MiB", "--seconds", "20")
		cmd.Env = []string{"LD_LIBRARY_PATH=" + filepath.Join(built.Lib, "emu"), "WEFT_EMU_SOCKET=" + b.EmulatedSocket()}
		cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: c.user, Gid: c.user}}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, 5*time.Second, "it is seen with its memory", func() bool {
			bytes, seen := c.seen()
			return seen && bytes >= 512*unit.MiB
		})
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // killed, as wanted
		eventually(t, patience, "its memory is off the books", func() bool { bytes, seen := c.seen(); return !seen && bytes == 0 || c.user != user && bytes == 0 })
	}
}

// TestComplaintFalseOutOfMemory kills processes that allocate, again and again: the books never show less than nothing or more
// than the limit, and each new process can have all of it.
func TestComplaintFalseOutOfMemory(t *testing.T) {
	suite.Long(t)
	b := bed(t, 1)
	answer := asked(t, b, agent.Request{Op: agent.OpAllocate, Spec: &agent.Spec{Name: "churn", GPUs: []string{"0"}, Class: 1, Reserved: 4 * unit.GiB}})
	join := func(arguments ...string) *bench.Program {
		line := append([]string{"exec", "--socket", answer.Dir, "--", filepath.Join(built.Lib, "weft-train")}, arguments...)
		return started(t, b, nil, built.Weft, line...)
	}
	most := unit.Bytes(0)
	sound := func() unit.Bytes {
		j, _ := jobOf(t, b, "churn")
		if m := j.Memory[0]; m.Used < 0 || m.Used > m.Limit {
			t.Fatalf("%v of %v are in use", m.Used, m.Limit)
		}
		most = max(most, j.Memory[0].Used)
		return j.Memory[0].Used
	}
	for range 6 {
		list := []*bench.Program{join("--persistent", "1GiB", "--ephemeral", "512MiB", "--kernel-us", "10", "--gap-ms", "0"), join("--persistent", "1GiB", "--ephemeral", "256MiB", "--gap-ms", "0")}
		for begin := time.Now(); time.Since(begin) < 300*time.Millisecond || most < unit.GiB && time.Since(begin) < patience; {
			sound()
		}
		for _, p := range list {
			_ = p.Signal(9) // it runs for ever
		}
		for _, p := range list {
			if code := ends(t, p); code != 128+9 {
				t.Fatalf("a process within its limit ended with %d: %s", code, p.Errors.String())
			}
		}
		eventually(t, patience, "nothing is in use", func() bool { return sound() == 0 })
	}
	if most < unit.GiB {
		t.Errorf("at most %v were seen in use: nothing was tested", most)
	}
	if p := join("--persistent", "3584MiB", "--seconds", "0.1"); ends(t, p) != 0 {
		t.Errorf("what is free cannot be had: %s", p.Errors.String())
	}
}

var code = regexp.MustCompile(`(?m)^(\S+) (\d+)$`)

// TestComplaintWrongCode passes NULL and absurd sizes to every function that gives memory: the codes are the driver's own, but
// for 2 where what is refused is beyond the limit, too; and the books are as before.
func TestComplaintWrongCode(t *testing.T) {
	b := bed(t, 1)
	careless := program(t, "careless")
	under, without := started(t, b, &bench.Job{Name: "careless", Reserved: "4GiB"}, careless), started(t, b, nil, careless)
	for _, p := range []*bench.Program{under, without} {
		if c := ends(t, p); c != 0 {
			t.Fatalf("it ended with %d after\n%s", c, p.Out.String())
		}
	}
	drivers := map[string]string{}
	for _, m := range code.FindAllStringSubmatch(without.Out.String(), -1) {
		drivers[m[1]] = m[2]
	}
	answers := code.FindAllStringSubmatch(under.Out.String(), -1)
	for _, m := range answers {
		want := drivers[m[1]]
		switch {
		case m[2] == want:
		case m[2] == "2" && want == "1":
			t.Logf("%s is beyond the limit, and the driver has code %s", m[1], want)
		default:
			t.Errorf("%s answers %s, the driver %s", m[1], m[2], want)
		}
	}
	if len(answers) < 80 || len(answers) != len(drivers) {
		t.Errorf("%d calls were answered, %d without weft", len(answers), len(drivers))
	}
	used := regexp.MustCompile(`used (\d+) (\d+)\n`).FindStringSubmatch(under.Out.String())
	if len(used) != 3 || used[1] != used[2] {
		t.Errorf("what is in use changed: %v", used)
	}
	within(t, "stdout", &under.Out, "then 0 67108864 0 0\n", 1)
	if under.Errors.Len() > 0 {
		t.Errorf("it says %s", under.Errors.String())
	}
	t.Logf("%d calls", len(answers))
}

// exitCode is what a program ended with, as shells count.
func exitCode(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		t.Fatal(err)
	}
	status, is := exit.Sys().(syscall.WaitStatus)
	if is && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return exit.ExitCode()
}
