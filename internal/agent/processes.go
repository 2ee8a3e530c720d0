package agent

import (
	"cmp"
	"slices"

	"weft.dev/weft/internal/wire"
)

// list answers which processes of the allocation use a GPU, by their numbers in the asking process's pid namespace. Those
// that it cannot see are not in it, and nothing of other jobs is.
func (s *session) list(m *wire.ProcessesOf) {
	answer := &wire.List{Handle: m.Handle, GPU: m.GPU}
	g := s.alloc.gpuAt(m.GPU)
	for _, other := range s.alloc.sessions {
		if g == nil || other.observer || other.mask&(1<<m.GPU) == 0 {
			continue
		}
		if pid := s.numberOf(other); pid > 0 {
			answer.Processes = append(answer.Processes, wire.Process{PID: int32(pid), Bytes: uint64(other.bytesOn(g))})
		}
	}
	slices.SortFunc(answer.Processes, func(a, b wire.Process) int { return cmp.Compare(a.PID, b.PID) })
	answer.Processes = answer.Processes[:min(len(answer.Processes), wire.Processes)]
	s.say(answer)
}

// bytesOn is what a process allocated on a GPU and did not free.
func (s *session) bytesOn(g *gpu) (sum int64) {
	for _, p := range s.pieces {
		if p.gpu == g {
			sum += int64(p.bytes)
		}
	}
	return sum
}

// numberOf is the number of another session's process in the pid namespace of this one's; 0 where it has none there. A
// namespace sees itself and those below it: there, the process has a number at this one's depth.
func (s *session) numberOf(other *session) int {
	s.lookUp()
	other.lookUp()
	depth := len(s.names)
	if depth == 0 || len(other.names) < depth {
		return 0
	}
	if len(other.names) == depth && other.space != s.space {
		return 0
	}
	return other.names[depth-1]
}

// lookUp reads once where the process is.
func (s *session) lookUp() {
	if s.names == nil && s.peer.pid > 0 {
		s.names, s.space = numbersOf(s.peer.pid), spaceOf(s.peer.pid)
	}
}
