package emugpu

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
)

func clientProgram(t testing.TB) string {
	t.Helper()
	source, err := os.ReadFile("testdata/client.c")
	if err != nil {
		t.Fatal(err)
	}
	return compile(t, string(source))
}

// runClient runs the C client; it returns the time per launch and how long all took in model time.
func runClient(t testing.TB, program, socket string, threads, launches int, cost time.Duration) (perLaunch float64, all time.Duration) {
	t.Helper()
	out, err := exec.Command(program, socket, fmt.Sprint(threads), fmt.Sprint(launches), fmt.Sprint(int64(cost))).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if _, err := fmt.Sscan(string(out), &perLaunch, &all); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	return perLaunch, all
}

// TestHeaderInC runs the operations of emu_wire.h in C, with several threads on one stream.
func TestHeaderInC(t *testing.T) {
	program := clientProgram(t)
	for _, c := range []struct {
		clock   Clock
		threads int
		cost    time.Duration
	}{{Real, 1, 0}, {Real, 4, 100}, {Virtual, 4, 100}, {Virtual, 1, ms}} {
		const launches = 20_000
		b := start(t, 1, Options{Clock: c.clock})
		perLaunch, all := runClient(t, program, b.Socket(), c.threads, launches, c.cost)
		want := time.Duration(c.threads*launches) * c.cost
		eventually(t, func() bool { return b.Stats().Processes[0].Ended }) // its connection is about to
		p := b.Stats().Processes[0].GPUs[0]
		if p.Kernels != uint64(c.threads*launches) || p.Launches != p.Kernels || p.Busy != want || p.Bytes != 0 {
			t.Errorf("%+v: %+v", c, p)
		}
		if all < want || c.clock == Virtual && all > want+time.Millisecond {
			t.Errorf("%+v: took %v, kernels took %v", c, all, want)
		}
		t.Logf("%v, %d threads: %.0f ns per launch", c.clock, c.threads, perLaunch)
	}
}

// BenchmarkLaunchInC is what a launch costs a process, a full ring and the broker's part on another processor included.
func BenchmarkLaunchInC(b *testing.B) {
	broker := start(b, 1, Options{})
	program := clientProgram(b)
	b.ResetTimer()
	perLaunch, _ := runClient(b, program, broker.Socket(), 1, b.N, 0)
	b.ReportMetric(perLaunch, "ns/launch")
}

// BenchmarkWait is how long it takes to launch a kernel of 10 us and to learn that it ended.
func BenchmarkWait(b *testing.B) {
	broker := start(b, 1, Options{})
	d := attach(b, broker.Socket(), "a")
	me, s := d.enter(), d.context(b, 0).null()
	for b.Loop() {
		s.wait(me, s.launch(10*time.Microsecond))
	}
}

// BenchmarkWaitAmong300 is the same with 300 processes that have contexts and do nothing.
func BenchmarkWaitAmong300(b *testing.B) {
	broker := start(b, 16, Options{})
	for i := range 300 {
		d := attach(b, broker.Socket(), "idle")
		d.context(b, i%16)
		d.leave(d.enter())
	}
	d := attach(b, broker.Socket(), "a")
	me, s := d.enter(), d.context(b, 0).null()
	for b.Loop() {
		s.wait(me, s.launch(10*time.Microsecond))
	}
}
