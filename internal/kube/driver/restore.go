package driver

import (
	"context"
	"fmt"
	"time"

	"weft.dev/weft/internal/kube/driver/checkpoint"
)

// prompt bounds the wait for memory where nobody waits for an answer.
const prompt = 5 * time.Second

// restore makes true what the checkpoint says, once before the kubelet may ask: what was prepared has its CDI file and its
// allocation again, also after a reboot, which empties both folders; what was only begun is taken back, as the kubelet asks for it
// anew; and what no entry knows is removed. Trouble with a claim is of that claim alone.
func (c *claims) restore(ctx context.Context, trouble func(claim string, err error)) error {
	if err := c.removeStrays(ctx); err != nil {
		return err
	}
	for uid, b := range c.store.Bad() {
		trouble(uid, fmt.Errorf("its checkpoint entry is unreadable: %w; what runs goes on, and the entry is replaced when its Pod ends or starts anew", b.Fault))
	}
	for uid, e := range c.store.Entries() {
		if err := c.restoreEntry(ctx, e); err != nil {
			trouble(uid, err)
		}
	}
	return nil
}

func (c *claims) restoreEntry(ctx context.Context, e checkpoint.Entry) error {
	if e.State == checkpoint.Started {
		return c.unprepare(ctx, e.Portion.Claim.UID)
	}
	ctx, cancel := context.WithTimeout(ctx, prompt+margin)
	defer cancel()
	done, err := c.turns.take(ctx, e.Portion.Claim.UID)
	if err != nil {
		return err
	}
	defer done()
	if now, known := c.store.Entry(e.Portion.Claim.UID); !known || !now.Portion.Equal(&e.Portion) {
		return nil // it was taken back meanwhile
	}
	return c.ensure(ctx, &e.Portion)
}

// removeStrays removes allocations and CDI files of claims that have no entry. Allocations that are of no claim are not the
// driver's.
func (c *claims) removeStrays(ctx context.Context) error {
	entries, bad := c.store.Entries(), c.store.Bad()
	known := func(uid string) bool {
		_, is := entries[uid]
		_, was := bad[uid]
		return is || was
	}
	jobs, err := c.jobs(ctx)
	if err != nil {
		return err
	}
	for _, j := range jobs {
		if uid := claimOf(j); uid != "" && !known(uid) {
			if err := c.release(ctx, j); err != nil {
				return err
			}
		}
	}
	files, err := c.folder.Claims()
	if err != nil {
		return fmt.Errorf("list the CDI files: %w", err)
	}
	for _, uid := range files {
		if !known(uid) {
			if err := c.folder.Remove(uid); err != nil {
				return fmt.Errorf("remove a CDI file: %w", err)
			}
		}
	}
	return nil
}

// sweeper takes back claims that the API server does not have any more and whose Pods the kubelet forgot.
type sweeper struct {
	claims *claims
	exists func(ctx context.Context, e *checkpoint.Entry) (bool, error)
	ended  map[string]bool // claims that were found gone and without a process the last time
}

// sweep looks once at all entries. A claim goes the second time that it is found gone without a process: a container may be about to
// start its first one.
func (s *sweeper) sweep(ctx context.Context, trouble func(claim string, err error)) {
	jobs, err := s.claims.jobs(ctx)
	if err != nil {
		trouble("", err)
		return
	}
	running := map[string]bool{}
	for _, j := range jobs {
		running[claimOf(j)] = running[claimOf(j)] || len(pidsOf(j)) > 0
	}
	before := s.ended
	s.ended = map[string]bool{}
	for uid, e := range s.claims.store.Entries() {
		if e.State != checkpoint.Completed {
			continue
		}
		if err := s.look(ctx, uid, &e, !running[uid], before[uid]); err != nil {
			trouble(uid, err)
		}
	}
}

// look decides what becomes of an entry. Of a claim that has processes nothing is asked: it stays, whatever the answer.
func (s *sweeper) look(ctx context.Context, uid string, e *checkpoint.Entry, idle, before bool) error {
	exists := !idle
	if idle {
		var err error
		if exists, err = s.exists(ctx, e); err != nil {
			return err
		}
	}
	switch {
	case exists:
		return s.claims.restoreEntry(ctx, *e) // somebody may have emptied the folder
	case !before:
		s.ended[uid] = true
		return nil
	}
	return s.claims.unprepare(ctx, uid)
}
