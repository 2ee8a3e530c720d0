package agent

import (
	"fmt"
	"testing"

	"weft.dev/weft/internal/bench"
	"weft.dev/weft/test/suite"
)

// most is how long the next grant may take after a holder is lost, in ms.
const most = 100

func TestHolderKilled(t *testing.T) {
	suite.Timed(t)
	b := bed(t, 1)
	attempt(t, func() error {
		ms, err := bench.HolderKill(soon(t), b, 5)
		if err != nil {
			return err
		}
		t.Logf("the waiter launched %.1f ms after the kill, at worst of 5", ms)
		if ms > most {
			return fmt.Errorf("the waiter launched %.1f ms after the kill, above %d", ms, most)
		}
		return nil
	})
	held(t, b)
}

func TestHolderStopped(t *testing.T) {
	suite.Timed(t)
	for _, c := range []struct{ holder, waiter string }{
		{"burstable", "burstable"}, {"besteffort", "guaranteed"}, {"guaranteed", "besteffort"},
	} {
		b := bed(t, 1)
		attempt(t, func() error {
			ms, err := bench.HolderStop(soon(t), b, c.holder, c.waiter, 3)
			if err != nil {
				return fmt.Errorf("%s beside a stopped %s: %w", c.waiter, c.holder, err)
			}
			t.Logf("a %s waiter launched %.1f ms after a %s holder stopped, at worst of 3", c.waiter, ms, c.holder)
			if ms > most {
				return fmt.Errorf("a %s waiter launched %.1f ms after a %s holder stopped, above %d", c.waiter, ms, c.holder, most)
			}
			return nil
		})
	}
}
