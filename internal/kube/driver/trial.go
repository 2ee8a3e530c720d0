package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"weft.dev/weft/internal/agent"
	"weft.dev/weft/internal/unit"
)

// A GPU with an XID counts as well again once a program that began later has computed. Its taint keeps all programs off it, so the
// driver runs one of its own there from time to time.

// trialMemory is what the trial program may use; a context alone takes about half.
const trialMemory = 512 * unit.MiB

// trialTime bounds a trial: on a GPU that is not well a program may hang.
const trialTime = 20 * time.Second

// tryGPUs tries the GPUs that have an XID and answer.
func (d *Driver) tryGPUs(ctx context.Context) {
	answer, err := d.claims.agent.Ask(ctx, agent.Request{Op: agent.OpGPUs})
	if err != nil {
		return // the agent ends, and the driver with it
	}
	for i := range answer.GPUs {
		if g := &answer.GPUs[i]; g.XID != nil && g.Blind == "" {
			if err := d.try(ctx, g.UUID); err != nil && ctx.Err() == nil {
				d.log.Warn("a trial program does not compute", "gpu", i, "fault", err)
			}
		}
	}
}

// try computes on a GPU for a moment, as a job of the agent of the lowest class. Where it succeeds, the agent notes that by itself.
func (d *Driver) try(ctx context.Context, uuid string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, trialTime)
	defer cancel()
	class, err := agent.ParseClass("besteffort")
	if err != nil {
		return err
	}
	answer, err := d.claims.agent.Ask(ctx, agent.Request{Op: agent.OpAllocate, Spec: &agent.Spec{Name: "weft-trial", GPUs: []string{uuid}, Class: class, Reserved: trialMemory, UID: os.Geteuid()}})
	if err != nil {
		return err
	}
	defer func() {
		_, released := d.claims.agent.Ask(context.WithoutCancel(ctx), agent.Request{Op: agent.OpRelease, ID: answer.ID})
		err = errors.Join(err, released)
	}()
	own := []string{}
	if d.claims.kit.emulated != "" {
		own = append(own, "LD_LIBRARY_PATH="+d.claims.kit.emulated)
	}
	environment, err := agent.Environment(own, filepath.Dir(d.claims.kit.library), answer.Dir)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(d.o.Libraries, "weft-probe"), "load", "--iterations", "3", "--seconds", "5", "--gap-ms", "1")
	cmd.Env = environment
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}
