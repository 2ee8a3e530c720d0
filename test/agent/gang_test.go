package agent

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"weft.dev/weft/internal/bench"
	"weft.dev/weft/internal/emugpu"
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
	lines := strings.Split(strings.TrimSpace(p.Out.String()), "\n")
	var last trained
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last.Type != "final" {
		t.Fatalf("weft-train ended with %q: %v", lines[len(lines)-1], err)
	}
	return last
}

// TestGang runs four ranks on two GPUs, which wait for each other in every iteration, beside a single job on each GPU.
func TestGang(t *testing.T) {
	timed(t)
	b := bed(t, 2)
	ctx := soon(t)
	common := []string{"--kernels", "20", "--kernel-us", "200", "--gap-ms", "0", "--seconds", "8"}
	gang := b.Command(ctx, &bench.Job{Name: "gang", GPUs: "0,1"}, "weft-train", append(common, "--devices", "0,1,0,1", "--ranks", "--stall-s", "5")...)
	singles := []*bench.Program{
		b.Command(ctx, &bench.Job{Name: "single-0", GPUs: "0"}, "weft-train", common...),
		b.Command(ctx, &bench.Job{Name: "single-1", GPUs: "1"}, "weft-train", common...),
	}
	for _, p := range append(singles, gang) {
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
	}
	if err := sleep(ctx, 7*time.Second); err != nil {
		t.Fatal(err)
	}
	busy := busyByName(t, b)
	for _, p := range singles {
		final(t, p)
	}
	if got := final(t, gang); got.Iterations == 0 {
		t.Error("the gang ended without an iteration")
	}
	held(t, b)
	for gpu := range 2 {
		var total time.Duration
		for _, of := range busy {
			total += of[gpu]
		}
		for name, of := range busy {
			share := of[gpu].Seconds() / total.Seconds()
			t.Logf("GPU %d: %s has %.1f %%", gpu, name, 100*share)
			if of[gpu] > 0 && math.Abs(share-0.5) > 0.05 { // 10 % of half a GPU
				t.Errorf("GPU %d: %s has %.1f %%, not within 10 %% of its half", gpu, name, 100*share)
			}
		}
	}
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
