package bench

import "fmt"

// Check is one promise beside what was measured.
type Check struct {
	Name, Result, Limit string
	Note                string // what the limit is made of
	Known               bool   // it was measured
	Held                bool
}

// Limits of what weft promises.
const (
	launchLimit   = 60   // ns
	streamLimit   = 0.01 // of the rate
	preemptSlack  = 1    // ms beyond window and longest kernel
	shareLimit    = 0.03 // of the GPU
	lossLimit     = 0.05 // of the high job's rate
	lowRateLimit  = 0.20 // of the low job's rate
	recoveryLimit = 100  // ms
)

// Checks is every promise, in the order of Stages.
func (r *Result) Checks() []Check {
	checks := []Check{
		check("launch cost", r.LaunchOverhead, "%.0f ns", 1, launchLimit),
		check("stream cost", r.StreamOverhead, "%.1f %%", 100, streamLimit),
		r.preemption(),
		check("share error", r.ShareError, "%.1f %%", 100, shareLimit),
		r.priority(),
		check("holder killed", r.HolderKillRecovery, "%.0f ms", 1, recoveryLimit),
	}
	return checks
}

// Verdict is the last cell of a check.
func (c *Check) Verdict() string {
	verdict := "exceeded"
	switch {
	case !c.Known:
		return "not measured"
	case c.Held:
		verdict = "ok"
	}
	if c.Note != "" {
		verdict += "  " + c.Note
	}
	return verdict
}

// check compares a value with a limit; both are shown by a format after a factor.
func check(name string, value *float64, format string, factor, limit float64) Check {
	c := Check{Name: name, Result: "-", Limit: fmt.Sprintf(format, limit*factor)}
	if value != nil {
		shown := max(0, *value) // below zero is noise: the cost is too small to be told from none
		c.Result, c.Known, c.Held = fmt.Sprintf(format, shown*factor), true, *value <= limit
	}
	return c
}

func (r *Result) preemption() Check {
	if r.Preemption == nil || r.Window == nil || r.LongestKernel == nil {
		return check("preemption p99", nil, "%.1f ms", 1, preemptSlack)
	}
	c := check("preemption p99", r.Preemption, "%.1f ms", 1, *r.Window+*r.LongestKernel+preemptSlack)
	c.Note = fmt.Sprintf("window %.1f + kernel %.1f + %d", *r.Window, *r.LongestKernel, preemptSlack)
	return c
}

func (r *Result) priority() Check {
	c := Check{Name: "high loss/low rate", Result: "-", Limit: fmt.Sprintf("%.0f / %.0f %%", 100*lossLimit, 100*lowRateLimit)}
	if r.HighLoss != nil && r.LowRate != nil {
		c.Result = fmt.Sprintf("%.1f / %.0f %%", 100*max(0, *r.HighLoss), 100**r.LowRate)
		c.Known, c.Held = true, *r.HighLoss < lossLimit && *r.LowRate >= lowRateLimit
	}
	return c
}
