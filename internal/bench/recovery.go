package bench

import (
	"context"
	"errors"
	"syscall"
	"time"
)

// HolderKill is how long a waiting job waits on after the holder of the token was killed, in ms: the longest of several
// tries. The holder is a guaranteed job without gaps, so that the waiter, a besteffort one, gets nothing before.
func HolderKill(ctx context.Context, b *Bed, tries int) (float64, error) {
	return worstOf(tries, func() (float64, error) {
		return b.lose(ctx, "guaranteed", "besteffort", syscall.SIGKILL, func(s Sample, at int64) (float64, error) {
			if s.Stamps[0][0] < at {
				return 0, errors.New("the waiter launched before the holder's end: the holder did not hold")
			}
			return float64(s.Stamps[0][0]-at) / 1e6, nil
		})
	})
}

// HolderStop is how long a job of a class waits beside a holder of another (or the same) that is stopped and so neither
// ends nor answers, in ms: the longest of several tries.
func HolderStop(ctx context.Context, b *Bed, holder, waiter string, tries int) (float64, error) {
	return worstOf(tries, func() (float64, error) {
		return b.lose(ctx, holder, waiter, syscall.SIGSTOP, func(s Sample, at int64) (float64, error) {
			for _, stamp := range s.Stamps {
				if stamp[1] >= at {
					return float64(stamp[1]-max(at, stamp[0])) / 1e6, nil
				}
			}
			return 0, errors.New("the waiter launched nothing after the holder stopped")
		})
	})
}

func worstOf(tries int, try func() (float64, error)) (float64, error) {
	worst := 0.0
	for range tries {
		ms, err := try()
		if err != nil {
			return 0, err
		}
		worst = max(worst, ms)
	}
	return worst, nil
}

// lose sends a signal to a saturated holder beside a waiter and reads from the waiter's launches what came of it.
func (b *Bed) lose(ctx context.Context, holder, waiter string, signal syscall.Signal, read func(Sample, int64) (float64, error)) (float64, error) {
	h := b.Command(ctx, &Job{Name: "holder", Class: holder}, "weft-probe", saturated(lowKernel, time.Minute)...)
	if err := h.Start(); err != nil {
		return 0, err
	}
	defer h.kill()
	if err := sleep(ctx, startDelay); err != nil {
		return 0, err
	}
	w := b.Command(ctx, &Job{Name: "waiter", Class: waiter}, "weft-probe", "ping", "--gap-ms", "0", "--kernel-us", "10",
		"--seconds", "1", "--stamps")
	if err := w.Start(); err != nil {
		return 0, err
	}
	if err := sleep(ctx, startDelay); err != nil {
		return 0, err
	}
	at := Monotonic()
	if err := h.Signal(signal); err != nil {
		return 0, err
	}
	s, err := w.Sample()
	switch {
	case err != nil:
		return 0, err
	case len(s.Stamps) == 0:
		return 0, errors.New("the waiter launched nothing")
	}
	return read(s, at)
}

// sleep waits unless the context ends first.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
