package cluster

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestStatFields makes names as nasty as the kernel lets them be: the fields after them are found.
func TestStatFields(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringN(0, 15, 15).Draw(t, "name")
		rest := "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20"
		fields, err := statFields("123 (" + name + ") " + rest + "\n")
		if err != nil || fields[0] != "S" || fields[19] != "4711" {
			t.Fatalf("%q: %v, %v", name, fields, err)
		}
	})
	for _, text := range []string{"", "1", "1 (a)", "1 (a) S 1", "1 a S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21"} {
		if _, err := statFields(text); err == nil {
			t.Errorf("%q has fields", text)
		}
	}
}

func TestProcessIsNoOther(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := identify(cmd.Process.Pid)
	if err != nil || !p.alive() || p.memory() == 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	other := process{p.PID, p.Start + 1}
	if other.alive() {
		t.Error("a later process of that number is taken for the earlier one")
	}
	if err := other.signal(syscall.SIGKILL); err != nil || !p.alive() {
		t.Errorf("it was sent the signal of another one: %v", err)
	}
	if err := p.signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := p.end(t.Context(), 5*time.Second); err != nil { // before anybody waits for it
		t.Error(err)
	}
	_ = cmd.Wait() // killed
	if p.alive() || p.memory() != 0 || p.processor() != 0 || p.signal(syscall.SIGKILL) != nil {
		t.Error("it has ended, and does not seem so")
	}
	if (process{}).alive() {
		t.Error("no process is alive")
	}
}

// TestProcessor: what this process does counts, near to what the kernel tells it of itself.
func TestProcessor(t *testing.T) {
	p, err := identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	own := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	for began := own(); own()-began < 100*time.Millisecond; {
	}
	before := own()
	got := p.processor()
	if after := own(); got < before-3*tick || got > after+tick {
		t.Errorf("%v, while the kernel told the process %v and then %v", got, before, after)
	}
}

// asParent, in the environment, makes the test's program start a process with a mark, say its number, and wait.
const asParent = "WEFT_CLUSTER_TEST_PARENT"

func TestMain(m *testing.M) {
	if dir := os.Getenv(asParent); dir != "" {
		cmd := exec.Command("sleep", "600")
		cmd.Env = append(os.Environ(), mark+"="+dir)
		p, _, err := newSpawner().start(cmd, filepath.Join(dir, "log"), false)
		fmt.Println(p.PID, err)
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	if kind := os.Getenv(asOwner); kind != "" {
		if err := own(kind); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// again starts this test binary as another process, with variables that say what it is to be. It sees the end of its input when
// the test ends.
func again(t *testing.T, variables ...string) (*exec.Cmd, io.Reader) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), variables...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close() }) // it may have ended
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, out
}

// TestProcessesEndWithTheirOwner kills the owner of a process: the process is found by its mark while it runs, and ends.
func TestProcessesEndWithTheirOwner(t *testing.T) {
	dir := t.TempDir()
	owner, out := again(t, asParent+"="+dir)
	line, _ := bufio.NewReader(out).ReadString('\n')
	number, _, _ := strings.Cut(line, " ")
	pid, err := strconv.Atoi(number)
	if err != nil {
		t.Fatalf("the owner says %q", line)
	}
	p, err := identify(pid)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]process{p}, marked(dir)); diff != "" {
		t.Error(diff)
	}
	if more := marked(dir + "x"); len(more) > 0 {
		t.Errorf("%v have the mark of another folder", more)
	}
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait() // killed
	if err := p.end(t.Context(), endWithin); err != nil {
		t.Error(err)
	}
}

func TestSpawnerRefuses(t *testing.T) {
	s := newSpawner()
	defer s.close()
	dir := t.TempDir()
	if _, _, err := s.start(exec.Command(filepath.Join(dir, "none")), filepath.Join(dir, "log"), false); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a program that is not there: %v", err)
	}
	p, ended, err := s.start(exec.Command("sh", "-c", "echo said; exit 3"), filepath.Join(dir, "log"), false)
	if err != nil {
		t.Fatal(err)
	}
	<-ended
	text, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil || string(text) != "said\n" || p.alive() {
		t.Errorf("%v, %q", err, text)
	}
}

func TestParseMounts(t *testing.T) {
	got := parseMounts("22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n" +
		`30 22 0:25 / /mnt/a\040b\134c rw - tmpfs tmpfs rw` + "\n" +
		"31 22 0:26 /x /sys/fs/cgroup/cpu rw shared:2 master:3 - cgroup cgroup rw,cpu\nbroken\n1 2 - x\n")
	want := []mount{{"/", "ext4"}, {`/mnt/a b\c`, "tmpfs"}, {"/sys/fs/cgroup/cpu", "cgroup"}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(mount{})); diff != "" {
		t.Error(diff)
	}
}

