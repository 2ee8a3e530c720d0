package policy

import (
	"time"

	"weft.dev/weft/internal/unit"
)

// credit is how far a running job is ahead of its floor: the time it could stand still now and still have run, since it
// started, at its floor on average. A job at rate r for a time t gains t(r/floor - 1).
type credit struct {
	floor float64
	rate  float64
	since unit.Time // rate holds since
	saved time.Duration
}

// at is the credit at an instant not before the last change. A floor of next to nothing makes it as large as can be.
func (c *credit) at(now unit.Time) time.Duration {
	gained := unit.Duration(now.Sub(c.since).Seconds() * (c.rate/c.floor - 1))
	return time.Duration(unit.Time(c.saved).Add(gained))
}

// set takes a new rate from now on.
func (c *credit) set(now unit.Time, rate float64) {
	c.saved, c.since, c.rate = c.at(now), now, rate
}

// spend stands still for a pause that begins now.
func (c *credit) spend(now unit.Time, pause time.Duration) {
	c.saved = c.at(now) - pause
	c.since = now.Add(pause)
}
