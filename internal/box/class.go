package box

import (
	"fmt"

	"weft.dev/weft/internal/cluster"
)

// Class is a job's class by the name that users know.
type Class cluster.Class

// The classes.
const (
	Burstable  = Class(cluster.Burstable)
	Guaranteed = Class(cluster.Guaranteed)
	BestEffort = Class(cluster.BestEffort)
)

// String is the name.
func (c Class) String() string { return cluster.Class(c).String() }

// MarshalText implements encoding.TextMarshaler.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *Class) UnmarshalText(text []byte) error {
	class, ok := cluster.ParseClass(string(text))
	if !ok {
		return fmt.Errorf("no class %q: guaranteed, burstable or besteffort", text)
	}
	*c = Class(class)
	return nil
}
