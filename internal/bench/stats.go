package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
)

// Stats are the agent's counters since it started, over all jobs.
type Stats struct {
	Launches      int64   `json:"launches"`
	TokenMessages int64   `json:"token_messages"` // both ways, without those about memory
	Grants        int64   `json:"grants"`
	Overruns      int64   `json:"overruns"`
	Sessions      int     `json:"sessions"`
	WindowMS      float64 `json:"window_ms"` // that was told last
}

// Stats asks the agent.
func (b *Bed) Stats(ctx context.Context) (Stats, error) {
	var s Stats
	return s, b.Agent(ctx, &s)
}

// Agent asks the agent for all that it knows, into a value of the caller.
func (b *Bed) Agent(ctx context.Context, into any) error {
	return b.ask(ctx, into, "agent", "stats", "--socket", b.AgentDir(), "--json")
}

// Emulated asks the emulated GPUs for their counters, into a value of the caller.
func (b *Bed) Emulated(ctx context.Context, into any) error {
	return b.ask(ctx, into, "emugpu", "stats", "--socket", b.EmulatedSocket(), "--json")
}

func (b *Bed) ask(ctx context.Context, into any, arguments ...string) error {
	cmd := exec.CommandContext(ctx, b.o.Weft, arguments...)
	cmd.Env = b.env
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("weft %v: %w", arguments, err)
	}
	return json.Unmarshal(out, into)
}
