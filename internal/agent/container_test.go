package agent

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/unit"
	"weft.dev/weft/internal/wire"
)

const podUID = "0a1b2c3d-1111-2222-3333-444455556666"

func containerSpec(name string) Spec {
	return Spec{Name: name, GPUs: []string{"0"}, Reserved: unit.GiB, UID: os.Getuid(),
		Container: &Container{Namespace: "ml", Pod: "bert-0", PodUID: podUID, Name: name, Claim: "claim-" + name}}
}

// connectAs connects to a socket as another user, from a thread of its own.
func connectAs(t *testing.T, uid int, path string) (int, error) {
	t.Helper()
	type result struct {
		fd  int
		err error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 && err == nil {
			err = errno
		}
		if err == nil {
			err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
		}
		done <- result{fd, err}
	}()
	r := <-done
	t.Cleanup(func() { _ = unix.Close(r.fd) })
	return r.fd, r.err
}

// TestContainerUsers lets any user of a container connect, as a mount of the folder lets them, and nobody come through the agent's
// own folder; an allocation of a user stays that user's.
func TestContainerUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to be another user")
	}
	const other = 12345
	r := start(t, Options{})
	job, own := r.job(containerSpec("trainer")), r.job(Spec{Name: "own", Reserved: unit.GiB, UID: 0})
	if _, err := connectAs(t, other, job.Socket); !errors.Is(err, unix.EACCES) {
		t.Errorf("through the agent's folder: %v", err)
	}
	for _, c := range []struct {
		dir     string
		welcome bool
	}{{job.Dir, true}, {own.Dir, false}} {
		folder, err := os.Open(c.dir)
		if err != nil {
			t.Fatal(err)
		}
		mounted := "/proc/self/fd/" + strconv.Itoa(int(folder.Fd())) + "/" + SocketName
		fd, err := connectAs(t, other, mounted)
		if !c.welcome {
			if !errors.Is(err, unix.EACCES) {
				t.Errorf("another user's socket: %v", err)
			}
			_ = folder.Close()
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := unix.Write(fd, wire.Append(nil, 1, &wire.Hello{GPUs: 1})); err != nil {
			t.Fatal(err)
		}
		var packet [wire.Max]byte
		n, err := unix.Read(fd, packet[:])
		if err != nil {
			t.Fatal(err)
		}
		if _, m, err := wire.Parse(packet[:n]); err != nil {
			t.Error(err)
		} else if w, is := m.(*wire.Welcome); !is || w.GPUs[0].Limit != uint64(unit.GiB) {
			t.Errorf("answer %#v", m)
		}
		_ = folder.Close()
	}
}

// TestContainerNeedsClosedFolder refuses containers where other users could reach their sockets.
func TestContainerNeedsClosedFolder(t *testing.T) {
	r := start(t, Options{})
	for _, c := range []struct {
		mode os.FileMode
		code string
	}{{0o711, "open_folder"}, {0o750, "open_folder"}, {0o700, ""}} {
		if err := os.Chmod(r.o.Dir, c.mode); err != nil {
			t.Fatal(err)
		}
		spec := containerSpec("trainer")
		answer, err := r.a.Ask(context.Background(), Request{Op: OpAllocate, Spec: &spec})
		code := ""
		if answer.Error != nil {
			code = answer.Error.Code
		}
		if code != c.code || (err == nil) != (code == "") {
			t.Errorf("mode %o: %q, %v", c.mode, code, err)
		}
	}
}

