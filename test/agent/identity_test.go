package agent

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/agent"
	"weft.dev/weft/internal/bench"
	"weft.dev/weft/internal/unit"
	"weft.dev/weft/internal/wire"
	"weft.dev/weft/test/suite"
)

// as runs a program as another user, and returns its exit code and all that it said.
func as(t *testing.T, user uint32, environment []string, line ...string) (int, string) {
	t.Helper()
	cmd := exec.CommandContext(soon(t), line[0], line[1:]...)
	cmd.Dir, cmd.Env = "/", environment
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return exitCode(t, err), string(out)
	}
	return 0, string(out)
}

// allow sets modes of files.
func allow(t *testing.T, mode os.FileMode, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOtherUsers has programs of another user than the job's at its socket, and at the agent's own: the folders keep them out,
// and where those are opened, the kernel's word of who they are does.
func TestOtherUsers(t *testing.T) {
	suite.Long(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root to be another user")
	}
	const owner, stranger = 4711, 4713
	b := bed(t, 1)
	starts, control := program(t, "starts"), filepath.Join(b.AgentDir(), agent.ControlName)
	theirs := asked(t, b, agent.Request{Op: agent.OpAllocate, Spec: &agent.Spec{Name: "theirs", GPUs: []string{"0"}, UID: owner, Reserved: unit.GiB}})
	allow(t, 0o711, built.Dir, filepath.Dir(b.AgentDir()))
	allow(t, 0o666, b.EmulatedSocket())
	environment := []string{"LD_PRELOAD=" + filepath.Join(built.Lib, "libweft.so"), "LD_LIBRARY_PATH=" + filepath.Join(built.Lib, "emu"),
		"WEFT_EMU_SOCKET=" + b.EmulatedSocket(), "WEFT_SOCKET=" + theirs.Socket}
	speak := func(user uint32, says string) {
		t.Helper()
		launches := counters(t, b)
		code, out := as(t, user, environment, starts)
		if code != 0 || out != says+"done\n" {
			t.Errorf("user %d: %d %s", user, code, out)
		}
		if managed := counters(t, b).Unmanaged == launches.Unmanaged; managed != (user == owner) {
			t.Errorf("user %d: managed is %v", user, managed)
		}
	}
	ask := func(says string) {
		t.Helper()
		for _, line := range [][]string{{"agent", "stats", "--socket", b.AgentDir()}, {"exec", "--socket", b.AgentDir(), "--", "/bin/echo", "started"}} {
			code, out := as(t, stranger, []string{"WEFT_LIB=" + built.Lib}, append([]string{built.Weft}, line...)...)
			if code == 0 || !strings.Contains(out, says) || strings.Contains(out, "started") {
				t.Errorf("%v: %d %s", line, code, out)
			}
		}
	}
	speak(owner, "")
	speak(stranger, "weft: no agent at "+theirs.Socket+" (Permission denied): runs unshared; weft exec starts it as a job\n")
	ask("permission denied")
	allow(t, 0o755, b.AgentDir(), theirs.Dir)
	allow(t, 0o666, theirs.Socket, control)
	speak(owner, "")
	speak(stranger, "weft: agent at "+theirs.Socket+" serves another user: runs unshared; weft exec starts it as a job\n")
	ask("user 4713 may not ask this agent")
	if !strings.Contains(events(t, b), "user 4713 connects to the socket of user 4711") {
		t.Error(events(t, b))
	}
	if n := len(jobs(t, b)); n != 1 {
		t.Errorf("%d jobs", n)
	}
}

// client is a connection that says what it likes.
type client struct {
	fd     int
	number uint32
}

// connect connects to an allocation's socket, and waits so many seconds at most for what is said there.
func connect(socket string, seconds int64) (*client, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	c := &client{fd: fd}
	for _, option := range []int{unix.SO_RCVTIMEO, unix.SO_SNDTIMEO} {
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, option, &unix.Timeval{Sec: seconds}); err != nil {
			c.close()
			return nil, err
		}
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: socket}); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *client) close() { _ = unix.Close(c.fd) } // whatever was said

// say sends a message with the next number.
func (c *client) say(m wire.Message) error {
	c.number++
	return c.raw(wire.Append(nil, c.number, m))
}

func (c *client) raw(packet []byte) error {
	return unix.Send(c.fd, packet, unix.MSG_NOSIGNAL)
}

