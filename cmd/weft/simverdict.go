package main

import (
	"fmt"

	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/trace"
)

// verdict is the answer in one sentence.
func (s *simStudy) verdict() string {
	if len(s.Policies) == 0 {
		return "Nothing was replayed."
	}
	first := s.Policies[0]
	if s.fill > 0 {
		return fmt.Sprintf("%s GPUs filled until %s of them were asked for.", report.Count(first.gpus), report.Percent(s.fill))
	}
	if first.Jobs == 0 {
		return "No job was replayed."
	}
	if dedicated, shared := s.sharingPair(); shared != nil {
		return fmt.Sprintf("%s. Under %s, sharing GPUs (%s, %s) needs %s GPU-hours against %s, %s; mean completion %s against %s; %s broken.",
			report.Several(first.Jobs, "job"), shared.Policy, shared.Share, shared.Placement, report.Amount(shared.GPUHours), report.Amount(dedicated.GPUHours),
			report.Change(shared.GPUHours/dedicated.GPUHours-1), report.Seconds(shared.AvgJCT), report.Seconds(dedicated.AvgJCT),
			report.Several(shared.BrokenFloors, "floor"))
	}
	return fmt.Sprintf("%s, %s at %s a second.", report.Several(first.Jobs, "job"), report.Several(first.Events, "event"), report.Amount(first.EventsPerSecond))
}

// sharingPair is the first run without sharing, and of those that keep floors under the same policy the one that needs
// the fewest GPU-hours; of others only where none keeps floors.
func (s *simStudy) sharingPair() (dedicated, shared *simRun) {
	for _, r := range s.Policies {
		switch {
		case r.Share == shareNever && dedicated == nil && r.GPUHours > 0:
			dedicated = r
		case r.Share == shareNever || r.Share == shareOracle || dedicated == nil || r.Policy != dedicated.Policy:
		case shared == nil || r.Share == shareFloor && shared.Share != shareFloor:
			shared = r
		case r.GPUHours < shared.GPUHours && (r.Share == shareFloor || shared.Share != shareFloor):
			shared = r
		}
	}
	return dedicated, shared
}

// excluded is what no run replayed, a reason once, at its largest count.
func (s *simStudy) excluded() trace.Exclusions {
	var all trace.Exclusions
	for _, r := range s.Policies {
		for _, x := range r.Excluded {
			known := 0
			for _, y := range all {
				if y.Reason == x.Reason {
					known = y.Rows
				}
			}
			all.Count(x.Reason, max(0, x.Rows-known))
		}
	}
	return all
}
