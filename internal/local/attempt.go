package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	"weft.dev/weft/internal/agent"
	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/shepherd"
)

// attempt is a program that runs for a job.
type attempt struct {
	process *shepherd.Process
	began   time.Time // with the monotonic clock
	target  []int     // GPUs that it moves to once it has written its checkpoint
	asked   bool      // the shepherd was told to stop it
}

func (a *attempt) pid() int {
	if a.process == nil {
		return 0
	}
	return a.process.PID()
}

func (a *attempt) close() error {
	if a.process == nil {
		return nil
	}
	return a.process.Close()
}

// classOf is a class as the core names it.
func classOf(c box.Class) cluster.Class { return cluster.Class(c) }

// start takes GPUs for a job that waits and lets its own goroutine do the rest. The mutex is held.
func (b *Box) start(j *job, gpus []int) {
	j.State, j.On, j.Attempt, j.Alloc = box.Starting, gpus, j.Attempt+1, 0
	j.Operation = b.placed(j, gpus)
	b.predictOn(gpus)
	j.view = view{}
	b.fresh = append(b.fresh, j.ID)
	b.note(box.Event{Type: box.EventPlaced, Job: j.ID, GPU: &gpus[0], Text: b.placedText(j)})
	b.figures.Operations[box.OperationKey{Verb: j.Operation.Verb, Outcome: "ok"}]++
	r := j.record
	b.workers.Go(func() { b.run(j, r) })
}

// placed is the operation that brings a job to GPUs.
func (b *Box) placed(j *job, gpus []int) *box.Operation {
	verb := box.Placed
	if j.Attempt > 1 {
		verb = box.Resumed
		if j.Operation != nil && j.Operation.Verb == box.Moved {
			return j.Operation // it was said when it was decided
		}
	}
	return &box.Operation{Verb: verb, Time: time.Now().UTC(), To: gpus, Text: "on " + gpuNames(gpus)}
}

// placedText is where a job is and what is expected of that. The mutex is held.
func (b *Box) placedText(j *job) string {
	text := "on " + gpuNames(j.On)
	if beside := b.beside(&j.record); len(beside) > 0 && j.Predicted != nil {
		text += fmt.Sprintf(" beside %s: %v reserved, predicted %s, floor %s", idNames(beside), j.reserved(), percent(j.Predicted.Rate), percent(j.Floor))
	}
	return text
}

// predictOn says anew what is expected of the jobs on GPUs that one came to or left. The mutex is held.
func (b *Box) predictOn(gpus []int) {
	for _, g := range gpus {
		for _, id := range b.residents(g) {
			b.jobs[id].Predicted = b.predict(b.jobs[id])
		}
	}
}

// predict is what is expected of a job where it is. The mutex is held.
func (b *Box) predict(j *job) *box.Prediction {
	p := &box.Prediction{Rate: 1, Low: 1, High: 1, Basis: "alone"}
	for _, g := range j.On { // a gang runs at its slowest worker
		var others []box.ID
		for _, id := range b.residents(g) {
			if id != j.ID {
				others = append(others, id)
			}
		}
		mean, low, high, basis := b.book.Predict(j.kind(), b.kindsOf(others))
		if low < p.Low || mean < p.Rate {
			p = &box.Prediction{Rate: mean, Low: low, High: high, Basis: basis}
		}
	}
	return p
}

// run starts a job's program and sees it to its end. r is its record as it was placed.
func (b *Box) run(j *job, r record) {
	if err := b.persist(j); err != nil { // what is not known to be placed must not run
		b.unstart(j, err)
		return
	}
	b.o.Faults("placed")
	process, alloc, err := b.launch(j, &r)
	if err != nil {
		b.unstart(j, err)
		return
	}
	b.o.Faults("launched")
	b.mu.Lock()
	j.live = &attempt{process: process, began: time.Now()}
	j.Alloc = alloc
	if j.State == box.Starting {
		j.State = box.Running
	}
	first := j.Started == nil
	if now := time.Now().UTC(); first {
		j.Started = &now
		wait := b.figures.QueueWait[j.Class]
		wait.Observe(max(0, now.Sub(j.Submitted).Seconds()))
		b.figures.QueueWait[j.Class] = wait
	}
	event := box.EventStarted
	if !first {
		event = box.EventResumed
	}
	b.note(box.Event{Type: event, Job: j.ID, Text: fmt.Sprintf("pid %d on %s", process.PID(), gpuNames(j.On))})
	asked := j.StopAsked
	b.mu.Unlock()
	b.keep(j)
	if asked {
		b.ask(j, shepherd.Stopped)
	}
	b.watch(j)
}

