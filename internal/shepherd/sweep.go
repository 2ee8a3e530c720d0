package shepherd

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// sweepTime is how long processes that were killed may take to end.
const sweepTime = 10 * time.Second

// sweep ends all processes that have a mark in their environment, and those below them. It is for jobs without a shepherd.
func sweep(mark string) error {
	if mark == "" {
		return nil // a claim that a loss of power tore: nothing is left
	}
	r := remains{markName + "=" + mark, map[key]bool{}}
	for end := time.Now().Add(sweepTime); ; {
		rest, unsure, err := r.left()
		if err != nil || len(rest) == 0 && !unsure {
			return err
		}
		var failed error
		for _, p := range rest {
			if err := p.key().signal(unix.SIGKILL); err != nil {
				failed = fmt.Errorf("process %d (%s): %w", p.pid, program(p.pid), err)
			}
		}
		if !time.Now().Before(end) {
			if failed == nil && len(rest) > 0 { // else nothing says that it is the job's
				failed = fmt.Errorf("process %d (%s) does not end", rest[0].pid, program(rest[0].pid))
			}
			return failed
		}
		time.Sleep(soon)
	}
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