// TestContainerCgroups finds the container of a process that lost the library by its Pod's control group, never by what the process
// says in its environment.
func TestContainerCgroups(t *testing.T) {
	r := start(t, Options{})
	job := r.job(containerSpec("trainer"))
	hello(t, job.Socket, wire.Hello{GPUs: 1})
	second := r.job(containerSpec("sidecar"))
	for _, c := range []struct {
		name string
		s    sighting
		is   bool
	}{
		{"cgroupfs", sighting{pid: 900_001, cgroup: "12:memory:/kubepods/burstable/pod" + podUID + "/abc\n"}, true},
		{"systemd", sighting{pid: 900_001, cgroup: "0::/kubepods.slice/kubepods-pod" + strings.ReplaceAll(podUID, "-", "_") + ".slice/cri-containerd-abc.scope\n"}, true},
		{"another Pod", sighting{pid: 900_001, cgroup: "0::/kubepods/podffffffff-1111-2222-3333-444455556666/abc\n"}, false},
		{"an environment", sighting{pid: 900_001, uid: os.Getuid(), socket: second.Socket, cgroup: "0::/kubepods/podffffffff-1111-2222-3333-444455556666/abc\n"}, false},
	} {
		r.a.do(func() {
			al, how := r.a.belongs(r.a.gpus[0], c.s)
			if (al != nil) != c.is {
				t.Errorf("%s: found %v %s", c.name, al != nil, how)
			}
		})
	}
	r.a.do(func() { // the control group of the first one's process tells the two containers of the Pod apart
		own := cgroupOf(os.Getpid())
		for range 20 {
			r.a.allocs[job.ID].spec.Container.PodUID, r.a.allocs[second.ID].spec.Container.PodUID = own, own
			if al, _ := r.a.belongs(r.a.gpus[0], sighting{pid: 900_001, cgroup: own}); al == nil || al.id != job.ID {
				t.Fatalf("found %+v", al)
			}
		}
	})
}

// TestWholeGPU gives a GPU to one job that runs without the library: nobody comes beside it, and its processes are no escape.
func TestWholeGPU(t *testing.T) {
	r := start(t, Options{Machine: newBox(1, 16*unit.GiB), Poll: time.Hour}) // what is sighted is told below
	spec := containerSpec("native")
	spec.Whole, spec.Reserved, spec.Peak, spec.Cooperates = true, 0, unit.GiB, true
	job := r.job(spec)
	if m := r.stats().Jobs[0].Memory[0]; m.Reserved != 16*unit.GiB {
		t.Fatalf("reserved %v", m.Reserved)
	}
	beside := containerSpec("beside")
	var refused *RefusalError
	if _, err := r.a.Ask(context.Background(), Request{Op: OpAllocate, Spec: &beside}); !errors.As(err, &refused) || refused.Code != RefusedMemory {
		t.Fatalf("beside it: %v", err)
	}
	r.a.do(func() {
		r.a.seeGPU(r.a.gpus[0], []sighting{{pid: 900_001, bytes: unit.GiB, cgroup: "0::/kubepods/pod" + podUID + "/abc\n"}})
	})
	s := r.stats()
	if j := s.Jobs[0]; len(j.Escaped) != 1 || j.Escaped[0].PID != 900_001 || j.Memory[0].Used != unit.GiB || !j.Whole {
		t.Errorf("%+v", j)
	}
	if n := len(r.events(EventEscaped)); n != 0 || len(s.GPUs[0].Foreign) != 0 {
		t.Errorf("%d escapes, foreign %v", n, s.GPUs[0].Foreign)
	}
	if _, err := r.a.Ask(context.Background(), Request{Op: OpRelease, ID: job.ID}); err != nil {
		t.Fatal(err)
	}
	r.job(beside)
}

// TestContainerComesBack restores an allocation of a container with what it is, for any user still.
func TestContainerComesBack(t *testing.T) {
	r := start(t, Options{})
	r.job(containerSpec("trainer"))
	r.crash()
	r.open()
	j := r.stats().Jobs[0]
	if j.Container == nil || *j.Container != *containerSpec("trainer").Container {
		t.Fatalf("%+v", j.Container)
	}
	eventually(t, "it listens", func() bool {
		info, err := os.Stat(j.Socket)
		return err == nil && info.Mode().Perm() == 0o666
	})
}

// TestContainerLabels has the Pod and the container of a job on its series.
func TestContainerLabels(t *testing.T) {
	text := metrics(&Stats{Jobs: []Job{{ID: 7, Name: "ml/bert-0/trainer", Container: containerSpec("trainer").Container}, {ID: 8, Name: "plain"}}}, &counts{})
	for _, want := range []string{
		`weft_job_launches_total{allocation="7",name="ml/bert-0/trainer",class="guaranteed",namespace="ml",pod="bert-0",container="trainer"} 0`,
		`weft_job_launches_total{allocation="8",name="plain",class="guaranteed"} 0`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}
