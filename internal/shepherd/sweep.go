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
	stopped := map[key]bool{}
	for end := time.Now().Add(sweepTime); ; {
		rest, err := left(mark, stopped)
		if err != nil || len(rest) == 0 {
			return err
		}
		var failed error
		for _, p := range rest {
			if err := p.key().signal(unix.SIGKILL); err != nil {
				failed = fmt.Errorf("process %d (%s): %w", p.pid, program(p.pid), err)
			}
		}
		if !time.Now().Before(end) {
			if failed == nil {
				failed = fmt.Errorf("process %d (%s) does not end", rest[0].pid, program(rest[0].pid))
			}
			return failed
		}
		time.Sleep(soon)
	}
}

// left are the processes of a mark, all stopped, so that none forks unseen.
func left(mark string, stopped map[key]bool) ([]proc, error) {
	var list []proc
	for range killRounds {
		all, err := processes()
		if err != nil {
			return nil, err
		}
		list = list[:0]
		seen, tree, own, fresh := map[int]bool{}, children(all), line(all, os.Getpid()), false
		for _, p := range all {
			if p.dead() || own[p.pid] || !marked(p.pid, markName+"="+mark) {
				continue
			}
			for _, q := range append(below(tree, p.pid), p) {
				if q.dead() || own[q.pid] || seen[q.pid] {
					continue
				}
				seen[q.pid] = true
				list = append(list, q)
				if !stopped[q.key()] {
					stopped[q.key()], fresh = true, true
					_ = q.key().signal(unix.SIGSTOP) // whoever may not be stopped may not be killed, and is told then
				}
			}
		}
		if !fresh {
			break
		}
	}
	return list, nil
}

// line is a process and those above it. A daemon that was started from within a job does not end itself with that.
func line(all map[int]proc, pid int) map[int]bool {
	list := map[int]bool{}
	for ; pid != 0 && !list[pid]; pid = all[pid].parent {
		list[pid] = true
	}
	return list
}
