package emugpu

import (
	"math"
	"math/bits"
	"time"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/unit"
)

// Clock is how model time passes.
type Clock int

// The clocks.
const (
	Real    Clock = iota // with the wall clock, times the scale
	Virtual              // jumps to the next end once every thread waits
)

// scaleUnit is the denominator of scales: they have three decimals.
const scaleUnit = 1000

// clock keeps model time and shows it to drivers.
type clock struct {
	page  *page
	mode  Clock
	base  uint64
	scale uint64 // in thousandths
}

func newClock(mode Clock, scale float64, gpus int) (*clock, error) {
	p, err := newPage("weft-emu-clock", clockSize)
	if err != nil {
		return nil, err
	}
	c := &clock{page: p, mode: mode, base: monotonic(), scale: uint64(math.Round(scale * scaleUnit))}
	p.u32(4).Store(wireProtocol)
	p.u32(clockMode).Store(uint32(mode))
	p.u32(clockGPUs).Store(uint32(gpus))
	p.u64(clockBase).Store(c.base)
	p.u64(clockNum).Store(c.scale)
	p.u64(clockDen).Store(scaleUnit)
	if err := p.keepReading(); err != nil {
		p.close()
		return nil, err
	}
	return c, nil
}

func monotonic() uint64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return uint64(t.Nano())
}

// now is the model time.
func (c *clock) now() unit.Time {
	if c.mode == Virtual {
		return unit.Time(c.page.u64(clockNow).Load())
	}
	high, low := bits.Mul64(monotonic()-c.base, c.scale)
	quotient, _ := bits.Div64(high%scaleUnit, low, scaleUnit)
	return unit.Time(quotient)
}

// jump sets virtual time.
func (c *clock) jump(to unit.Time) { c.page.u64(clockNow).Store(uint64(to)) }

// real is how long a span of model time takes.
func (c *clock) real(span time.Duration) time.Duration {
	high, low := bits.Mul64(uint64(max(span, 0)), scaleUnit)
	if high >= c.scale {
		return math.MaxInt64
	}
	quotient, _ := bits.Div64(high, low, c.scale)
	return time.Duration(min(quotient, math.MaxInt64))
}