// launch allocates and starts. The program runs, or there is an error and nothing is left.
func (b *Box) launch(j *job, r *record) (*shepherd.Process, uint64, error) {
	answer, err := b.allocate(j, r)
	if err != nil {
		return nil, 0, err
	}
	b.o.Faults("allocated")
	task, err := b.task(r, answer.Dir)
	if err != nil {
		return nil, 0, errors.Join(err, b.free(answer.ID))
	}
	b.mu.Lock()
	stdin := j.stdin
	j.stdin = nil
	b.mu.Unlock()
	copied := *r
	copied.Alloc = answer.ID
	j.writing.Lock() // who stops it meanwhile writes the same file
	err = b.copyRecord(&copied)
	j.writing.Unlock()
	if err != nil { // the next daemon would not know whose the allocation is
		return nil, 0, errors.Join(err, b.free(answer.ID))
	}
	process, err := shepherd.Start(b.o.Executable, b.dir(r.ID), task, stdin)
	if stdin != nil {
		_ = stdin.Close() // the program has its own
	}
	if err != nil {
		return nil, 0, errors.Join(err, b.free(answer.ID))
	}
	return process, answer.ID, nil
}

// allocate waits until the agent has what a job is always to have. Stop ends the wait.
func (b *Box) allocate(j *job, r *record) (agent.Response, error) {
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	b.mu.Lock()
	j.giveUp = cancel
	stopped := j.StopAsked
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		j.giveUp = nil
		b.mu.Unlock()
	}()
	if stopped {
		return agent.Response{}, context.Canceled
	}
	return b.agent.Ask(ctx, agent.Request{Op: agent.OpAllocate, Spec: b.allocation(r)})
}

// allocation is what a job has at the agent.
func (b *Box) allocation(r *record) *agent.Spec {
	s := &agent.Spec{Name: r.Name, Reserved: r.reserved(), Peak: r.PeakBytes - r.reserved(), Cooperates: r.Cooperate, UID: r.UID}
	for _, g := range r.On {
		s.GPUs = append(s.GPUs, b.gpus[g].UUID.String())
	}
	s.Class, _ = agent.ParseClass(r.Class.String()) // both have the same three
	return s
}

// free gives an allocation back.
func (b *Box) free(alloc uint64) error {
	if alloc == 0 {
		return nil
	}
	answer, err := b.agent.Ask(b.ctx, agent.Request{Op: agent.OpRelease, ID: alloc})
	if answer.Error != nil && answer.Error.Code == "not_found" {
		return nil // the agent saw its processes end
	}
	return err
}

// ruled are variables of GPUs that scripts and shells leave behind: a job sees the GPUs that it was given, in their order.
var ruled = []string{"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"}

// task is what the shepherd is to run.
func (b *Box) task(r *record, allocation string) (shepherd.Task, error) {
	var own []string
	for _, v := range r.Env {
		name, _, _ := strings.Cut(v, "=")
		if !contains(ruled, name) && !strings.HasPrefix(name, "WEFT_ARRAY_") && name != "WEFT_RESUMED" {
			own = append(own, v)
		}
	}
	environment, err := agent.Environment(own, b.o.Libraries, allocation)
	if err != nil {
		return shepherd.Task{}, err
	}
	if r.Array != nil {
		environment = append(environment, "WEFT_ARRAY_INDEX="+strconv.Itoa(r.Index), "WEFT_ARRAY_ID="+r.First.String())
	}
	if r.Started != nil { // an attempt that never began is none
		environment = append(environment, "WEFT_RESUMED=1")
	}
	t := shepherd.Task{ID: r.ID, Attempt: r.Attempt, Path: r.Path, Command: r.Command, Dir: r.Dir, Env: environment, UID: r.UID, GID: r.GID,
		Groups: groupsOf(r.UID), Grace: b.o.Grace, LogLimit: b.o.LogLimit}
	if r.MaxTime > 0 {
		t.MaxTime = max(time.Second, r.MaxTime-r.Ran)
	}
	return t, nil
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// groupsOf are the supplementary groups of a user.
func groupsOf(uid int) []int {
	u, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return nil // a number without a name is in none
	}
	names, err := u.GroupIds()
	if err != nil {
		return nil
	}
	var groups []int
	for _, name := range names {
		if gid, err := strconv.Atoi(name); err == nil {
			groups = append(groups, gid)
		}
	}
	return groups
}

