package agent

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"weft.dev/weft/internal/device"
	"weft.dev/weft/internal/unit"
	"weft.dev/weft/internal/wire"
)

// TestEscape lets a process use a GPU without a session: it is charged to the job that it descends from, as long as it is
// there; another one, of nobody, is named.
func TestEscape(t *testing.T) {
	machine := newBox(1, 4*unit.GiB)
	r := start(t, Options{Machine: machine})
	shell := exec.Command("sh", "-c", "sleep 60 & sleep 60")
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	job := r.job(Spec{Name: "owner", PID: shell.Process.Pid, Reserved: unit.GiB})
	t.Cleanup(func() {
		_ = exec.Command("pkill", "-P", itoa(shell.Process.Pid)).Run()
		_ = shell.Process.Kill()
		_ = shell.Wait()
	})
	var pid int
	eventually(t, "the child runs", func() bool {
		out, _ := exec.Command("pgrep", "-x", "-P", itoa(shell.Process.Pid), "sleep").Output() // and no longer the shell's own copy
		pid = atoi(strings.Fields(string(out) + " 0")[0])
		return pid > 0
	})
	machine.set(0, device.Process{PID: pid, Bytes: 300 * unit.MiB}, device.Process{PID: 1, Bytes: unit.MiB})
	used := func() unit.Bytes { return r.stats().Jobs[0].Memory[0].Used }
	eventually(t, "it is charged", func() bool { return used() == 300*unit.MiB })
	if e := r.events(EventEscaped); len(e) != 1 || e[0].PID != pid || e[0].Job != "owner" || !strings.Contains(e[0].Text, "sleep") {
		t.Errorf("%+v", e)
	}
	if e := r.events(EventForeign); len(e) != 1 || e[0].PID != 1 || !strings.Contains(e[0].Text, "root") {
		t.Errorf("%+v", e)
	}
	if s := r.stats(); len(s.Jobs[0].Escaped) != 1 || len(s.GPUs[0].Foreign) != 1 {
		t.Errorf("%+v %+v", s.Jobs[0].Escaped, s.GPUs[0].Foreign)
	}
	machine.set(0, device.Process{PID: pid, Bytes: 2 * unit.GiB}) // beyond the job's limit
	eventually(t, "it is said", func() bool { return len(r.events(EventOverLimit)) == 1 })
	if used() != unit.GiB {
		t.Errorf("%v in use", used())
	}
	machine.set(0)
	eventually(t, "it is taken off the books", func() bool { return used() == 0 && len(r.stats().GPUs[0].Foreign) == 0 })
	machine.set(0, device.Process{PID: os.Getpid(), Bytes: unit.GiB})
	hello(t, job.Socket, wire.Hello{GPUs: 1}) // this process has a session
	eventually(t, "a process with a session is not foreign", func() bool { return len(r.stats().GPUs[0].Foreign) == 0 })
	r.audit()
}

// TestBelongs tells by what a process is known to be of a job.
func TestBelongs(t *testing.T) {
	r := start(t, Options{})
	owner := exec.Command("sleep", "60")
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = owner.Process.Kill(); _ = owner.Wait() })
	a, b := r.job(Spec{PID: owner.Process.Pid}), r.job(Spec{GPUs: []string{"1"}})
	r.a.do(func() {
		first, g := r.a.allocs[a.ID], r.a.gpus[0]
		first.group = "0::/job"
		first.spec.UID = 4711
		for _, c := range []struct {
			name string
			p    sighting
			how  string
		}{
			{"child", sighting{pid: 5, uid: 0, ancestors: []int{7, owner.Process.Pid}}, "by its parents"},
			{"its session", sighting{pid: 5, uid: 0, session: owner.Process.Pid}, "by its parents"},
			{"control group", sighting{pid: 5, uid: 0, cgroup: "0::/job"}, "by its control group"},
			{"the agent's control group", sighting{pid: 5, uid: 0, cgroup: r.a.group}, ""},
			{"environment", sighting{pid: 5, uid: 4711, socket: first.socket()}, "by its environment"},
			{"another user's environment", sighting{pid: 5, uid: 4712, socket: first.socket()}, ""},
			{"user", sighting{pid: 5, uid: 4711}, "by its user"},
			{"a job of another GPU", sighting{pid: 5, uid: os.Geteuid(), socket: r.a.allocs[b.ID].socket()}, ""},
			{"nobody's", sighting{pid: 5, uid: 4712}, ""},
		} {
			al, how := r.a.belongs(g, c.p)
			if how != c.how || (al != nil) != (how != "") || al != nil && al != first {
				t.Errorf("%s: %v %q, want %q", c.name, al, how, c.how)
			}
		}
	})
}

// TestFaults tells of a critical error.
func TestFaults(t *testing.T) {
	machine := newBox(2, unit.GiB)
	machine.faults = []device.Fault{{GPU: 1, XID: 79}}
	r := start(t, Options{Machine: machine})
	eventually(t, "it is said", func() bool { return len(r.events(EventUnhealthy)) == 1 })
	if g := r.stats().GPUs; g[0].XID != nil || g[1].XID == nil || *g[1].XID != 79 {
		t.Errorf("%+v", g)
	}
}

// TestFaultsEnd has GPUs that broke: one that computes for a program which began later is well, and what programs cause says
// nothing about the GPU.
func TestFaultsEnd(t *testing.T) {
	machine := newBox(2, unit.GiB)
	r := start(t, Options{Machine: machine})
	job := r.job(Spec{Reserved: unit.GiB / 4})
	early := hello(t, job.Socket, wire.Hello{GPUs: 1})
	machine.mu.Lock()
	machine.faults = []device.Fault{{GPU: 1, XID: 31}, {GPU: 0, XID: 48}}
	machine.mu.Unlock()
	eventually(t, "it is said", func() bool { return len(r.events(EventUnhealthy)) == 2 })
	if g := r.stats().GPUs; g[0].XID == nil || g[1].XID != nil {
		t.Errorf("%+v", g)
	}
	for _, c := range []struct {
		p    *process
		well bool
	}{{early, false}, {hello(t, job.Socket, wire.Hello{GPUs: 1}), true}} {
		c.p.send(&wire.Released{Epoch: c.p.request().Epoch, Launches: 1})
		c.p.send(&wire.View{})
		expect[*wire.Memory](c.p)
		if g := r.stats().GPUs[0]; (g.XID == nil) != c.well || len(r.events(EventRecovered)) > 0 != c.well {
			t.Errorf("%v after a program that began after it: %v", g.XID, c.well)
		}
	}
}

func itoa(n int) string { return strconv.Itoa(n) }

func atoi(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}