// hear waits for a message.
func (c *client) hear() (wire.Message, error) {
	var packet [wire.Max]byte
	n, err := unix.Read(c.fd, packet[:])
	if err != nil || n == 0 {
		return nil, fmt.Errorf("closed: %w", err)
	}
	_, m, err := wire.Parse(packet[:n])
	return m, err
}

// grant asks for the token and waits for it. The epochs of others are near its own.
func (c *client) grant() (uint64, error) {
	if err := c.say(&wire.Request{}); err != nil {
		return 0, err
	}
	for {
		m, err := c.hear()
		if err != nil {
			return 0, err
		}
		if g, is := m.(*wire.Grant); is {
			return g.Epoch, nil
		}
	}
}

// impostor says what the processes of another allocation would: their session, epochs and handles. It returns how often it
// guessed epochs near those that are in use.
func impostor(socket string, random *rand.Rand) (int, error) {
	c, err := connect(socket, int64(patience.Seconds()))
	if err != nil {
		return 0, err
	}
	defer c.close()
	if err := c.say(&wire.Hello{Session: 1 + random.Uint64N(4), Epoch: random.Uint64N(64), GPUs: 1}); err != nil {
		return 0, err
	}
	epoch, err := c.grant()
	if err != nil {
		return 0, err
	}
	for i := range uint64(16) {
		for _, m := range []wire.Message{&wire.Free{Question: wire.Question{Handle: 1 + i}}, &wire.Released{Epoch: epoch + 1 + i, Used: math.MaxUint64, Overrun: math.MaxUint64},
			&wire.Idle{Epoch: wire.Epoch{Epoch: epoch + 1 + i}}, &wire.Iteration{Count: math.MaxUint64}} {
			if err := c.say(m); err != nil {
				return 0, err
			}
		}
	}
	return 1, c.say(&wire.Released{Epoch: epoch})
}

// TestOtherAllocation has a client of one allocation speak of what is another's: nothing changes there.
func TestOtherAllocation(t *testing.T) {
	suite.Long(t)
	b := bed(t, 1)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	p := started(t, b, &bench.Job{Name: "victim", Reserved: "2GiB"}, "weft-train", "--persistent", "1GiB", "--kernels", "10", "--kernel-us", "200", "--gap-ms", "1")
	hostile := asked(t, b, agent.Request{Op: agent.OpAllocate, Spec: &agent.Spec{Name: "hostile", GPUs: []string{"0"}, Class: 1, Reserved: unit.GiB}})
	eventually(t, patience, "the victim computes", func() bool {
		j, ok := jobOf(t, b, "victim")
		return ok && j.Launches+uint64(j.Held*1e3) > 0 && j.Memory[0].Used > unit.GiB
	})
	before, _ := jobOf(t, b, "victim")
	guesses := 0
	for begin := time.Now(); time.Since(begin) < 2*time.Second || guesses < 20 && time.Since(begin) < patience; {
		n, err := impostor(hostile.Socket, random)
		if err != nil {
			t.Fatal(err)
		}
		guesses += n
		now, _ := jobOf(t, b, "victim") // which has an overrun where the machine did not let it run
		if now.Memory[0].Used != before.Memory[0].Used || len(now.PIDs) != 1 || now.Iterations > 1<<40 || now.Refused > 0 {
			t.Fatalf("of the victim there is now %+v", now)
		}
	}
	after, _ := jobOf(t, b, "victim")
	if after.Held-before.Held < 0.2 {
		t.Errorf("the victim held the GPU for %.2f s beside it", after.Held-before.Held)
	}
	_ = p.Signal(15) // it runs for ever
	if code := ends(t, p); code != 128+15 {
		t.Errorf("the victim ended with %d: %s", code, p.Errors.String())
	}
	if strings.Contains(p.Errors.String(), "weft: ") || guesses < 20 {
		t.Errorf("%d tries; the victim was told %s", guesses, p.Errors.String())
	}
	held(t, b)
	t.Logf("%d tries", guesses)
}

// hostileSocket names the variable that makes a process of this test hostile.
const hostileSocket = "WEFT_TEST_HOSTILE"

// beHostile breaks the protocol in each way, until it is killed.
func beHostile(socket string) {
	random := rand.New(rand.NewPCG(uint64(os.Getpid()), 0))
	for {
		if c, err := connect(socket, 1); err == nil {
			rave(c, random)
			c.close()
		}
		time.Sleep(time.Millisecond)
	}
}

