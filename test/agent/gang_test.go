package agent

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"weft.dev/weft/internal/bench"
	"weft.dev/weft/internal/emugpu"
	"weft.dev/weft/test/suite"
)

// trained is the last line of weft-train.
type trained struct {
	Type       string  `json:"type"`
	Iterations int     `json:"iterations"`
	Seconds    float64 `json:"seconds"`
	Rate       float64 `json:"rate_per_s"`
	Stall      float64 `json:"stall_s"`
}

// final reads the last line of a training job that ended well.
func final(t *testing.T, p *bench.Program) trained {
	t.Helper()
	if err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	return lastOf(t, p)
}

// halted ends a training job that runs still, and reads its last line.
func halted(t *testing.T, p *bench.Program) trained {
	t.Helper()
	if err := p.Signal(15); err != nil {
		t.Fatal(err)
	}
	if code := ends(t, p); code != 128+15 {
		t.Fatalf("weft-train ended with %d: %s", code, p.Errors.String())
	}
	return lastOf(t, p)
}

func lastOf(t *testing.T, p *bench.Program) trained {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(p.Out.String()), "\n")
	var last trained
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last.Type != "final" {
		t.Fatalf("weft-train ended with %q: %v", lines[len(lines)-1], err)
	}
	return last
}

// TestGang runs four ranks on two GPUs, which wait for each other in every iteration, beside a single job on each GPU.
func TestGang(t *testing.T) {
	suite.Timed(t)
	b := bed(t, 2)
	attempt(t, func() error { return besideGang(t, b) })
	held(t, b)
}

// besideGang says what was wrong with the shares of a gang and of the single jobs beside it.
func besideGang(t *testing.T, b *bench.Bed) error {
	t.Helper()
	ctx := soon(t)
	common := []string{"--kernels", "20", "--kernel-us", "200", "--gap-ms", "0", "--seconds", "9"}
	gang := append(slices.Clone(common), "--devices", "0,1,0,1", "--ranks", "--stall-s", "5")
	programs := []*bench.Program{
		started(t, b, &bench.Job{Name: "gang", GPUs: "0,1"}, "weft-train", gang...),
		started(t, b, &bench.Job{Name: "single-0", GPUs: "0"}, "weft-train", common...),
		started(t, b, &bench.Job{Name: "single-1", GPUs: "1"}, "weft-train", common...),
	}
	if err := sleep(ctx, 2*time.Second); err != nil {
		return err
	}
	before := busyByName(t, b)
	if err := sleep(ctx, 5*time.Second); err != nil {
		return err
	}
	after := busyByName(t, b)
	for _, p := range programs {
		if got := final(t, p); got.Iterations == 0 {
			t.Error("a job ended without an iteration")
		}
	}
	for gpu, single := range []string{"single-0", "single-1"} {
		if before["gang"] == nil || before[single] == nil || after["gang"] == nil || after[single] == nil {
			return fmt.Errorf("not all ran within the seconds that were looked at: %v, %v", before, after)
		}
		of := func(name string) float64 { return (after[name][gpu] - before[name][gpu]).Seconds() }
		share := of("gang") / (of("gang") + of(single))
		t.Logf("GPU %d: the gang has %.1f %%, the single job the rest", gpu, 100*share)
		if math.Abs(share-0.5) > 0.05 { // 10 % of half a GPU
			return fmt.Errorf("GPU %d: the gang has %.1f %%, not within 10 %% of its half", gpu, 100*share)
		}
	}
	return nil
}

// busyByName is the computed time of each job on each GPU, by what the agent calls the job.
func busyByName(t *testing.T, b *bench.Bed) map[string][]time.Duration {
	t.Helper()
	var gpus emugpu.Stats
	if err := b.Emulated(soon(t), &gpus); err != nil {
		t.Fatal(err)
	}
	names := map[int]string{}
	for _, j := range jobs(t, b) {
		for _, pid := range j.PIDs {
			names[pid] = j.Name
		}
	}
	busy := map[string][]time.Duration{}
	for _, p := range gpus.Processes {
		name, ok := names[int(p.PID)]
		if !ok {
			continue
		}
		if busy[name] == nil {
			busy[name] = make([]time.Duration, len(gpus.GPUs))
		}
		for _, g := range p.GPUs {
			busy[name][g.Index] += g.Busy
		}
	}
	return busy
}
