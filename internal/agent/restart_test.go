package agent

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"weft.dev/weft/internal/unit"
	"weft.dev/weft/internal/wire"
)

// again starts the agent of a rig anew and connects a process to it that was there before.
func (r *rig) again(socket string, p *process, epoch uint64) *process {
	r.Helper()
	p.hangUp()
	return hello(r, socket, wire.Hello{Session: p.welcome.Session, Epoch: epoch, GPUs: 1})
}

// TestRestart ends the agent, in order and as by SIGKILL: jobs, memory, sessions and tokens go on, nobody is granted beside the
// holder, and epochs rise.
func TestRestart(t *testing.T) {
	for name, end := range map[string]func(*rig){"in order": (*rig).close, "killed": (*rig).crash} {
		t.Run(name, func(t *testing.T) {
			r := start(t, Options{Arbiter: unhurried, Machine: newBox(1, 4*unit.GiB)})
			spec := Spec{Reserved: unit.GiB / 2, Peak: 3 * unit.GiB, Cooperates: true}
			a, b := r.job(spec), r.job(spec)
			one, two := hello(t, a.Socket, wire.Hello{GPUs: 1}), hello(t, b.Socket, wire.Hello{GPUs: 1})
			one.allocate(1, 2*unit.GiB)
			one.allocate(2, unit.GiB)
			one.send(&wire.Export{Shared: wire.Shared{Handle: 1, Key: [wire.KeySize]byte{7}}})
			g := one.request()
			r.keeps()
			end(r)
			r.open()
			two = r.again(b.Socket, two, 0)
			two.send(&wire.Request{})
			two.send(&wire.Alloc{Handle: 9, Bytes: 1 << 20})
			two.silent(20 * time.Millisecond) // another one may hold still
			one = r.again(a.Socket, one, g.Epoch)
			if m := expect[*wire.Memory](two); m.Handle != 9 || m.Outcome != wire.OK {
				t.Errorf("%+v", m)
			}
			if one.welcome.Held != 1 {
				t.Fatalf("its token is lost: %+v", one.welcome)
			}
			one.send(&wire.Alloc{Handle: 1, Bytes: 2 << 30, Flags: wire.Held}) // 2 was freed meanwhile
			if m := expect[*wire.Memory](one); m.Outcome != wire.OK {
				t.Errorf("%+v", m)
			}
			if m := one.allocate(3, unit.MiB); m.Used != 2<<30+1<<20 {
				t.Errorf("%+v", m)
			}
			drop := one.dropped // it may have come before the answers
			if drop == nil {
				drop = expect[*wire.Drop](one)
			}
			if drop.Epoch != g.Epoch {
				t.Errorf("%+v", drop)
			}
			one.release(g.Epoch)
			if h := expect[*wire.Grant](two); h.Epoch <= g.Epoch {
				t.Errorf("%+v after %+v", h, g)
			}
			other := hello(t, a.Socket, wire.Hello{})
			other.send(&wire.Import{Shared: wire.Shared{Handle: 1, Key: [wire.KeySize]byte{7}}})
			if m := expect[*wire.Memory](other); m.Outcome != wire.OK {
				t.Errorf("what was exported before: %+v", m)
			}
			r.audit()
		})
	}
}

// TestRestartForgets ends processes and owners while no agent is there.
func TestRestartForgets(t *testing.T) {
	r := start(t, Options{Arbiter: quick})
	owner := exec.Command("sleep", "60")
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	owned, kept := r.job(Spec{Name: "owned", PID: owner.Process.Pid}), r.job(Spec{Name: "kept"})
	cmd, _ := spawn(t, "holds", kept.Socket)
	r.close()
	_, _ = owner.Process.Kill(), owner.Wait()
	_, _ = cmd.Process.Kill(), cmd.Wait()
	r.open()
	eventually(t, "the owned allocation ends", func() bool { return len(r.stats().Jobs) == 1 })
	j := r.stats().Jobs[0]
	if j.Name != "kept" || j.Memory[0].Used != 0 || len(j.PIDs) != 0 {
		t.Errorf("%+v", j)
	}
	if _, err := os.Stat(owned.Dir); err == nil {
		t.Error("the folder of an allocation that ended is there still")
	}
	hello(t, kept.Socket, wire.Hello{GPUs: 1}).request()
}

// TestForgedClaims claims sessions and epochs that are not the process's own, with and without a restart before.
func TestForgedClaims(t *testing.T) {
	r := start(t, Options{Arbiter: quick})
	a, b := r.job(Spec{}), r.job(Spec{})
	one := hello(t, a.Socket, wire.Hello{GPUs: 1})
	g := one.request()
	for _, epoch := range []uint64{g.Epoch, g.Epoch + 1, 1 << 60} {
		for _, session := range []uint64{one.welcome.Session, 99, 1 << 60} {
			forger := hello(t, b.Socket, wire.Hello{Session: session, Epoch: epoch, GPUs: 1})
			if forger.welcome.Held == 1 || forger.welcome.Session == one.welcome.Session {
				t.Errorf("session %d, epoch %d: %+v", session, epoch, forger.welcome)
			}
			forger.hangUp()
		}
	}
	one.silent(5 * time.Millisecond)
	one.send(&wire.Idle{Epoch: wire.Epoch{Epoch: g.Epoch}})
	r.close()
	r.open()
	forger := hello(t, b.Socket, wire.Hello{Session: one.welcome.Session, Epoch: g.Epoch + 1000, GPUs: 1})
	one = r.again(a.Socket, one, g.Epoch)
	if forger.welcome.Held == 1 || one.welcome.Held != 1 {
		t.Errorf("%+v %+v", forger.welcome, one.welcome)
	}
}

// TestUnreadableState begins anew beside a state that cannot be read, and keeps that; epochs rise all the same.
func TestUnreadableState(t *testing.T) {
	r := start(t, Options{Arbiter: quick})
	job := r.job(Spec{})
	g := hello(t, job.Socket, wire.Hello{GPUs: 1}).request()
	r.close()
	path := filepath.Join(r.o.Dir, "state.json")
	for _, text := range []string{"{", `{"version":99}`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r.open()
		if kept, err := os.ReadFile(path + ".bad"); err != nil || string(kept) != text {
			t.Errorf("%q %v", kept, err)
		}
		if len(r.events(EventState)) == 0 {
			t.Error("it is not said")
		}
		h := hello(t, r.job(Spec{}).Socket, wire.Hello{GPUs: 1}).request()
		if h.Epoch <= g.Epoch {
			t.Errorf("%+v after %+v", h, g)
		}
		r.close()
	}
}

// TestLocks refuses a second agent on the folder, and on a GPU.
func TestLocks(t *testing.T) {
	r := start(t, Options{})
	var locked *LockedError
	if a, err := Open(t.Context(), r.o); !errors.As(err, &locked) || locked.PID != os.Getpid() || locked.What != r.o.Dir {
		t.Errorf("%v %v", a, err)
	}
	o := r.o
	o.Dir = t.TempDir()
	if a, err := Open(t.Context(), o); !errors.As(err, &locked) || locked.PID != os.Getpid() || locked.What == r.o.Dir {
		t.Errorf("%v %v", a, err)
	}
	o.Dir = filepath.Join(o.Dir, "a-folder-of-a-name-that-is-so-long-that-sockets-in-it-would-have-no-valid-path-any-more-than-others")
	if _, err := Open(t.Context(), o); err == nil {
		t.Error("a path that no socket can have")
	}
}
