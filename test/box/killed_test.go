package box

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weft.dev/weft/internal/agent"
	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/unit"
	"weft.dev/weft/internal/web/client"
	"weft.dev/weft/test/suite"
)

// crowd submits jobs to a daemon that is killed again and again, and remembers which were accepted.
type crowd struct {
	b   *bed
	ran string // folder in which each job says its attempts

	mu       sync.Mutex
	accepted map[box.ID]bool // false: somebody asked to stop it

	doubtful atomic.Int32 // submissions whose answer was lost
	refused  atomic.Int32 // that never reached the daemon
}

// sweat is the script of a job: it says that it began, prints a line each 50 ms, and says that it ended. One that is asked for a
// checkpoint remembers how far it is: no farther than what it printed, whenever it is asked, and at its end all of it.
const sweat = `echo "$WEFT_ATTEMPT" >>"$RAN/$WEFT_JOB_ID"
i=$(cat "$RAN/$WEFT_JOB_ID.checkpoint" 2>/dev/null || echo 0)
trap 'echo $i >"$RAN/$WEFT_JOB_ID.checkpoint"; exit 143' TERM
while [ $i -lt $STEPS ]; do echo "line $((i + 1))"; i=$((i + 1)); sleep 0.05; done
echo $i >"$RAN/$WEFT_JOB_ID.checkpoint"
echo end`

// one is a job of random length, which may be moved or not.
func (c *crowd) one(r *rand.Rand) box.Spec {
	return c.job(r, []int{0, 1, r.IntN(10), r.IntN(40)}[r.IntN(4)], r.IntN(3) == 0)
}

func (c *crowd) job(r *rand.Rand, steps int, migratable bool) box.Spec {
	return spec(sweat, func(s *box.Spec) {
		s.Name = "sweat-" + strconv.Itoa(r.IntN(4))
		s.Env = append(s.Env, "RAN="+c.ran, "STEPS="+strconv.Itoa(steps))
		s.Class, s.Floor, s.Memory = box.BestEffort, 0.05, unit.GiB
		s.Migratable = migratable
	})
}

// submit hands jobs in until the context ends, no more than the machine gets done.
func (c *crowd) submit(ctx context.Context, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	d := client.New(c.b.socket())
	defer d.Close()
	for ctx.Err() == nil {
		ids, err := d.Submit(ctx, c.one(r))
		var away *client.UnreachableError
		switch {
		case err == nil:
			c.accept(ids[0])
		case errors.As(err, &away) && away.Sent:
			c.doubtful.Add(1)
		case errors.As(err, &away):
			c.refused.Add(1)
		case ctx.Err() == nil:
			c.b.t.Errorf("a job was refused: %v", err)
		}
		pause(ctx, time.Duration(20+r.IntN(200))*time.Millisecond)
	}
}

// accept notes a job that was accepted.
func (c *crowd) accept(id box.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, stopped := c.accepted[id]; !stopped { // it may be, before its answer came
		c.accepted[id] = true
	}
}

// move has a job asked to move: one of some seconds that goes before the others, off a GPU that is drained as soon as it runs there.
func (c *crowd) move(ctx context.Context, r *rand.Rand) {
	s := c.job(r, 100, true)
	s.Priority = 100
	id := c.b.submit(s)
	c.accept(id)
	on := 0
	for end := time.Now().Add(patience); time.Now().Before(end); pause(ctx, 20*time.Millisecond) {
		j, err := c.b.Job(ctx, id)
		if err == nil && j.State == box.Running {
			on = j.On[0]
			_, err = c.b.Drain(ctx, on, true) // again and again: others end that
		}
		if err != nil {
			c.b.t.Fatal(err)
		}
		if j.Attempt > 0 && j.State != box.Starting && j.State != box.Running || j.Attempt > 1 {
			break
		}
	}
	if _, err := c.b.Drain(ctx, on, false); err != nil {
		c.b.t.Fatal(err)
	}
}

// disturb stops jobs and drains GPUs, which moves jobs, until the context ends.
func (c *crowd) disturb(ctx context.Context, seed uint64, gpus int) {
	r := rand.New(rand.NewPCG(seed, 2))
	d := client.New(c.b.socket())
	defer d.Close()
	for ctx.Err() == nil {
		gpu := r.IntN(gpus)
		_, _ = d.Drain(ctx, gpu, true) // the daemon may be away
		pause(ctx, time.Duration(r.IntN(2000))*time.Millisecond)
		if jobs, err := d.Jobs(ctx, false, ""); err == nil && len(jobs) > 0 {
			id := jobs[r.IntN(len(jobs))].ID
			c.mu.Lock()
			c.accepted[id] = false
			c.mu.Unlock()
			_, _ = d.Stop(ctx, id) // it may have ended, or the daemon
		}
		for ; ctx.Err() == nil; pause(ctx, 20*time.Millisecond) {
			if _, err := d.Drain(ctx, gpu, false); err == nil {
				break
			}
		}
	}
	for i := range gpus {
		_, _ = d.Drain(context.Background(), i, false) // done again below
	}
}

