package sim

import "time"

// progressStep is after how many jobs progress is told: some hundred times a second, which costs nothing.
const progressStep = 4096

// progress counts the jobs that are done with.
type progress struct {
	report             func(done, total int)
	done, total, until int
}

func (p *progress) step() { p.skip(1) }

// skip counts n jobs.
func (p *progress) skip(n int) {
	p.done += n
	if p.report != nil && p.done >= p.until+progressStep {
		p.until = p.done
		p.report(p.done, p.total)
	}
}

func (p *progress) finish() {
	if p.report != nil {
		p.report(p.done, p.total)
	}
}

// now reads the caller's clock.
func now(cfg Config) time.Time {
	if cfg.Now == nil {
		return time.Time{}
	}
	return cfg.Now()
}