func TestCheckGroups(t *testing.T) {
	write := func(dir, name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	first, second, none := t.TempDir(), t.TempDir(), t.TempDir()
	for _, name := range []string{"cpu", "cpuacct", "cpuset", "devices", "freezer", "memory"} {
		write(first, name+"/tasks", "")
	}
	if got := checkGroups(first); len(got) != 1 || !strings.Contains(got[0], "pids") {
		t.Errorf("version 1 without pids: %q", got)
	}
	write(second, "cgroup.controllers", "cpuset cpu io memory\n")
	if got := checkGroups(second); len(got) != 1 || !strings.Contains(got[0], "pids") {
		t.Errorf("version 2 without pids: %q", got)
	}
	if got := checkGroups(none); len(got) != 7 {
		t.Errorf("without any: %q", got)
	}
}

func TestCheckAddresses(t *testing.T) {
	for text, want := range map[string]bool{
		"10.88.0.1/16": true, "10.88.0.7/24": true, "10.96.0.9/12": true, "10.97.0.1/32": true,
		"10.0.0.5/8": false, "10.97.0.2/24": false, "10.88.1.1/16": false, "127.0.0.1/8": false, "fe80::1/64": false, "192.168.1.2/24": false,
	} {
		ip, network, err := net.ParseCIDR(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := checkAddresses("eth7", []net.Addr{&net.IPNet{IP: ip, Mask: network.Mask}}); len(got) > 0 != want {
			t.Errorf("%s: %q", text, got)
		}
	}
}

func TestShimSockets(t *testing.T) {
	dir := t.TempDir()
	tasks := filepath.Join(dir, "containerd", "state", "io.containerd.runtime.v2.task", "k8s.io")
	for id, text := range map[string]string{
		"a": `{"version":3,"address":"unix:///run/containerd/s/abc","protocol":"ttrpc"}`,
		"b": `{"address":"unix:///etc/passwd"}`, "c": `not JSON`, "d": `{"address":"unix:///run/containerd/s/../../../etc/passwd"}`,
	} {
		if err := os.MkdirAll(filepath.Join(tasks, id), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(tasks, id, "bootstrap.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"/run/containerd/s/abc"}, shimSockets(dir)); diff != "" {
		t.Error(diff)
	}
}

// TestRecord saves and loads one, and asks whose it is.
func TestRecord(t *testing.T) {
	dir := t.TempDir()
	if r, err := load(dir); r != nil || err != nil {
		t.Errorf("an empty folder has %v, %v", r, err)
	}
	s := example(t)
	s.Dir = dir
	me, err := identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	r := &record{Boot: boot(), Owner: me, Settings: s, Processes: map[string]process{Etcd: me}, Kernel: map[string]string{"/proc/sys/x": "1"}}
	if err := r.save(); err != nil {
		t.Fatal(err)
	}
	got, err := load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, got); diff != "" {
		t.Error(diff)
	}
	dead := process{me.PID, me.Start + 1}
	for name, c := range map[string]struct {
		change func(*record)
		live   bool
	}{
		"owned":                {func(*record) {}, true},
		"before the machine":   {func(r *record) { r.Boot = "another" }, false},
		"owner killed":         {func(r *record) { r.Owner = dead }, false},
		"killed coming up":     {func(r *record) { r.Owner, r.Detached = dead, true }, false},
		"detached":             {func(r *record) { r.Owner, r.Detached, r.Complete = dead, true, true }, true},
		"detached, then ended": {func(r *record) { r.Owner, r.Detached, r.Complete, r.Processes[Etcd] = dead, true, true, dead }, false},
	} {
		r, err := load(dir)
		if err != nil {
			t.Fatal(err)
		}
		c.change(r)
		if r.live() != c.live {
			t.Errorf("%s: live is %v", name, !c.live)
		}
	}
	for _, text := range []string{"", "{", `{"settings":{"Dir":"/etc"}}`, "null"} {
		if err := os.WriteFile(recordPath(dir), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := load(dir); err == nil {
			t.Errorf("the record %q is read as %+v", text, r)
		}
	}
}

// TestAuthority serves and dials with the certificates: both sides are known, and strangers are not.
func TestAuthority(t *testing.T) {
	dir := t.TempDir()
	a, err := newAuthority(dir)
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(
		a.issue("server", "kube-apiserver", nil, []string{loopback, "localhost"}),
		a.issue("client", "somebody", []string{"system:masters"}, nil), a.saveAccounts())
	if err != nil {
		t.Fatal(err)
	}
	pool, server, client := x509.NewCertPool(), pair(t, dir, "server"), pair(t, dir, "client")
	pool.AddCert(a.cert)
	listener, err := tls.Listen("tcp", loopback+":0", &tls.Config{
		Certificates: []tls.Certificate{server}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	names := make(chan string, 10)
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			if err := c.(*tls.Conn).Handshake(); err != nil {
				names <- "refused"
			} else {
				peer := c.(*tls.Conn).ConnectionState().PeerCertificates[0]
				names <- fmt.Sprint(peer.Subject.CommonName, peer.Subject.Organization)
			}
			_ = c.Close()
		}
	}()
	dial := func(config *tls.Config) error {
		c, err := tls.DialWithDialer(&net.Dialer{Timeout: 30 * time.Second}, "tcp", listener.Addr().String(), config)
		if err == nil {
			_, err = io.Copy(io.Discard, c)
			_ = c.Close()
		}
		return err
	}
	if err := dial(&tls.Config{RootCAs: pool, Certificates: []tls.Certificate{client}}); err != nil {
		t.Error(err)
	}
	if got := <-names; got != "somebody[system:masters]" {
		t.Errorf("the server sees %s", got)
	}
	if err := dial(&tls.Config{RootCAs: pool}); err == nil {
		t.Error("a client without a certificate is let in")
	}
	if got := <-names; got != "refused" {
		t.Errorf("the server sees %s", got)
	}
	if err := dial(&tls.Config{RootCAs: pool, ServerName: "example.org", Certificates: []tls.Certificate{client}}); err == nil {
		t.Error("the server is taken for another")
	}
	for _, name := range []string{"ca.key", "server.key", "sa.key", "sa.pub"} {
		info, err := os.Stat(filepath.Join(dir, name))
		text, _ := os.ReadFile(filepath.Join(dir, name))
		if block, _ := pem.Decode(text); err != nil || info.Mode() != 0o600 || block == nil {
			t.Errorf("%s: %v, %v", name, err, info.Mode())
		}
	}
}

func pair(t *testing.T, dir, name string) tls.Certificate {
	t.Helper()
	c, err := tls.LoadX509KeyPair(filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}
