package agent

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"weft.dev/weft/internal/bench"
)

// soakTime is how long TestSoak runs: WEFT_SOAK, half a minute by default (make soak takes half an hour), and a few seconds with -short.
func soakTime(t *testing.T) time.Duration {
	t.Helper()
	if text := os.Getenv("WEFT_SOAK"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("WEFT_SOAK: %v", err)
		}
		return d
	}
	if testing.Short() {
		return 8 * time.Second
	}
	return 30 * time.Second
}

// soak is a random life on four GPUs.
type soak struct {
	t       *testing.T
	b       *bench.Bed
	ctx     context.Context
	random  *rand.Rand
	running []*bench.Program
	stopped []*bench.Program
	count   map[string]int
}

func TestSoak(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	length := soakTime(t)
	t.Logf("seed %d, %v", seed, length)
	b := bed(t, 4, "--settle", "100ms")
	ctx, cancel := context.WithTimeout(context.Background(), length+2*time.Minute)
	defer cancel()
	s := &soak{t: t, b: b, ctx: ctx, random: rand.New(rand.NewPCG(seed, 0)), count: map[string]int{}}
	s.calm()
	before := s.files()
	for end := time.Now().Add(length); time.Now().Before(end) && !t.Failed(); {
		s.step()
		time.Sleep(time.Duration(s.random.IntN(60)) * time.Millisecond)
	}
	s.endAll()
	s.calm()
	e := counters(t, b)
	t.Logf("%v; %d launches", s.count, e.Launches)
	if e.Violations > 0 {
		t.Errorf("%d launches outside a token: %v", e.Violations, e.Examples)
	}
	for i, now := range s.files() {
		if now > before[i]+3 { // a connection or two may be in the making
			t.Errorf("process %d of %v has %d files open, %d before", i, b.PIDs(), now, before[i])
		}
	}
}

func (s *soak) files() []int {
	var list []int
	for _, pid := range s.b.PIDs() {
		list = append(list, descriptors(s.t, pid))
	}
	return list
}

// calm waits until nobody is left, and no memory is.
func (s *soak) calm() {
	eventually(s.t, patience, "no session, job, token or byte is left", func() bool {
		now := known(s.t, s.b)
		return now.Sessions == 0 && len(now.Jobs) == 0 && used(s.t, s.b) == 0
	})
	for _, g := range known(s.t, s.b).GPUs {
		if g.Reserved != 0 || g.PoolFree != g.Usable || len(g.Residents) > 0 || g.Waiting > 0 || len(g.Foreign) > 0 {
			s.t.Errorf("GPU %d is not free: %+v", g.GPU, g)
		}
	}
}

// step does one random thing.
func (s *soak) step() {
	switch n := s.random.IntN(100); {
	case len(s.running) < 3 || n < 35 && len(s.running) < 12:
		s.start()
	case n < 50:
		s.end(s.take(), syscall.SIGTERM)
	case n < 70:
		s.end(s.take(), syscall.SIGKILL)
	case n < 80:
		s.stall()
	case n < 90:
		s.wake()
	case n < 92:
		s.restart()
	default:
		s.reap()
	}
}

func (s *soak) start() {
	classes := []string{"guaranteed", "burstable", "besteffort"}
	gpu := s.random.IntN(4)
	job := &bench.Job{Name: fmt.Sprintf("soak-%d", s.count["start"]), Class: classes[s.random.IntN(3)], Weight: 1 + s.random.IntN(5),
		GPUs: strconv.Itoa(gpu), Reserved: "768MiB", Peak: "512MiB", Cooperates: true}
	arguments := []string{"--kernels", strconv.Itoa(1 + s.random.IntN(50)), "--kernel-us", strconv.Itoa(10 + s.random.IntN(2000)),
		"--gap-ms", strconv.Itoa(s.random.IntN(20)), "--ephemeral", "256MiB", "--seconds", strconv.Itoa(1 + s.random.IntN(20))}
	switch s.random.IntN(6) {
	case 0:
		other := (gpu + 1) % 4
		job.GPUs += "," + strconv.Itoa(other)
		arguments = append(arguments, "--devices", "0,1", "--ranks")
	case 1:
		arguments = append(arguments, "--graph")
	case 2:
		arguments = append(arguments, "--no-cooperate")
		job.Cooperates = false
	}
	p := s.b.Command(s.ctx, job, "weft-train", arguments...)
	if err := p.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.count["start"]++
	s.running = append(s.running, p)
}

// take removes a random program from those that run.
func (s *soak) take() *bench.Program {
	i := s.random.IntN(len(s.running))
	p := s.running[i]
	s.running[i] = s.running[len(s.running)-1]
	s.running = s.running[:len(s.running)-1]
	return p
}

// end signals a program and waits for it.
func (s *soak) end(p *bench.Program, signal syscall.Signal) {
	s.count[signal.String()]++
	_ = p.Signal(signal) // it may have ended
	_ = p.Wait()         // how it ended is its own affair
}

func (s *soak) stall() {
	p := s.take()
	s.count["stall"]++
	_ = p.Signal(syscall.SIGSTOP) // it may have ended
	s.stopped = append(s.stopped, p)
}

func (s *soak) wake() {
	for _, p := range s.stopped {
		_ = p.Signal(syscall.SIGCONT) // it may have ended
	}
	s.running = append(s.running, s.stopped...)
	s.stopped = nil
}

func (s *soak) restart() {
	s.count["restart"]++
	if err := s.b.KillAgent(); err != nil {
		s.t.Fatal(err)
	}
	time.Sleep(time.Duration(s.random.IntN(300)) * time.Millisecond)
	if err := s.b.StartAgent(s.ctx); err != nil {
		s.t.Fatal(err)
	}
}

// reap waits for programs that ended by themselves.
func (s *soak) reap() {
	for i := 0; i < len(s.running); i++ {
		if s.running[i].Ended() {
			_ = s.running[i].Wait() // how it ended is its own affair
			s.running = append(s.running[:i], s.running[i+1:]...)
			i--
		}
	}
}

func (s *soak) endAll() {
	s.wake()
	for len(s.running) > 0 {
		s.end(s.take(), syscall.SIGTERM)
	}
}
