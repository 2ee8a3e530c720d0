package shepherd

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// How the tree of a job is ended.
const (
	soon       = 20 * time.Millisecond  // between looks at the tree, at first
	later      = 100 * time.Millisecond // and after a second
	alone      = 2 * time.Second        // that filters have to see the end of their input
	killRounds = 50                     // of stopping what still forks, before all is killed
)

// guard watches over the processes of one attempt until none is left. It is one goroutine's.
type guard struct {
	program key
	grace   time.Duration
	limit   time.Duration // of the whole; 0 for none

	child, stop, move chan os.Signal

	exit  *Exit
	ended bool // the program

	began    time.Time // when it was asked to stop; zero before
	deadline time.Time // when what was asked is killed
	filters  time.Time // when filters are asked that are all that is left
	left     time.Time // when what the program left behind is killed; zero before it ended

	asked, held, frozen, spared map[key]bool

	ends    []unix.WaitStatus // of what held shells waited for
	counted map[key]bool      // whose end is among these, or does not count
}

func newGuard(program key, t *Task, s signals, exit *Exit) *guard {
	g := &guard{program: program, grace: t.Grace, limit: t.MaxTime, child: s.child, stop: s.stop, move: s.move, exit: exit,
		asked: map[key]bool{}, held: map[key]bool{}, frozen: map[key]bool{}, spared: map[key]bool{}, counted: map[key]bool{}}
	if g.grace <= 0 {
		g.grace = defaultGrace
	}
	return g
}

// watch returns when the program and all below it have ended.
func (g *guard) watch() {
	var over, tick <-chan time.Time
	if g.limit > 0 {
		timer := time.NewTimer(g.limit)
		defer timer.Stop()
		over = timer.C
	}
	for {
		select {
		case <-g.child:
		case <-g.stop:
			g.ask(Stopped)
		case <-g.move:
			g.ask(Moved)
		case <-over:
			g.ask(TimedOut)
		case <-tick:
		}
		if none := g.reap(); none && g.ended {
			return
		}
		if !g.ended && g.began.IsZero() {
			continue
		}
		if g.step(time.Now()) {
			return
		}
		tick = time.After(g.interval())
	}
}

func (g *guard) interval() time.Duration {
	if !g.began.IsZero() && time.Since(g.began) > time.Second {
		return later
	}
	return soon
}

// ask begins to stop the job. The first cause counts, except that what was to be moved can still be stopped for good.
func (g *guard) ask(cause string) {
	if g.ended {
		return
	}
	if g.began.IsZero() {
		g.began = time.Now()
		g.deadline = g.began.Add(g.grace)
		g.exit.Cause = cause
	}
	if g.exit.Cause == Moved && cause == Stopped {
		g.exit.Cause = Stopped
	}
}

// reap takes the ends of processes, and says whether there is none left below this one.
func (g *guard) reap() (none bool) {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return true // ECHILD
		case pid == 0:
			return false
		case pid == g.program.pid && !g.ended:
			g.ended = true
			g.exit.Status, g.exit.Signal = statusOf(g.behind(status))
		}
	}
}

// behind is how the program ended: a shell that was told to end, once what it ran had ended when it was told to, ends as that.
func (g *guard) behind(status unix.WaitStatus) unix.WaitStatus {
	if !status.Signaled() || status.Signal() != unix.SIGTERM || !g.held[g.program] || len(g.ends) == 0 {
		return status
	}
	for _, end := range g.ends {
		if end != 0 {
			return end
		}
	}
	return 0
}

// count notes how what held shells waited for has ended. What had ended before, and what only ran others, does not count.
func (g *guard) count(tree map[int][]proc, p proc, counts bool) {
	for _, child := range tree[p.pid] {
		if child.dead() && !g.counted[child.key()] {
			g.counted[child.key()] = true
			if counts {
				g.ends = append(g.ends, child.end)
			}
		}
	}
}

func statusOf(s unix.WaitStatus) (status, signal int) {
	if s.Signaled() {
		return bySignal + int(s.Signal()), int(s.Signal())
	}
	return s.ExitStatus(), 0
}

