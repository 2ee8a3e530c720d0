package agent

import (
	"slices"
	"time"
)

// counts is what is counted of all jobs, also of those that ended: series that only rise.
type counts struct {
	wait       [3]histogram // by class: from a request to the grant
	hold       [3]histogram // from a grant to the release
	drain      [3]histogram // of a class that was told to drop: from that to the release
	preemption [3]histogram // from a request to the grant, where a lower class held the token
	of         []gpuCounts  // by GPU
}

// gpuCounts is what is counted on one GPU.
type gpuCounts struct {
	overruns [3]uint64 // by class of who overran
	refused  uint64    // allocations
	stall    time.Duration
}

// on is what is counted on a GPU.
func (c *counts) on(gpu int) *gpuCounts {
	for len(c.of) <= gpu {
		c.of = append(c.of, gpuCounts{})
	}
	return &c.of[gpu]
}

// preempts says whether a job of a lower class holds a token that a session asks for. A lower class has a higher number.
func (s *session) preempts() bool {
	for holder := range s.a.holders {
		if holder.alloc == s.alloc || holder.alloc.spec.Class <= s.alloc.spec.Class {
			continue
		}
		if slices.ContainsFunc(holder.token.gpus, func(g int) bool { return slices.Contains(s.token.gpus, g) }) {
			return true
		}
	}
	return false
}

// figures copies what is counted, with the waits for memory that last. It is for the loop.
func (a *Agent) figures() counts {
	c := a.counts
	c.of = make([]gpuCounts, len(a.gpus))
	copy(c.of, a.counts.of)
	now := a.clock.now()
	for _, al := range a.allocs {
		for _, g := range al.gpus {
			c.of[g.number].stall += g.ledger.Stall(now, al.account())
		}
	}
	return c
}
