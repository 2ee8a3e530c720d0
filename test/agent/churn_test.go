package agent

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"weft.dev/weft/internal/agent"
	"weft.dev/weft/internal/bench"
	"weft.dev/weft/test/suite"
)

// churn is what `weft-probe churn` measured: random iterations of one process, in each of which it allocates and frees in all
// ways of the driver, up to its peak, and launches.
type churn struct {
	Managed     int     `json:"managed"`
	Schedules   int     `json:"schedules"`
	Allocations int     `json:"allocations"`
	OutOfMemory int     `json:"out_of_memory"`
	Stalls      int     `json:"stalls"`
	Stall       float64 `json:"stall_s"`
	Highest     int64   `json:"highest_bytes"`
}

// The jobs: 2.5 GiB are theirs in all (C1), with the greatest peak 11.5 of 12 GiB (C1'); their peaks together are 31 GiB.
const (
	churnUsable   = 12
	churnReserved = "512MiB" // 256 of a context, 128 that are held throughout
)

var churnPeaks = []int{9, 7, 6, 5, 4} // GiB

// TestNobodyDiesOfAnothersMemory runs random schedules of real processes whose peaks do not fit together: under weft not one
// allocation is refused, although all ask for memory that is not there at the time; without it the same schedules fail.
func TestNobodyDiesOfAnothersMemory(t *testing.T) {
	schedules := 2000
	if suite.Raced || testing.Short() {
		schedules = 40
	}
	b := bedOf(t, bench.Options{Emulated: 1, GPUs: []string{"--memory", "16GiB", "--usable", fmt.Sprintf("%dGiB", churnUsable)}})
	watch := &bookkeeper{t: t, b: b, stall: map[string]float64{}}
	total := churn{}
	for i, c := range churned(t, b, schedules, true, watch.look) {
		if c.Managed != 1 || c.Schedules != schedules || c.OutOfMemory > 0 {
			t.Errorf("job %d: %d of %d allocations were refused: %+v", i, c.OutOfMemory, c.Allocations, c)
		}
		if c.Stalls == 0 || watch.stall[churnName(i)] == 0 && !suite.Raced { // with the race detector an agent is asked once a second
			t.Errorf("job %d never waited for the pool (%.3f s by the agent): nothing is proven: %+v", i, watch.stall[churnName(i)], c)
		}
		total.add(c)
	}
	t.Logf("%d schedules, %d allocations under weft: %d out of memory, %d waited, %.1f s in all; the books were looked at %d times, %d requests waited at most",
		total.Schedules, total.Allocations, total.OutOfMemory, total.Stalls, total.Stall, watch.looks, watch.waiting)
	if !suite.Raced && (watch.waiting == 0 || watch.looks < 5) {
		t.Errorf("the books were looked at %d times, and %d requests waited at most", watch.looks, watch.waiting)
	}
	held(t, b)
	eventually(t, patience, "no memory is left in use", func() bool { return used(t, b) == 0 && len(jobs(t, b)) == 0 })

	without := churn{}
	for _, c := range churned(t, b, schedules, false, func() {}) {
		without.add(c)
	}
	t.Logf("%d schedules, %d allocations without weft: %d out of memory", without.Schedules, without.Allocations, without.OutOfMemory)
	if without.OutOfMemory == 0 {
		t.Error("without weft nothing is out of memory either: the schedules prove nothing")
	}
}

func (c *churn) add(o churn) {
	c.Schedules += o.Schedules
	c.Allocations += o.Allocations
	c.OutOfMemory += o.OutOfMemory
	c.Stalls += o.Stalls
	c.Stall += o.Stall
}

func churnName(i int) string { return fmt.Sprintf("churn-%d", i) }

// churned runs the jobs side by side and calls look again and again until all have ended.
func churned(t *testing.T, b *bench.Bed, schedules int, managed bool, look func()) []churn {
	t.Helper()
	ctx := soon(t)
	start := bench.Monotonic() + int64(time.Second) // when all have their contexts
	programs := make([]*bench.Program, len(churnPeaks))
	for i, peak := range churnPeaks {
		most := fmt.Sprintf("%dGiB", peak)
		var job *bench.Job
		if managed {
			job = &bench.Job{Name: churnName(i), Reserved: churnReserved, Peak: most, Cooperates: true}
		}
		programs[i] = b.Command(ctx, job, "weft-probe", "churn", "--seed", strconv.Itoa(i+1), "--schedules", strconv.Itoa(schedules),
			"--peak", most, "--persistent", "128MiB", "--start-ns", strconv.FormatInt(start, 10))
		if err := programs[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	for running := true; running; {
		look()
		time.Sleep(50 * time.Millisecond)
		running = false
		for _, p := range programs {
			running = running || !p.Ended()
		}
	}
	list := make([]churn, len(programs))
	for i, p := range programs {
		measured(t, p, &list[i])
	}
	return list
}

// bookkeeper looks at the agent's books while jobs run.
type bookkeeper struct {
	t       *testing.T
	b       *bench.Bed
	looks   int
	waiting int                // requests for the pool, at most
	stall   map[string]float64 // s, by job
}

// look holds the books against the GPU: what is promised, and what is lent, is there.
func (k *bookkeeper) look() {
	k.t.Helper()
	now := known(k.t, k.b)
	g := now.GPUs[0]
	sum := agent.JobMemory{}
	for _, j := range now.Jobs {
		sum.Reserved += j.Memory[0].Reserved
		sum.Held += j.Memory[0].Held
		sum.Used += j.Memory[0].Used
		k.stall[j.Name] = j.Stall
	}
	if sum.Reserved > g.Usable || g.Reserved > g.Usable || sum.Held > g.Pool || sum.Used > g.Usable {
		k.t.Errorf("%v reserved, %v of a pool of %v lent, %v in use, on a GPU of %v", sum.Reserved, sum.Held, g.Pool, sum.Used, g.Usable)
	}
	if in := used(k.t, k.b); in > churnUsable<<30 {
		k.t.Errorf("%d bytes are in use on the GPU", in)
	}
	k.looks++
	k.waiting = max(k.waiting, g.Waiting)
}
