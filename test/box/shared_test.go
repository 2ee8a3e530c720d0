package box

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/unit"
	"weft.dev/weft/test/suite"
)

// someGPUs emulates GPUs that belong to no daemon, and returns their socket.
func someGPUs(t *testing.T, b *bed, gpus int) string {
	t.Helper()
	socket := filepath.Join(b.dir, "gpus.sock")
	cmd := b.weft("emugpu", "serve", "--gpus", strconv.Itoa(gpus), "--memory", "16GiB", "--socket", socket)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // ended by the signal, by itself
	})
	return socket
}

// onSharedGPUs is a daemon on GPUs that others use, too.
func onSharedGPUs(t *testing.T, gpus int) (b *bed, socket string) {
	t.Helper()
	gone := newBed(t) // its folder outlives the daemon
	socket = someGPUs(t, gone, gpus)
	b = newBed(t)
	b.env = append(b.env, "WEFT_EMU_SOCKET="+socket)
	b.start()
	return b, socket
}

// TestSecondDaemonIsRefused: on the same state folder, and on the same GPUs with another one. Each says whose they are.
func TestSecondDaemonIsRefused(t *testing.T) {
	b, _ := onSharedGPUs(t, 2)
	owner := strconv.Itoa(b.cmd.Process.Pid)
	for name, state := range map[string]string{"state folder": b.state, "GPUs": filepath.Join(b.dir, "other")} {
		r := finish(b.weft("up", "--state", state, "--listen", "none"))
		if r.code == 0 || !strings.Contains(r.err, "pid "+owner) || !strings.Contains(r.err, "fix") {
			t.Errorf("the same %s: exit %d, owner %s: %s", name, r.code, owner, r.err)
		}
	}
	if j := b.done(b.submit(spec("true"))); j.Outcome != box.Succeeded {
		t.Errorf("the first daemon after that: %+v", j)
	}
}

// TestForeignPrograms: what a program holds that is of no job is seen with its user, told, and not planned over.
func TestForeignPrograms(t *testing.T) {
	b, socket := onSharedGPUs(t, 1)
	foreign := exec.Command(program("weft-train"), "--persistent", "6GiB", "--ephemeral", "0", "--no-cooperate")
	foreign.Env = append(b.env, "WEFT_EMU_SOCKET="+socket, "LD_LIBRARY_PATH="+filepath.Join(built.Lib, "emu"))
	if err := foreign.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	end := func() {
		if !ended {
			ended = true
			_ = foreign.Process.Kill()
			_ = foreign.Wait() // killed, as wanted
		}
	}
	defer end()
	pid := strconv.Itoa(foreign.Process.Pid)
	var seen box.GPU
	for limit := time.Now().Add(patience); len(seen.Foreign) == 0 || seen.Foreign[0].Bytes < 6*unit.GiB; time.Sleep(100 * time.Millisecond) {
		gpus, err := b.GPUs(t.Context())
		if err != nil || time.Now().After(limit) {
			t.Fatalf("the program is not seen with its memory: %v: %s", err, b.run("gpus").out)
		}
		seen = gpus[0]
	}
	if f := seen.Foreign[0]; f.PID != foreign.Process.Pid || f.User != "root" && f.User == "" {
		t.Errorf("it is told as %+v", f)
	}
	large := b.submit(spec("true", func(s *box.Spec) { s.Memory, s.Class = 12*unit.GiB, box.BestEffort }))
	b.until(large, "kept off", func(j *box.Job) bool { return j.State == box.Waiting && j.Reason != nil && j.Reason.Code == "Foreign" })
	if text := b.run("explain", large.String()).out; !strings.Contains(text, pid) || !strings.Contains(text, seen.Foreign[0].User) {
		t.Errorf("explained as %s", text)
	}
	small := b.submit(spec("true", func(s *box.Spec) { s.Memory, s.Class = 4*unit.GiB, box.BestEffort }))
	if j := b.done(small); j.Outcome != box.Succeeded {
		t.Errorf("what fits beside it: %+v", j)
	}
	end()
	if j := b.done(large); j.Outcome != box.Succeeded {
		t.Errorf("after its end: %+v", j)
	}
}

// TestBurst submits many jobs before any has taken its memory: what runs never has more than there is.
func TestBurst(t *testing.T) {
	b := up(t, 2)
	n := 128
	if testing.Short() || suite.Raced {
		n = 32
	}
	s := spec("sleep 0.2", func(s *box.Spec) {
		s.Class, s.Floor, s.Memory = box.BestEffort, 0.05, 6*unit.GiB
		s.Array = &box.Array{Last: n - 1}
	})
	ids, err := b.Submit(t.Context(), s)
	if err != nil || len(ids) != n {
		t.Fatalf("%d, %v", len(ids), err)
	}
	most := unit.Bytes(0)
	for end := time.Now().Add(4 * patience); ; time.Sleep(10 * time.Millisecond) {
		jobs, err := b.Jobs(t.Context(), false, "")
		if err != nil {
			t.Fatal(err)
		}
		if len(jobs) == 0 {
			break
		}
		held := map[int]unit.Bytes{}
		for i := range jobs {
			for _, g := range jobs[i].On {
				held[g] += jobs[i].Peak
				most = max(most, held[g])
			}
		}
		for g, bytes := range held {
			if bytes > 16*unit.GiB {
				t.Fatalf("gpu%d has %v: %s", g, bytes, b.run("ps").out)
			}
		}
		if time.Now().After(end) {
			t.Fatalf("%d jobs are left: %s", len(jobs), b.run("ps").out)
		}
	}
	if most < 12*unit.GiB {
		t.Errorf("at most %v was held: the test saw no burst", most)
	}
}
