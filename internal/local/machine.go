package local

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"weft.dev/weft/internal/agent"
	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/dispatch"
	"weft.dev/weft/internal/plan"
	"weft.dev/weft/internal/unit"
)

// pid is this process.
var pid = os.Getpid()

// machineState is what was seen of the GPUs last.
type machineState struct {
	gpus []gpuState
	at   time.Time
}

// gpuState is what was seen of one GPU.
type gpuState struct {
	xid      *uint64
	busy     *float64
	reserved unit.Bytes
	inUse    unit.Bytes
	token    box.ID
	foreign  []box.Foreign
	stall    hourly
	overruns hourly
}

func newMachineState(gpus int) machineState { return machineState{gpus: make([]gpuState, gpus)} }

// closed is why no job starts on a GPU, "" when it may.
func (s *gpuState) closed(drained bool) plan.Code {
	switch {
	case s.xid != nil:
		return plan.GPUUnhealthy
	case drained:
		return plan.Drained
	}
	return ""
}

// dispatch is a GPU as dispatch sees it.
func (s *gpuState) dispatch(usable unit.Bytes, drained bool) dispatch.GPU {
	g := dispatch.GPU{Usable: usable, Closed: s.closed(drained), ForeignRuns: len(s.foreign) > 0}
	for _, f := range s.foreign {
		g.Foreign += f.Bytes
	}
	return g
}

// hourly sums what was counted in the last hour, in minutes.
type hourly struct {
	minutes [60]float64
	at      int64 // the minute of the last addition
}

func (h *hourly) add(now time.Time, amount float64) {
	h.advance(now)
	h.minutes[h.at%60] += amount
}

// advance clears the minutes that passed.
func (h *hourly) advance(now time.Time) {
	minute := now.Unix() / 60
	for ; h.at < minute; h.at++ {
		if minute-h.at > 60 {
			h.at = minute - 60
		}
		h.minutes[(h.at+1)%60] = 0
	}
}

func (h *hourly) lastHour() float64 {
	sum := 0.0
	for _, m := range h.minutes {
		sum += m
	}
	return sum
}

// foreignOf describes processes of nobody: their user and name as /proc has them.
func foreignOf(list []agent.Escaped) []box.Foreign {
	var foreign []box.Foreign
	for _, e := range list {
		f := box.Foreign{PID: e.PID, Bytes: e.Bytes, User: "?", Name: "?"}
		proc := "/proc/" + strconv.Itoa(e.PID)
		if info, err := os.Stat(proc); err == nil {
			if s, ok := info.Sys().(*syscall.Stat_t); ok {
				f.User = userName(int(s.Uid))
			}
		}
		if text, err := os.ReadFile(proc + "/comm"); err == nil {
			f.Name = strings.TrimSpace(string(text))
		}
		foreign = append(foreign, f)
	}
	return foreign
}