// pause sleeps, or less where the context ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// TestKilledDaemon kills the daemon at random instants while jobs are submitted, begin, end, are stopped and moved. No accepted
// job is lost, none runs twice, nothing is left behind.
func TestKilledDaemon(t *testing.T) {
	kills := 100
	if testing.Short() || suite.Raced {
		kills = 10
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	const gpus = 4
	b := up(t, gpus, "--grace", patience.String()) // who is killed before it has its checkpoint begins anew
	c := &crowd{b: b, ran: filepath.Join(b.dir, "ran"), accepted: map[box.ID]bool{}}
	if err := os.Mkdir(c.ran, 0o755); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for i := range uint64(3) {
		clients.Go(func() { c.submit(ctx, seed+i) })
	}
	clients.Go(func() { c.disturb(ctx, seed, gpus) })
	r := rand.New(rand.NewPCG(seed, 3))
	var away time.Duration
	for i := range kills {
		if i%5 == 0 {
			c.move(ctx, r)
		}
		time.Sleep(time.Duration(r.IntN(500)) * time.Millisecond)
		b.kill()
		from := time.Now()
		if err := b.tryStart(); err != nil {
			t.Error(err)
			break
		}
		away += time.Since(from)
	}
	cancel()
	clients.Wait()
	if t.Failed() {
		return
	}
	c.check(gpus)
	c.mu.Lock()
	defer c.mu.Unlock()
	t.Logf("%d kills in %.0f s, back after %.0f ms in the mean; %d jobs accepted, %d submissions cut off, %d before they were sent%s", kills,
		time.Since(began).Seconds(), away.Seconds()*1e3/float64(kills), len(c.accepted), c.doubtful.Load(), c.refused.Load(), busy())
}

// check waits until all is done and holds every job against what it wrote itself.
func (c *crowd) check(gpus int) {
	b, t := c.b, c.b.t
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for g := range gpus {
		if _, err := b.Drain(ctx, g, false); err != nil {
			t.Fatal(err)
		}
	}
	jobs, err := b.Jobs(ctx, true, "")
	if err != nil {
		t.Fatal(err)
	}
	known := map[box.ID]bool{}
	moved, stopped := 0, 0
	for i := range jobs {
		known[jobs[i].ID] = true
		j, err := b.Wait(ctx, jobs[i].ID)
		if err != nil {
			t.Fatalf("job %d is not done: %v: %+v", jobs[i].ID, err, j)
		}
		attempts := c.attempts(j.ID)
		untouched := c.accepted[j.ID]
		if _, ours := c.accepted[j.ID]; !ours {
			untouched = true // its answer was lost, and nobody could stop it
		}
		if len(attempts) > 1 {
			moved++
		}
		if len(slices.Compact(slices.Sorted(slices.Values(attempts)))) != len(attempts) {
			t.Errorf("job %d ran an attempt twice: %v", j.ID, attempts)
		}
		if len(attempts) > 1 && !j.Migratable {
			t.Errorf("job %d ran twice: %v: %+v", j.ID, attempts, j)
		}
		switch {
		case j.Outcome == box.Stopped || j.Outcome == box.Cancelled:
			stopped++
			if untouched {
				t.Errorf("nobody stopped job %d: %+v", j.ID, j)
			}
		case j.Outcome != box.Succeeded:
			t.Errorf("job %d: %s, attempts %v: %+v", j.ID, j.Outcome, attempts, j)
		default:
			c.checkLog(&j, len(attempts))
		}
	}
	for id := range c.accepted {
		if !known[id] {
			t.Errorf("job %d was accepted and is lost", id)
		}
	}
	c.nothingLeft()
	t.Logf("%d jobs: %d stopped, %d moved", len(jobs), stopped, moved)
	if moved == 0 && len(jobs) > 200 {
		t.Error("nothing was moved: the test tests less than it should")
	}
}

// attempts are those that a job said.
func (c *crowd) attempts(id box.ID) []string {
	text, _ := os.ReadFile(filepath.Join(c.ran, id.String())) // one that never ran said nothing
	return strings.Fields(string(text))
}

// checkLog wants every line of a job that succeeded in its log, each at least once, and the end: once more in each attempt after that,
// where it was asked to move when it had just ended.
func (c *crowd) checkLog(j *box.Job, attempts int) {
	t := c.b.t
	stdout, stderr := c.b.output(j.ID)
	lines, ends := stdout, 0
	for ; strings.HasSuffix(lines, "end\n"); ends++ {
		lines = strings.TrimSuffix(lines, "end\n")
	}
	if stderr != "" && !strings.Contains(stderr, "Terminated") || ends == 0 || ends > attempts {
		t.Errorf("job %d, %d attempts: %q %q", j.ID, attempts, stdout, stderr)
		return
	}
	last := 0
	for line := range strings.Lines(lines) {
		var n int
		if _, err := fmt.Sscanf(line, "line %d\n", &n); err != nil || n != last+1 && n != last {
			t.Errorf("job %d: %q after line %d: %q", j.ID, line, last, stdout)
			return
		}
		last = n
	}
}

// nothingLeft wants no process of a job, and no allocation at the agent.
func (c *crowd) nothingLeft() {
	t := c.b.t
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		left, held := c.b.jobProcesses(), c.b.allocations()
		if len(left)+len(held) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Errorf("left behind: processes %v, allocations %v", left, held)
			return
		}
	}
}

// allocations are what the agent holds for jobs.
func (b *bed) allocations() []agent.Job {
	b.t.Helper()
	a, err := agent.Dial(b.t.Context(), filepath.Join(b.state, "agent"))
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = a.Close() }() // only asked
	answer, err := a.Ask(b.t.Context(), agent.Request{Op: agent.OpList})
	if err != nil {
		b.t.Fatal(err)
	}
	return answer.Jobs
}

// jobProcesses are shepherds and the processes of jobs.
func (b *bed) jobProcesses() map[int]string {
	found := b.processes()
	for pid, command := range found {
		environment, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ") // it may have ended
		if !strings.Contains(string(environment), "WEFT_JOB=") && !strings.Contains(command, "shepherd") {
			delete(found, pid)
		}
	}
	return found
}

// socket is where the daemon listens.
func (b *bed) socket() string { return filepath.Join(b.state, client.SocketName) }