// step takes the next step towards the end of all. It is true when what remains cannot be ended from here.
func (g *guard) step(now time.Time) (given bool) {
	all, err := processes()
	if err != nil {
		return false // it is tried again
	}
	tree := children(all)
	rest := alive(below(tree, os.Getpid()))
	switch {
	case !g.began.IsZero() && !now.Before(g.deadline):
		g.exit.Forced = g.exit.Forced || !g.ended || g.anyAsked(rest)
		return g.kill(rest)
	case !g.ended:
		for _, p := range rest {
			if g.held[p.key()] {
				g.count(tree, p, true)
			}
		}
		r := stopNow(tree, all[g.program.pid], roleOf, func(p proc) bool { return g.asked[p.key()] })
		for _, p := range r.hold {
			g.count(tree, p, g.held[p.key()])
		}
		g.askSome(r, now)
	case g.anyAsked(rest):
		// It has its grace, undisturbed.
	default:
		return g.clear(rest, now)
	}
	return false
}

func alive(list []proc) []proc {
	var some []proc
	for _, p := range list {
		if !p.dead() {
			some = append(some, p)
		}
	}
	return some
}

func (g *guard) anyAsked(list []proc) bool {
	for _, p := range list {
		if g.asked[p.key()] && !g.spared[p.key()] {
			return true
		}
	}
	return false
}

// askSome tells each process once. What is held, or was stopped by others, goes on to hear it.
func (g *guard) askSome(r request, now time.Time) {
	for _, p := range r.hold {
		if !g.held[p.key()] {
			g.held[p.key()] = g.signal(p, unix.SIGSTOP)
		}
	}
	for _, p := range r.ask {
		g.counted[p.key()] = roleOf(p) != worker
		g.asked[p.key()] = g.signal(p, unix.SIGTERM, unix.SIGCONT)
		g.filters = time.Time{}
	}
	if len(r.ask) > 0 || len(r.filters) == 0 {
		return
	}
	if g.filters.IsZero() {
		g.filters = now
		if len(g.asked) > 0 {
			g.filters = now.Add(alone)
		} // else there is nobody whose output they wait for
	}
	if !now.Before(g.filters) {
		for _, p := range r.filters {
			g.counted[p.key()] = true
			g.asked[p.key()] = g.signal(p, unix.SIGTERM, unix.SIGCONT)
		}
	}
}

// clear ends what the program left behind.
func (g *guard) clear(rest []proc, now time.Time) (given bool) {
	if g.left.IsZero() {
		g.left = now.Add(leftGrace)
	}
	if !now.Before(g.left) {
		return g.kill(rest)
	}
	for _, p := range rest {
		if !g.asked[p.key()] && !g.held[p.key()] {
			g.held[p.key()] = g.signal(p, unix.SIGTERM, unix.SIGCONT) // here: it was told
		}
	}
	return false
}

// kill ends all that is left. What forks is stopped first, until nothing new is seen: then nobody is missed.
func (g *guard) kill(rest []proc) (given bool) {
	for range killRounds {
		fresh := false
		for _, p := range rest {
			if !g.frozen[p.key()] {
				g.frozen[p.key()], fresh = true, true
				g.signal(p, unix.SIGSTOP) // if not now, it is killed all the same
			}
		}
		all, err := processes()
		if err != nil {
			break
		}
		rest = alive(below(children(all), os.Getpid()))
		if !fresh {
			break
		}
	}
	given = len(rest) > 0
	for _, p := range rest {
		g.signal(p, unix.SIGKILL)
		given = given && g.spared[p.key()]
	}
	if given {
		g.exit.Fault = fmt.Sprintf("process %d (%s) belongs to another user and goes on", rest[0].pid, program(rest[0].pid))
	}
	return given && g.ended
}

// signal is false when it has to be tried again. Whom this process may not signal is noted.
func (g *guard) signal(p proc, signals ...unix.Signal) bool {
	err := p.key().signal(signals...)
	if errors.Is(err, unix.EPERM) {
		g.spared[p.key()] = true
		return true
	}
	return err == nil
}
