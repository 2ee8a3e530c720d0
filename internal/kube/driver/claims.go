package driver

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"

	"weft.dev/weft/internal/agent"
	"weft.dev/weft/internal/device"
	"weft.dev/weft/internal/kube/driver/cdi"
	"weft.dev/weft/internal/kube/driver/checkpoint"
	"weft.dev/weft/internal/kube/driver/portion"
)

// asker is the agent of this machine.
type asker interface {
	Ask(ctx context.Context, r agent.Request) (agent.Response, error)
}

// claims prepares claims and takes them back. A claim that is prepared has an allocation at the agent, a CDI file and an entry in
// the checkpoint. They are made in the order entry (started), allocation, file, entry (completed): a crash anywhere leaves at least
// the entry, by which the rest is found.
type claims struct {
	node     string
	gpus     []device.GPU
	agent    asker
	folder   cdi.Folder
	store    *checkpoint.Store
	kit      *kit
	patience time.Duration // for memory that is still held
	faults   func(point string)
	turns    turns
}

// prepare makes a claim ready for its containers. It may be called again at any time, and does then what is still to be done.
// allowed is asked before anything new is made.
func (c *claims) prepare(ctx context.Context, claim *resourcev1.ResourceClaim, allowed func() error) (*portion.Portion, error) {
	p, err := portion.Of(claim, c.node, c.gpus)
	if err != nil {
		return nil, err
	}
	done, err := c.turns.take(ctx, p.Claim.UID)
	if err != nil {
		return nil, err
	}
	defer done()
	e, known := c.store.Entry(p.Claim.UID)
	if known && e.State == checkpoint.Completed && e.Portion.Equal(p) {
		return p, c.ensure(ctx, p)
	}
	if err := c.undo(ctx, p.Claim.UID); err != nil {
		return nil, err
	}
	if err := allowed(); err != nil {
		return nil, err
	}
	if err := c.make(ctx, p); err != nil {
		return nil, errors.Join(err, c.undo(context.WithoutCancel(ctx), p.Claim.UID))
	}
	return p, nil
}

// make prepares a claim of which nothing is there.
func (c *claims) make(ctx context.Context, p *portion.Portion) error {
	if err := c.store.Put(checkpoint.Entry{State: checkpoint.Started, Portion: *p}); err != nil {
		return err
	}
	c.faults("started")
	if err := c.ensure(ctx, p); err != nil {
		return err
	}
	if err := c.store.Put(checkpoint.Entry{State: checkpoint.Completed, Portion: *p}); err != nil {
		return err
	}
	c.faults("completed")
	return nil
}

// ensure makes what is missing of the allocation and the CDI file of a claim.
func (c *claims) ensure(ctx context.Context, p *portion.Portion) error {
	socket, err := c.allocation(ctx, p)
	if err != nil {
		return err
	}
	c.faults("allocated")
	folder := filepath.Dir(socket)
	env, err := agent.Variables(folder)
	if err != nil {
		return fmt.Errorf("what processes of the claim need: %w", err)
	}
	if err := c.folder.Write(c.kit.spec(p, folder, env)); err != nil {
		return fmt.Errorf("write the CDI file: %w", err)
	}
	c.faults("written")
	return nil
}

// allocation is the socket of the claim's allocation: the one that is there, or a new one.
func (c *claims) allocation(ctx context.Context, p *portion.Portion) (string, error) {
	jobs, err := c.jobs(ctx)
	if err != nil {
		return "", err
	}
	for _, j := range jobs {
		if claimOf(j) == p.Claim.UID {
			return j.Socket, nil
		}
	}
	answer, err := c.allocate(ctx, p)
	return answer.Socket, err
}

// margin is what remains of the kubelet's deadline for an answer.
const margin = 3 * time.Second

// retry is how often the agent is asked whether memory has become free.
const retry = 200 * time.Millisecond

