package shepherd

import (
	"time"

	"golang.org/x/sys/unix"
)

// tick is the unit in which /proc tells when a process began (USER_HZ, which is 100 on all that Linux runs on today).
const tick = 10 * time.Millisecond

// Age is how long ago the attempt's shepherd began, by a clock that nobody sets; 0 where that cannot be known.
func (p *Process) Age() time.Duration {
	var now unix.Timespec
	if p.claim.Start == 0 || unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return 0
	}
	return max(0, time.Duration(now.Nano())-time.Duration(p.claim.Start)*tick)
}
