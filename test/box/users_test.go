package box

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/web/client"
)

// Users that no machine has.
const (
	ana = 12001
	ben = 12002
)

// askSocket makes this program ask a daemon for what is another's, as the user that it runs as.
const askSocket = "WEFT_BOX_ASK"

// asHelper lets this program be another that the tests start.
func asHelper() (ran bool, code int) {
	socket := os.Getenv(askSocket)
	if socket == "" {
		return false, 0
	}
	var id box.ID
	if _, err := fmt.Sscan(os.Args[1], &id); err != nil {
		return true, 2
	}
	answers := map[string]string{}
	for name, err := range askAll(socket, id) {
		var refusal *box.Error
		switch {
		case err == nil:
			answers[name] = "done"
		case errors.As(err, &refusal):
			answers[name] = string(refusal.Kind)
		default:
			answers[name] = err.Error()
		}
	}
	return true, map[bool]int{true: 0, false: 1}[json.NewEncoder(os.Stdout).Encode(answers) == nil]
}

// askAll does everything that can be done to a job, and what only administrators do, stopping it last.
func askAll(socket string, id box.ID) map[string]error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	d := client.New(socket)
	defer d.Close()
	answers := map[string]error{}
	_, answers["ps"] = d.Jobs(ctx, true, "")
	_, answers["job"] = d.Job(ctx, id)
	_, answers["gpus"] = d.GPUs(ctx)
	_, answers["status"] = d.Status(ctx)
	_, answers["explain"] = d.Explain(ctx, id)
	in, err := d.Log(ctx, id, 0, false)
	if err == nil {
		_ = in.Close() // it was allowed
	}
	answers["log"] = err
	null, err := os.Open(os.DevNull)
	if err == nil {
		err = d.Stdin(ctx, id, null)
	}
	answers["stdin"] = err
	_, answers["drain"] = d.Drain(ctx, 0, true)
	_, answers["open"] = d.Drain(ctx, 0, false)
	_, answers["stop"] = d.Stop(ctx, id)
	_, answers["wait"] = d.Wait(ctx, id)
	return answers
}

// as makes a command that of a user.
func as(uid uint32, cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	cmd.Dir = "/"
	return cmd
}

// ask runs askAll as a user.
func (b *bed) ask(uid uint32, id box.ID) map[string]string {
	b.t.Helper()
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		b.t.Fatal(err)
	}
	path := filepath.Join(b.dir, "ask")
	if err := os.WriteFile(path, self, 0o755); err != nil {
		b.t.Fatal(err)
	}
	cmd := as(uid, exec.Command(path, id.String()))
	cmd.Env = append(slices.Clone(b.env), askSocket+"="+b.socket())
	r := finish(cmd)
	answers := map[string]string{}
	if err := json.Unmarshal([]byte(r.out), &answers); err != nil {
		b.t.Fatalf("%v: %+v", err, r)
	}
	return answers
}

// TestTwoUsers is the table of what one user may do with the job of another, over the socket and with the commands.
func TestTwoUsers(t *testing.T) {
	rooted(t)
	b := up(t, 1)
	if err := os.Mkdir(filepath.Join(b.dir, "secret"), 0o755); err != nil {
		t.Fatal(err)
	}
	r := finish(as(ana, b.weft("run", "-d", "--workdir", "/", "--env", "SECRET=hidden", "--", "sh", "-c", "id -u; id -g; id -G; sleep 1000", "hidden")))
	if r.code != 0 {
		t.Fatalf("%+v", r)
	}
	var id box.ID
	if _, err := fmt.Sscan(r.out, &id); err != nil {
		t.Fatal(err)
	}
	b.until(id, "running", runs)
	b.untilPrinted(id, "whose it is", func(stdout string) bool { return strings.Count(stdout, "\n") == 3 })
	allowed := []string{"ps", "job", "gpus", "status"}
	for name, answer := range b.ask(ben, id) {
		want := "forbidden"
		if slices.Contains(allowed, name) {
			want = "done"
		}
		if answer != want {
			t.Errorf("%s of another's job: %s, want %s", name, answer, want)
		}
	}
	number := id.String()
	for _, command := range [][]string{{"logs", number}, {"logs", "-f", number}, {"explain", number}, {"wait", number}, {"stop", number}, {"drain", "gpu0"}} {
		if r := finish(as(ben, b.weft(command...))); r.code != 5 || r.out != "" || !strings.Contains(r.err, "error: ") {
			t.Errorf("weft %v: exit %d, %q %q", command, r.code, r.out, r.err)
		}
	}
	for _, command := range [][]string{{"ps"}, {"ps", "--json"}, {"ps", "--all", "--json"}, {"gpus", "--json"}, {"events"}, {"status"}} {
		r := finish(as(ben, b.weft(command...)))
		if r.code != 0 || strings.Contains(r.out, "hidden") || strings.Contains(r.out, "sleep 1000") {
			t.Errorf("weft %v: exit %d, %q %q", command, r.code, r.out, r.err)
		}
	}
	b.wantFoldersClosed(id)
	if j := b.until(id, "running still", runs); j.UID != ana {
		t.Errorf("%+v", j)
	}
	if r := finish(as(ana, b.weft("logs", number))); r.out != "12001\n12001\n12001\n" {
		t.Errorf("it runs as %q", r.out)
	}
	for name, answer := range b.ask(ana, id) {
		want := "done"
		if name == "drain" || name == "open" {
			want = "forbidden"
		}
		if name == "stdin" {
			want = "bad_input" // it runs already
		}
		if answer != want {
			t.Errorf("%s of her own job: %s, want %s", name, answer, want)
		}
	}
}

// wantFoldersClosed wants what is kept of a job to be closed to other users.
func (b *bed) wantFoldersClosed(id box.ID) {
	b.t.Helper()
	for _, path := range []string{filepath.Join("jobs", id.String(), "job.json"), "state.db", "token", filepath.Join("agent", "state.json"), filepath.Join("jobs", id.String(), "log")} {
		cmd := as(ben, exec.Command("ls", "-l", filepath.Join(b.state, path)))
		if strings.HasSuffix(path, "db") || strings.HasSuffix(path, "token") || strings.HasSuffix(path, "state.json") {
			cmd = as(ben, exec.Command("cat", filepath.Join(b.state, path)))
		}
		if r := finish(cmd); r.code == 0 {
			b.t.Errorf("another user reads %s", path)
		}
	}
}

// TestDaemonOfOneUser: one that is not root serves its own user only, root too.
func TestDaemonOfOneUser(t *testing.T) {
	rooted(t)
	b := newBed(t)
	for _, dir := range []string{b.state, filepath.Join(b.dir, "run")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dir, ana, ana); err != nil {
			t.Fatal(err)
		}
	}
	daemon := as(ana, b.weft("up", "--emulate", "1", "--state", b.state, "--listen", "none"))
	daemon.Stderr = b.said
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = daemon.Process.Signal(syscall.SIGTERM)
		_ = daemon.Wait() // ended by the signal, by itself
	}()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if r := finish(as(ana, b.weft("run", "--", "id", "-u"))); r.code == 0 {
			if r.out != "12001\n" {
				t.Errorf("a job of its own runs as %q", r.out)
			}
			break
		} else if time.Now().After(end) {
			t.Fatalf("%+v", r)
		}
	}
	for _, uid := range []uint32{0, ben} {
		for _, command := range [][]string{{"run", "--", "true"}, {"run", "-d", "--", "true"}} {
			if r := finish(as(uid, b.weft(command...))); r.code != 5 {
				t.Errorf("uid %d, weft %v: %+v", uid, command, r)
			}
		}
	}
}