// unstart takes back a start that could not be: the job waits, and is tried again a little later.
func (b *Box) unstart(j *job, err error) {
	if b.ctx.Err() != nil {
		return // the next daemon finds out what became of it
	}
	revoked, fault := shepherd.Revoke(b.dir(j.ID), j.Attempt)
	if fault != nil || !revoked {
		b.o.Log.Error("an attempt cannot be revoked", "job", j.ID, "fault", fault)
	}
	b.mu.Lock()
	if text := err.Error(); !j.StopAsked && j.trouble != text {
		j.trouble = text
		b.note(box.Event{Type: box.EventTrouble, Job: j.ID, Text: "it cannot be started: " + text})
	}
	j.held = time.Now().Add(retryAfter)
	b.unbegun(j)
	b.mu.Unlock()
	b.keep(j)
	time.AfterFunc(retryAfter, b.plan)
}

// retryAfter is how long a job waits that could not be started through a fault of weft's own.
const retryAfter = time.Second

// persist makes a job's record durable as it is now. Two that persist one job do so in turn, so that the newer state stays.
func (b *Box) persist(j *job) error {
	j.writing.Lock()
	defer j.writing.Unlock()
	b.mu.Lock()
	r, gone := j.record, j.gone
	b.mu.Unlock()
	if gone {
		return nil
	}
	if err := b.store.write(jobChange(&r)); err != nil {
		return err
	}
	return b.copyRecord(&r)
}

// keep makes a job's record durable, now or as soon as that is possible.
func (b *Box) keep(j *job) {
	err := b.persist(j)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		b.unsaved[j.ID] = true
		b.degraded["disk"] = fmt.Sprintf("%v: what runs goes on", err)
		return
	}
	delete(b.unsaved, j.ID)
	if len(b.unsaved) == 0 {
		delete(b.degraded, "disk")
	}
}

// watch sees a program to its end.
func (b *Box) watch(j *job) {
	b.mu.Lock()
	process := j.live.process
	b.mu.Unlock()
	select {
	case <-b.ctx.Done():
		return // the next daemon watches
	case <-process.Done():
	}
	exit, err := process.Exit()
	_ = process.Close() // it has ended
	if err != nil {
		exit = shepherd.Exit{Status: 128 + 9, Cause: shepherd.Lost, Fault: err.Error(), Ended: time.Now()}
	}
	b.o.Faults("ended")
	b.settleExit(j, exit)
}

// Stop ends a job: one that waits is cancelled, one that runs is asked to end, and killed after the grace.
func (b *Box) Stop(c box.Caller, id box.ID) (box.Job, error) {
	b.mu.Lock()
	j, err := b.own(c, id)
	if err != nil {
		b.mu.Unlock()
		return box.Job{}, err
	}
	running := j.live != nil
	if j.State != box.Done && !j.StopAsked {
		j.StopAsked = true
		switch j.State {
		case box.Waiting:
			b.finish(j, ending{outcome: box.Cancelled, fault: "it was stopped before it began", at: time.Now()})
		case box.Starting:
			if j.giveUp != nil {
				j.giveUp()
			}
		case box.Running:
			j.State = box.Stopping
		}
	}
	stopping := running && j.State != box.Done
	b.touch()
	b.mu.Unlock()
	b.keep(j)
	if stopping {
		b.ask(j, shepherd.Stopped)
	}
	b.plan()
	return b.Job(c, id)
}

// ask lets the shepherd stop a program.
func (b *Box) ask(j *job, cause string) {
	b.mu.Lock()
	live := j.live
	b.mu.Unlock()
	if live == nil || live.process == nil {
		return
	}
	if err := live.process.Stop(cause); err != nil && !errors.Is(err, os.ErrProcessDone) && !errors.Is(err, context.Canceled) {
		b.mu.Lock()
		b.note(box.Event{Type: box.EventTrouble, Job: j.ID, Text: "it cannot be stopped: " + err.Error()})
		b.mu.Unlock()
	}
}

func gpuNames(gpus []int) string {
	names := make([]string, len(gpus))
	for i, g := range gpus {
		names[i] = "gpu" + strconv.Itoa(g)
	}
	return strings.Join(names, ",")
}

func idNames(ids []box.ID) string {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = id.String()
	}
	return strings.Join(names, ",")
}
