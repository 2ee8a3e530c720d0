package shepherd

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	sweepTime  = 10 * time.Second       // that processes which were killed may take to end
	doubtTime  = 500 * time.Millisecond // to look again while it cannot be seen whose some are: on a busy machine there always are such
	doubtLooks = 20                     // in that time at least: one that the machine stood still for is one, however long it took
)

// sweep ends all processes that have a mark in their environment, and those below them. It is for jobs without a shepherd, with
// which the program was killed: that one is only waited for.
func sweep(program key, mark string) error {
	if mark == "" {
		return nil // a claim that a loss of power tore: nothing is left
	}
	r := remains{markName + "=" + mark, map[key]bool{}}
	began := time.Now()
	for looks := 1; ; looks++ {
		rest, unsure, err := r.left()
		passed := time.Since(began)
		if err != nil || len(rest) == 0 && !program.lives() && (!unsure || doubted(looks, passed)) {
			return err
		}
		if err := kill(rest); passed > sweepTime {
			return err
		}
		time.Sleep(soon)
	}
}

// doubted says whether so many looks in so long were enough to believe that nothing is left.
func doubted(looks int, passed time.Duration) bool { return looks >= doubtLooks && passed > doubtTime }

// kill kills processes. The error is that they are there, and why.
func kill(list []proc) error {
	var failed error
	for _, p := range list {
		err := p.key().signal(unix.SIGKILL)
		if err == nil && failed == nil {
			err = errors.New("does not end")
		}
		if err != nil {
			failed = fmt.Errorf("process %d (%s): %w", p.pid, program(p.pid), err)
		}
	}
	return failed
}

// remains are what is left of a job. Whoever was seen to be of it stays so until it is dead, though its environment is gone before.
type remains struct {
	entry string // the mark, as it is in the environment
	seen  map[key]bool
}

// left are the processes that are left, all stopped, so that none forks unseen. It is unsure while there may be others.
func (r *remains) left() (list []proc, unsure bool, err error) {
	for range killRounds {
		all, err := processes()
		if err != nil {
			return nil, false, err
		}
		list, unsure = r.find(all)
		if !r.stop(list) {
			break
		}
	}
	return list, unsure, nil
}

// find looks for those that have the mark, and all below them.
func (r *remains) find(all map[int]proc) (list []proc, unsure bool) {
	listed, tree, own := map[int]bool{}, children(all), line(all, os.Getpid())
	for _, p := range all {
		if p.dead() || own[p.pid] {
			continue
		}
		is := r.seen[p.key()]
		if !is {
			var may bool
			is, may = p.marked(r.entry)
			unsure = unsure || may
		}
		if !is {
			continue
		}
		for _, q := range append(below(tree, p.pid), p) {
			if !q.dead() && !own[q.pid] && !listed[q.pid] {
				listed[q.pid] = true
				list = append(list, q)
			}
		}
	}
	return list, unsure
}

// stop stops those that were not seen before, and says whether there were any.
func (r *remains) stop(list []proc) (fresh bool) {
	for _, p := range list {
		if !r.seen[p.key()] {
			r.seen[p.key()], fresh = true, true
			_ = p.key().signal(unix.SIGSTOP) // whoever may not be stopped may not be killed, and is told then
		}
	}
	return fresh
}

// line is a process and those above it. A daemon that was started from within a job does not end itself with that.
func line(all map[int]proc, pid int) map[int]bool {
	list := map[int]bool{}
	for ; pid != 0 && !list[pid]; pid = all[pid].parent {
		list[pid] = true
	}
	return list
}