// allocate waits for memory that another container holds: one whose Pod was deleted by force frees its claim before it ends.
func (c *claims) allocate(ctx context.Context, p *portion.Portion) (agent.Response, error) {
	until := time.Now().Add(c.patience)
	if d, ok := ctx.Deadline(); ok && d.Add(-margin).Before(until) {
		until = d.Add(-margin)
	}
	wait, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	for {
		answer, err := c.agent.Ask(wait, agent.Request{Op: agent.OpAllocate, Spec: specOf(p)})
		var refused *agent.RefusalError
		held := errors.As(err, &refused) && refused.Code == agent.RefusedMemory
		if err == nil || !held && wait.Err() == nil {
			return answer, err
		}
		select {
		case <-time.After(retry):
		case <-wait.Done():
			return answer, c.stillHeld(context.WithoutCancel(ctx), p, err)
		}
	}
}

// stillHeld says who holds the memory that a claim waited for.
func (c *claims) stillHeld(ctx context.Context, p *portion.Portion, cause error) error {
	jobs, err := c.jobs(ctx)
	if err != nil {
		return errors.Join(cause, err)
	}
	var holders []string
	for _, j := range jobs {
		if claimOf(j) == p.Claim.UID || !slices.ContainsFunc(j.GPUs, func(i int) bool { return slices.Contains(p.UUIDs(""), c.gpus[i].UUID.String()) }) {
			continue
		}
		text := j.Name
		if pids := pidsOf(j); len(pids) > 0 {
			text += fmt.Sprintf(" (pids %s)", strings.Trim(fmt.Sprint(pids), "[]"))
		}
		holders = append(holders, text)
	}
	if len(holders) == 0 {
		return fmt.Errorf("no allocation in time: %w", cause)
	}
	return fmt.Errorf("its memory is still held by %s, and free once those containers have ended: %w", strings.Join(holders, ", "), cause)
}

// unprepare takes a claim back. One that is unknown is taken back already.
func (c *claims) unprepare(ctx context.Context, claim string) error {
	done, err := c.turns.take(ctx, claim)
	if err != nil {
		return err
	}
	defer done()
	return c.undo(ctx, claim)
}

// undo removes all of a claim, and the entry last.
func (c *claims) undo(ctx context.Context, claim string) error {
	jobs, err := c.jobs(ctx)
	if err != nil {
		return err
	}
	for _, j := range jobs {
		if claimOf(j) == claim {
			if err := c.release(ctx, j); err != nil {
				return err
			}
		}
	}
	c.faults("released")
	if err := c.folder.Remove(claim); err != nil {
		return fmt.Errorf("remove the CDI file: %w", err)
	}
	c.faults("removed")
	_, known := c.store.Entry(claim)
	if _, bad := c.store.Bad()[claim]; !known && !bad {
		return nil
	}
	return c.store.Remove(claim)
}

// release gives an allocation back; it may have ended.
func (c *claims) release(ctx context.Context, j agent.Job) error {
	answer, err := c.agent.Ask(ctx, agent.Request{Op: agent.OpRelease, ID: j.ID})
	if answer.Error != nil && answer.Error.Code == "not_found" {
		return nil
	}
	return err
}

func (c *claims) jobs(ctx context.Context) ([]agent.Job, error) {
	answer, err := c.agent.Ask(ctx, agent.Request{Op: agent.OpList})
	return answer.Jobs, err
}

// claimOf is the claim that an allocation is of; "" for one that is of none.
func claimOf(j agent.Job) string {
	if j.Container == nil {
		return ""
	}
	return j.Container.Claim
}

// pidsOf are the processes of a job on its GPUs, with and without weft's library.
func pidsOf(j agent.Job) []int {
	list := slices.Clone(j.PIDs)
	for _, e := range j.Escaped {
		list = append(list, e.PID)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// specOf is what a claim is allocated at the agent. Whole GPUs are allocated, too: who has them next waits for their last process.
func specOf(p *portion.Portion) *agent.Spec {
	s := &agent.Spec{Name: p.JobName(), GPUs: p.UUIDs(""), Container: &agent.Container{
		Namespace: p.Claim.Namespace, Pod: p.Pod.Name, PodUID: p.Pod.UID, Name: p.Container, Claim: p.Claim.UID}}
	if p.Share == nil {
		s.Whole = true
		return s
	}
	s.Class, _ = agent.ParseClass(p.Share.Class) // it was checked
	s.Weight, s.Reserved, s.Peak, s.Cooperates = p.Share.Weight, p.Share.Reserved, p.Share.Peak-p.Share.Reserved, p.Share.Cooperates
	return s
}
