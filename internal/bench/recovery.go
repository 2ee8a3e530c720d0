package bench

import (
	"context"
	"errors"
	"syscall"
	"time"
)

// HolderKill is how long a waiting job waits on after the holder of the token was killed, in ms: the longest of several
// tries. The holder is a guaranteed job without gaps, so that the waiter, a besteffort one, gets next to nothing before.
func HolderKill(ctx context.Context, b *Bed, tries int) (float64, error) {
	return worstOf(tries, func() (float64, error) { return b.lose(ctx, "guaranteed", "besteffort", syscall.SIGKILL) })
}

// HolderStop is how long a job of a class waits beside a holder of another (or the same) that is stopped and so neither
// ends nor answers, in ms: the longest of several tries.
func HolderStop(ctx context.Context, b *Bed, holder, waiter string, tries int) (float64, error) {
	return worstOf(tries, func() (float64, error) { return b.lose(ctx, holder, waiter, syscall.SIGSTOP) })
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

// lose sends a signal to a saturated holder beside a waiter that launches without pause, and returns the time until the
// waiter's next launch, in ms.
func (b *Bed) lose(ctx context.Context, holder, waiter string, signal syscall.Signal) (float64, error) {
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
	if err != nil {
		return 0, err
	}
	for _, stamp := range s.Stamps {
		if launched := stamp[1]; launched >= at {
			return float64(launched-at) / 1e6, nil
		}
	}
	return 0, errors.New("the waiter launched nothing after the holder was lost")
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
