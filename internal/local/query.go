package local

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"weft.dev/weft/internal/agent"
	"weft.dev/weft/internal/box"
)

// Jobs are those that wait or run, or all there are, of one user or of all, in order of their numbers.
func (b *Box) Jobs(c box.Caller, all bool, user string) []box.Job {
	c = b.caller(c)
	b.mu.Lock()
	defer b.mu.Unlock()
	list := []box.Job{}
	for _, id := range b.order {
		j := b.jobs[id]
		if (all || j.State != box.Done) && (user == "" || j.User == user) {
			list = append(list, b.describe(j, c))
		}
	}
	return list
}

// Job is one job. Others than its user see less of it.
func (b *Box) Job(c box.Caller, id box.ID) (box.Job, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	j := b.jobs[id]
	if j == nil {
		return box.Job{}, box.NoJob(id)
	}
	return b.describe(j, b.caller(c)), nil
}

// describe is what is told of a job. The mutex is held.
func (b *Box) describe(j *job, c box.Caller) box.Job {
	d := j.job(c)
	d.Beside = b.beside(&j.record)
	if j.live != nil {
		d.PID = j.live.pid()
		d.Run += time.Since(j.live.began).Seconds()
		d.Rate, d.Busy, d.TokenWait = j.view.rate, j.view.busy, j.view.tokenWait
		d.Cooperates = j.view.cooperates || j.Cooperate
	}
	if d.Busy == nil {
		if a, ok := b.book.Alone(j.Key); ok && (a.Busy > 0 || a.Idle) {
			d.Busy = &a.Busy
		}
	}
	if j.State == box.Waiting {
		d.Reason = b.reason(j)
	}
	return d
}

// beside are the jobs that share a GPU with one. The mutex is held.
func (b *Box) beside(r *record) []box.ID {
	beside := []box.ID{}
	if !r.State.Live() {
		return beside
	}
	for _, id := range b.order {
		other := b.jobs[id]
		if id != r.ID && other.State.Live() && slices.ContainsFunc(other.On, func(g int) bool { return slices.Contains(r.On, g) }) {
			beside = append(beside, id)
		}
	}
	return beside
}

// residents are the jobs on a GPU. The mutex is held.
func (b *Box) residents(gpu int) []box.ID {
	list := []box.ID{}
	for _, id := range b.order {
		if j := b.jobs[id]; j.State.Live() && slices.Contains(j.On, gpu) {
			list = append(list, id)
		}
	}
	return list
}

// Wait waits until a job is done, or the context is, and returns it as it is then.
func (b *Box) Wait(ctx context.Context, c box.Caller, id box.ID) (box.Job, error) {
	b.mu.Lock()
	j, err := b.own(c, id)
	b.mu.Unlock()
	if err != nil {
		return box.Job{}, err
	}
	select {
	case <-j.ended:
	case <-ctx.Done():
	case <-b.ctx.Done():
	}
	return b.Job(c, id)
}

// Log is where the log of a job is, and whether nothing more comes.
func (b *Box) Log(c box.Caller, id box.ID) (path string, done func() bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	j, err := b.own(c, id)
	if err != nil {
		return "", nil, err
	}
	return filepath.Join(b.dir(id), "log"), func() bool {
		select {
		case <-j.ended:
			return true
		default:
			return false
		}
	}, nil
}

// GPUs are the GPUs of the machine.
func (b *Box) GPUs() []box.GPU {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := make([]box.GPU, len(b.gpus))
	for g := range b.gpus {
		list[g] = b.describeGPU(g)
	}
	return list
}

// describeGPU is what is told of a GPU. The mutex is held.
func (b *Box) describeGPU(g int) box.GPU {
	s := &b.state.gpus[g]
	d := box.GPU{Index: g, UUID: b.gpus[g].UUID.String(), Model: b.gpus[g].Name, Health: "ok", XID: s.xid, Busy: s.busy, Usable: b.gpus[g].Usable,
		Reserved: s.reserved, InUse: s.inUse, Residents: b.residents(g), Token: s.token, Stall: s.stall.lastHour(), Overruns: int(s.overruns.lastHour()), Foreign: []box.Foreign{}}
	d.Foreign = append(d.Foreign, s.foreign...)
	switch {
	case s.xid != nil:
		d.Health, d.Fault = "unhealthy", fmt.Sprintf("XID %d", *s.xid)
	case b.drained[g] && len(d.Residents) > 0:
		d.Health = "draining"
	case b.drained[g]:
		d.Health = "drained"
	}
	return d
}

// Drain keeps new jobs off a GPU and moves those that can be moved, or ends that.
func (b *Box) Drain(c box.Caller, gpu int, on bool) (box.GPU, error) {
	if !b.caller(c).Admin {
		return box.GPU{}, &box.Error{Kind: box.Forbidden, Code: "not_administrator", Message: "only an administrator drains a GPU", Fix: "ask root, or the user whose daemon it is"}
	}
	if gpu < 0 || gpu >= len(b.gpus) {
		return box.GPU{}, &box.Error{Kind: box.NotFound, Code: "no_gpu", Message: fmt.Sprintf("there is no gpu%d", gpu), Why: fmt.Sprintf("this machine has gpu0 to gpu%d", len(b.gpus)-1), Fix: "weft gpus lists them"}
	}
	b.mu.Lock()
	if b.drained[gpu] != on {
		b.drained[gpu] = on
		text := "open again"
		if on {
			text = "no job starts there any more"
		}
		b.note(box.Event{Type: box.EventDrained, GPU: &gpu, Text: text})
	}
	uuids := b.drainedUUIDs()
	b.mu.Unlock()
	b.plan()
	if err := b.store.write(metaChange(metaDrained, uuids)); err != nil {
		return box.GPU{}, &box.Error{Kind: box.Trouble, Code: "not_durable", Message: err.Error()}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.describeGPU(gpu), nil
}

// drainedUUIDs names the GPUs that are drained. The mutex is held.
func (b *Box) drainedUUIDs() []string {
	uuids := []string{}
	for g := range b.gpus {
		if b.drained[g] {
			uuids = append(uuids, b.gpus[g].UUID.String())
		}
	}
	return uuids
}

// Status is the machine in a few words.
func (b *Box) Status() box.Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := box.Status{Schema: 1, Host: b.host, Version: b.o.Version, PID: pid, State: b.o.State, Page: b.o.Page, Emulated: b.o.Emulated, Since: b.begun, GPUs: len(b.gpus), Degraded: b.trouble()}
	for _, id := range b.order {
		switch j := b.jobs[id]; {
		case j.State == box.Waiting:
			s.Waiting++
		case j.State.Live():
			s.Running++
			s.Workers += len(j.On)
			if j.view.below {
				s.BelowFloor++
			}
		}
	}
	for g := range b.gpus {
		if len(b.residents(g)) > 0 {
			s.InUse++
		}
	}
	return s
}

// trouble is what is wrong, a line each. The mutex is held.
func (b *Box) trouble() []string {
	lines := []string{}
	for g := range b.gpus {
		if xid := b.state.gpus[g].xid; xid != nil {
			lines = append(lines, fmt.Sprintf("gpu%d XID %d", g, *xid))
		}
	}
	var others []string
	for _, text := range b.degraded {
		others = append(others, text)
	}
	slices.Sort(others)
	return append(lines, others...)
}

// AgentMetrics is the agent's own figures, as text for Prometheus.
func (b *Box) AgentMetrics() (string, error) {
	answer, err := b.agent.Ask(b.ctx, agent.Request{Op: agent.OpMetrics})
	return answer.Metrics, err
}
