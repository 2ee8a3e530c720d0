package agent

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"weft.dev/weft/internal/bench"
	"weft.dev/weft/test/suite"
)

// two are training jobs of 4 GiB always and 8 GiB more within an iteration, beside what a context takes, on a GPU that holds
// 22.5 GiB: their peaks do not fit together, their troughs do.
func two(t *testing.T, b *bench.Bed, seconds string, job func(name string) *bench.Job) []*bench.Program {
	t.Helper()
	ctx := soon(t)
	var list []*bench.Program
	for _, name := range []string{"first", "second"} {
		p := b.Command(ctx, job(name), "weft-train", "--persistent", "4GiB", "--ephemeral", "8GiB", "--kernels", "40", "--kernel-us", "200",
			"--gap-ms", "20", "--seconds", seconds)
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
	return list
}

// TestHandoverPays runs two jobs whose peaks do not fit together and whose troughs do: under weft both progress, without it
// one of them dies, and in turn they take as long as both alone.
func TestHandoverPays(t *testing.T) {
	suite.Timed(t)
	b := bed(t, 1)
	attempt(t, func() error { return handedOver(t, b) })
	failed := 0
	for _, p := range two(t, b, "8", func(string) *bench.Job { return nil }) {
		if err := p.Wait(); err != nil && strings.Contains(p.Errors.String(), "OUT_OF_MEMORY") {
			failed++
		}
	}
	t.Logf("without weft %d of 2 died out of memory", failed)
	if failed == 0 {
		t.Error("without weft none died: the test proves nothing")
	}
}

// handedOver says what was wrong with the rates of two jobs that hand their memory over, beside that of one alone.
func handedOver(t *testing.T, b *bench.Bed) error {
	t.Helper()
	alone := final(t, func() *bench.Program {
		p := b.Command(soon(t), &bench.Job{Name: "alone", Reserved: "5GiB", Peak: "8GiB", Cooperates: true}, "weft-train", "--persistent", "4GiB", "--ephemeral", "8GiB",
			"--kernels", "40", "--kernel-us", "200", "--gap-ms", "20", "--seconds", "4")
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		return p
	}())
	sum, stalls, least := 0.0, 0.0, math.MaxInt
	for _, p := range two(t, b, "8", func(name string) *bench.Job {
		return &bench.Job{Name: name, Reserved: "5GiB", Peak: "8GiB", Cooperates: true}
	}) {
		got := final(t, p)
		least = min(least, got.Iterations)
		sum += got.Rate
		stalls += got.Stall
	}
	t.Logf("alone %.1f iterations/s; together %.1f (%.2f of one alone, in turn is 1.00), stalled for %.1f s of 16", alone.Rate, sum, sum/alone.Rate, stalls)
	if least < 10 {
		return fmt.Errorf("a job made %d iterations", least)
	}
	if sum < 1.1*alone.Rate {
		return fmt.Errorf("together %.2f times the rate of one alone: handing over gains nothing against waiting", sum/alone.Rate)
	}
	return nil
}

// TestPoolWaits has a job that finds the pool empty: it waits, is counted as stalled, and goes on; nobody dies.
func TestPoolWaits(t *testing.T) {
	b := bed(t, 1)
	for _, p := range two(t, b, "4", func(name string) *bench.Job {
		return &bench.Job{Name: name, Reserved: "5GiB", Peak: "8GiB", Cooperates: true}
	}) {
		if got := final(t, p); got.Iterations == 0 {
			t.Error("a job made no iteration")
		}
	}
	held(t, b)
}

// TestReservedNeverExceedsGPU opens jobs until one is refused: the sum of what is always theirs stays within the GPU.
func TestReservedNeverExceedsGPU(t *testing.T) {
	b := bed(t, 1)
	ctx := soon(t)
	refused := 0
	var list []*bench.Program
	for range 6 {
		p := b.Command(ctx, &bench.Job{Name: "reserving", Reserved: "6GiB"}, "weft-train", "--persistent", "1GiB", "--seconds", "120")
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
	eventually(t, patience, "jobs are admitted until the GPU is promised", func() bool {
		g := known(t, b).GPUs[0]
		return g.Reserved > g.Usable-6<<30 && g.Reserved <= g.Usable
	})
	eventually(t, patience, "the others end", func() bool {
		ended := 0
		for _, p := range list {
			if p.Ended() {
				ended++
			}
		}
		return ended == 3
	})
	for _, p := range list {
		_ = p.Signal(15)
		if err := p.Wait(); err != nil && strings.Contains(p.Errors.String(), "reserved") {
			refused++
		}
	}
	if refused != 3 {
		t.Errorf("%d jobs were refused, not 3", refused)
	}
}
