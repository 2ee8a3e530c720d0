package agent

import (
	"fmt"
	"slices"
	"strings"

	"weft.dev/weft/internal/unit"
	"weft.dev/weft/internal/wire"
)

// Class is how far a job may be held back for others, by the name that users know.
type Class uint8

var classNames = []string{"guaranteed", "burstable", "besteffort"}

// ParseClass reads a class's name.
func ParseClass(s string) (Class, error) {
	i := slices.Index(classNames, s)
	if i < 0 {
		return 0, fmt.Errorf("no class %q", s)
	}
	return Class(i), nil
}

func (c Class) String() string { return classNames[min(int(c), len(classNames)-1)] }

// MarshalText implements encoding.TextMarshaler.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *Class) UnmarshalText(text []byte) error {
	parsed, err := ParseClass(string(text))
	*c = parsed
	return err
}

// RefusedMemory is the code of a refusal for memory that others have reserved now: it may be free later.
const RefusedMemory = "memory"

// RefusalError is why an allocation cannot be, as what was asked for is at fault.
type RefusalError struct {
	Code    string `json:"code"`
	Flag    string `json:"flag,omitempty"` // of weft exec
	Value   string `json:"value,omitempty"`
	Message string `json:"message"`
	Why     string `json:"why,omitempty"`
	Fix     string `json:"fix,omitempty"`
}

func (e *RefusalError) Error() string { return e.Message }

// mostWeight is the arbiter's.
const mostWeight = 1000

// check fills what a spec leaves open and says what is wrong with it.
func (a *Agent) check(s *Spec) ([]*gpu, error) {
	if s.Weight == 0 {
		s.Weight = 1
	}
	if s.Weight < 0 || s.Weight > mostWeight {
		return nil, &RefusalError{Code: "weight", Flag: "--weight", Value: fmt.Sprint(s.Weight), Message: fmt.Sprintf("weight %d is outside [1, %d]", s.Weight, mostWeight), Fix: "1"}
	}
	if int(s.Class) >= len(classNames) {
		return nil, &RefusalError{Code: "class", Flag: "--class", Message: "no such class", Fix: strings.Join(classNames, ", ")}
	}
	gpus, err := a.checkGPUs(s.GPUs)
	if err != nil {
		return nil, err
	}
	if s.Name == "" {
		s.Name = "job"
	}
	if s.Container != nil && !a.private() {
		return nil, &RefusalError{Code: "open_folder", Message: fmt.Sprintf("folder %s is open to other users than the agent's own", a.o.Dir),
			Why: "any user of a container may connect to its socket, so nobody else may come near it", Fix: "chmod 700 " + a.o.Dir}
	}
	return gpus, checkMemory(s, gpus)
}

func (a *Agent) checkGPUs(names []string) ([]*gpu, error) {
	var known []string
	for _, g := range a.gpus {
		known = append(known, fmt.Sprint(g.number))
	}
	var gpus []*gpu
	for _, name := range names {
		g, ok := a.at(strings.TrimSpace(name))
		switch {
		case !ok:
			return nil, &RefusalError{Code: "unknown_gpu", Flag: "--gpu", Value: name, Message: fmt.Sprintf("no GPU %q", name),
				Why: "the agent has " + strings.Join(known, ", "), Fix: "a number of those, or a UUID"}
		case slices.Contains(gpus, g):
			return nil, &RefusalError{Code: "duplicate_gpu", Flag: "--gpu", Value: name, Message: fmt.Sprintf("GPU %q is named twice", name), Fix: "name it once"}
		}
		gpus = append(gpus, g)
	}
	if len(gpus) == 0 || len(gpus) > wire.GPUs {
		return nil, &RefusalError{Code: "gpus", Flag: "--gpu", Message: fmt.Sprintf("%d GPUs are outside [1, %d]", len(gpus), wire.GPUs), Fix: "0"}
	}
	return gpus, nil
}

// part is the share of a GPU's memory that a job may use which asks for none: as many as may share it by default.
const part = 4

// checkMemory holds the limit against the smallest of the GPUs.
func checkMemory(s *Spec, gpus []*gpu) error {
	usable := gpus[0].Usable
	for _, g := range gpus {
		usable = min(usable, g.Usable)
	}
	if s.Whole {
		s.Reserved, s.Peak, s.Cooperates = usable, 0, false
	}
	if s.Reserved == Default && s.Peak == Default {
		s.Reserved, s.Peak = usable/part, 0
	}
	s.Reserved, s.Peak = undefault(s.Reserved), undefault(s.Peak)
	limit := s.Reserved.Add(s.Peak)
	switch {
	case s.Reserved < 0 || s.Peak < 0 || limit < LeastMemory:
		return &RefusalError{Code: "limit_small", Flag: "--reserved", Value: limit.String(), Message: fmt.Sprintf("limit %v: min %v", limit, LeastMemory),
			Why: "a context alone takes about as much", Fix: "--reserved 1GiB"}
	case limit > usable:
		return &RefusalError{Code: "limit_large", Flag: "--reserved", Value: limit.String(), Message: fmt.Sprintf("limit %v, GPU %v", limit, usable),
			Why: "reserved part and peak together are the most that a job may use", Fix: fmt.Sprintf("at most %v", usable)}
	}
	return nil
}

// Default stands for memory that was not asked for.
const Default unit.Bytes = -1

func undefault(b unit.Bytes) unit.Bytes {
	if b == Default {
		return 0
	}
	return b
}