// rave is one connection of it.
func rave(c *client, random *rand.Rand) {
	hello := &wire.Hello{Session: random.Uint64N(8), Epoch: random.Uint64N(1000), GPUs: random.Uint32N(2)}
	packet := wire.Append(nil, 1, hello)
	switch random.IntN(6) {
	case 0: // not a message
		for i := range packet {
			packet[i] = byte(random.Uint32())
		}
		_ = c.raw(packet[:random.IntN(len(packet))]) // it is closed for that, as wanted
	case 1: // too long
		_ = c.raw(make([]byte, wire.Max+random.IntN(60_000))) // likewise
	case 2: // replayed
		_, _ = c.raw(packet), c.raw(packet) // likewise
	case 3: // another version
		packet[4]++
		_ = c.raw(packet) // likewise
	case 4: // the epochs of others, and what it does not hold
		_ = c.say(hello)
		for range 40 {
			if c.say(&wire.Released{Epoch: random.Uint64N(2000), Used: math.MaxUint64}) != nil || c.say(&wire.Idle{Epoch: wire.Epoch{Epoch: random.Uint64N(2000)}}) != nil {
				return
			}
		}
	default: // memory that does not exist, and a token that it never gives back
		_ = c.say(hello)
		for i := range uint64(20) {
			if c.say(&wire.Alloc{Handle: i, Bytes: random.Uint64(), Family: uint16(random.IntN(12))}) != nil || c.say(&wire.Request{}) != nil {
				return
			}
		}
	}
	_, _ = c.hear() // a refusal, or nothing
}

// TestHostileProcess has a training job beside a process of another that breaks the protocol in each way: its rate stays. What
// else the machine does can only lower the rate, so the best of three tries counts.
func TestHostileProcess(t *testing.T) {
	suite.Timed(t)
	b := bed(t, 1)
	hostile := asked(t, b, agent.Request{Op: agent.OpAllocate, Spec: &agent.Spec{Name: "hostile", GPUs: []string{"0"}, Class: 2, Reserved: unit.GiB}})
	const least = 0.93
	best := 0.0
	for try := 0; try < 3 && best < least; try++ {
		best = max(best, besideHostile(t, b, hostile.Socket))
	}
	if best < least {
		t.Errorf("at best %.1f %% of the rate alone", 100*best)
	}
	held(t, b)
}

// besideHostile is the rate of a training job beside the hostile process, as a share of its rate before and after.
func besideHostile(t *testing.T, b *bench.Bed, socket string) float64 {
	t.Helper()
	p := started(t, b, &bench.Job{Name: "victim", Class: "guaranteed"}, "weft-train", "--kernels", "20", "--kernel-us", "200", "--gap-ms", "2", "--seconds", "9")
	time.Sleep(3 * time.Second)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{hostileSocket + "=" + socket}
	from := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(4 * time.Second)
	refusals := strings.Count(events(t, b), "refused")
	_ = cmd.Process.Kill() // it runs for ever
	_ = cmd.Wait()         // killed, as wanted
	to := time.Now()
	if got := final(t, p); got.Iterations == 0 {
		t.Error("no iteration")
	}
	alone, beside, enough := ratesOf(t, p, from, to)
	if !enough {
		t.Logf("too few rates: %s", p.Out.String())
		return 0
	}
	t.Logf("%.1f iterations per second alone, %.1f beside it, which was refused at least %d times", alone, beside, refusals)
	if strings.Contains(p.Errors.String(), "weft: ") {
		t.Errorf("the victim was told %s", p.Errors.String())
	}
	if refusals < 100 {
		t.Logf("%d refusals: nothing was tested", refusals)
		return 0
	}
	return beside / alone
}

// ratesOf are the mean rates of a training job outside of a span of time, and within it, and whether each is of two at least.
func ratesOf(t *testing.T, p *bench.Program, from, to time.Time) (outside, inside float64, enough bool) {
	t.Helper()
	var sums, counts [2]float64
	for line := range strings.Lines(p.Out.String()) {
		var r struct {
			Type string    `json:"type"`
			Time time.Time `json:"time"`
			Rate float64   `json:"rate_per_s"`
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		begin := r.Time.Add(-time.Second)
		switch {
		case r.Type != "rate":
		case !begin.Before(from) && !r.Time.After(to):
			sums[1] += r.Rate
			counts[1]++
		case r.Time.Before(from) || begin.After(to):
			sums[0] += r.Rate
			counts[0]++
		}
	}
	return sums[0] / counts[0], sums[1] / counts[1], counts[0] >= 2 && counts[1] >= 2
}
