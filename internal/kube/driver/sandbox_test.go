package driver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/kube/driver/cdi"
)

// sandboxed names the container that this program is to become.
const sandboxed = "WEFT_TEST_SANDBOX"

// container is what a runtime would be asked for: a root of its own with the mounts and the environment of CDI devices, pid, mount
// and IPC namespaces, a user, and no right to mount.
type container struct {
	Root     string    `json:"root"`
	Programs string    `json:"programs"` // folder of the node, seen as /programs
	Edits    cdi.Edits `json:"edits"`
	UID      int       `json:"uid"`
	Command  []string  `json:"command"`
}

// enter becomes the container's program. It returns only in error.
func enter(text string) error {
	runtime.LockOSThread()
	var c container
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	if err := c.build(); err != nil {
		return fmt.Errorf("root of the container: %w", err)
	}
	if err := errors.Join(unix.Chroot(c.Root), unix.Chdir("/")); err != nil {
		return err
	}
	for _, capability := range []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SYS_PTRACE, unix.CAP_SYS_CHROOT} {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0); err != nil {
			return err
		}
	}
	if c.UID != 0 {
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(c.UID), syscall.Setuid(c.UID)); err != nil {
			return err
		}
	}
	return syscall.Exec(c.Command[0], c.Command, append([]string{"PATH=/usr/bin"}, c.Edits.Env...))
}

// build makes the container's root: the system's programs and libraries, and what CDI mounts.
func (c *container) build() error {
	if err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("tmpfs", c.Root, "tmpfs", 0, "mode=755")); err != nil {
		return err
	}
	for _, dir := range []string{"usr", "etc", "proc", "dev", "tmp", "programs"} {
		if err := os.Mkdir(filepath.Join(c.Root, dir), 0o755); err != nil {
			return err
		}
	}
	for _, link := range []string{"lib", "lib64", "bin", "sbin"} {
		if err := os.Symlink("usr/"+link, filepath.Join(c.Root, link)); err != nil {
			return err
		}
	}
	cache, err := os.ReadFile("/etc/ld.so.cache")
	if err != nil {
		return err
	}
	err = errors.Join(os.WriteFile(filepath.Join(c.Root, "etc", "ld.so.cache"), cache, 0o644), os.Chmod(filepath.Join(c.Root, "tmp"), 0o777|os.ModeSticky),
		unix.Mount("/usr", filepath.Join(c.Root, "usr"), "", unix.MS_BIND|unix.MS_REC, ""), unix.Mount("/dev", filepath.Join(c.Root, "dev"), "", unix.MS_BIND|unix.MS_REC, ""),
		unix.Mount("proc", filepath.Join(c.Root, "proc"), "proc", 0, ""), unix.Mount(c.Programs, filepath.Join(c.Root, "programs"), "", unix.MS_BIND, ""))
	for _, m := range c.Edits.Mounts {
		err = errors.Join(err, c.mount(m))
	}
	return err
}

// mount does one mount as runc does: it makes what it mounts on, binds, and sets the flags of the new mount.
func (c *container) mount(m cdi.Mount) error {
	info, err := os.Stat(m.Host)
	if err != nil {
		return err
	}
	target := filepath.Join(c.Root, m.Container)
	if info.IsDir() {
		err = os.MkdirAll(target, 0o755)
	} else if err = os.MkdirAll(filepath.Dir(target), 0o755); err == nil {
		err = os.WriteFile(target, nil, 0o644)
	}
	if err != nil {
		return err
	}
	bind, flags := uintptr(unix.MS_BIND), uintptr(unix.MS_BIND|unix.MS_REMOUNT)
	for _, option := range m.Options {
		switch option {
		case "bind":
		case "rbind":
			bind |= unix.MS_REC
		case "ro":
			flags |= unix.MS_RDONLY
		case "nosuid":
			flags |= unix.MS_NOSUID
		case "nodev":
			flags |= unix.MS_NODEV
		case "noexec":
			flags |= unix.MS_NOEXEC
		default:
			return fmt.Errorf("mount option %q", option)
		}
	}
	return errors.Join(unix.Mount(m.Host, target, "", bind, ""), unix.Mount("", target, "", flags, ""))
}

// program is a container that runs.
type program struct {
	*exec.Cmd
	out, said bytes.Buffer
}

// start starts a container with CDI devices of a folder. It is killed with the test at the latest.
func start(t *testing.T, folder string, ids []string, uid int, env []string, command ...string) *program {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("containers need root")
	}
	edits, err := inject(folder, ids)
	if err != nil {
		t.Fatal(err)
	}
	edits = merge(edits, cdi.Edits{Env: env}) // as a program may change its own
	programs, err := filepath.Abs("../../../bin/lib")
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(container{Root: t.TempDir(), Programs: programs, Edits: edits, UID: uid, Command: command})
	if err != nil {
		t.Fatal(err)
	}
	p := &program{Cmd: exec.Command("/proc/self/exe")}
	p.Env, p.Stdout, p.Stderr = []string{sandboxed + "=" + string(text)}, &p.out, &p.said
	p.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC, Pdeathsig: syscall.SIGKILL}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	return p
}

// kill ends the container's first process, and with it the others.
func (p *program) kill() {
	_ = p.Process.Kill() // it may have ended
	_ = p.Wait()
}

// run waits for a container, a minute at most, and returns what it wrote.
func run(t *testing.T, folder string, ids []string, uid int, env []string, command ...string) (out, said string, err error) {
	t.Helper()
	p := start(t, folder, ids, uid, env, command...)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = p.Process.Kill() })()
	err = p.Wait()
	return p.out.String(), p.said.String(), err
}

// inject is what a runtime takes of the CDI files of a folder: the edits of each file once, those of each device, later variables in
// the place of earlier ones.
func inject(folder string, ids []string) (cdi.Edits, error) {
	type described struct {
		Kind    string `json:"kind"`
		Devices []struct {
			Name  string    `json:"name"`
			Edits cdi.Edits `json:"containerEdits"`
		} `json:"devices"`
		Edits cdi.Edits `json:"containerEdits"`
	}
	var all cdi.Edits
	found := map[string]bool{}
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return all, err
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return all, err
		}
		var d described
		if err := json.Unmarshal(text, &d); err != nil {
			return all, err
		}
		used := false
		var own cdi.Edits
		for _, device := range d.Devices {
			if id := d.Kind + "=" + device.Name; slices.Contains(ids, id) {
				used, found[id] = true, true
				own = merge(own, device.Edits)
			}
		}
		if used {
			all = merge(merge(all, d.Edits), own)
		}
	}
	for _, id := range ids {
		if !found[id] {
			return all, fmt.Errorf("unresolvable CDI device %s", id)
		}
	}
	return all, nil
}

func merge(a, b cdi.Edits) cdi.Edits {
	a.Mounts = append(a.Mounts, b.Mounts...)
	for _, v := range b.Env {
		name, _, _ := strings.Cut(v, "=")
		a.Env = slices.DeleteFunc(a.Env, func(o string) bool { return strings.HasPrefix(o, name+"=") })
		a.Env = append(a.Env, v)
	}
	return a
}
