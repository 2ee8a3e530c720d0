// Package device asks the driver's management library (NVML) what GPUs there are and who uses them. The same code speaks
// to the library of real GPUs and to that of emulated ones; which one is loaded is a matter of its path.
package device

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"weft.dev/weft/internal/unit"
)

// UUID names a GPU for good, whatever number it has in a program.
type UUID [16]byte

// String is a UUID as the driver writes it: GPU-8-4-4-4-12.
func (u UUID) String() string {
	h := hex.EncodeToString(u[:])
	return "GPU-" + h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// ParseUUID reads what String writes; the prefix may be missing or that of a MIG instance.
func ParseUUID(s string) (UUID, error) {
	digits := strings.TrimPrefix(strings.TrimPrefix(s, "GPU-"), "MIG-")
	b, err := hex.DecodeString(strings.ReplaceAll(digits, "-", ""))
	if err != nil || len(b) != len(UUID{}) || strings.Count(digits, "-") != 4 {
		return UUID{}, fmt.Errorf("%q is no GPU's UUID", s)
	}
	return UUID(b), nil
}

// GPU is one GPU of the machine.
type GPU struct {
	UUID   UUID
	Name   string
	PCI    string
	Total  unit.Bytes
	Usable unit.Bytes // Total less what the driver keeps for itself
}

// Process is a process that uses a GPU.
type Process struct {
	PID   int        // as this process's own pid namespace counts
	Bytes unit.Bytes // 0 where the driver does not say
}

// Fault is a critical error that the driver reported of a GPU.
type Fault struct {
	GPU int
	XID uint64
}

// Machine is the GPUs of this machine, numbered from 0 in the order of GPUs. Its methods may take milliseconds, and may be
// called from several goroutines.
type Machine interface {
	GPUs() []GPU
	Processes(gpu int) ([]Process, error)
	// Utilisation is the share of the driver's last sampling period in which the GPU computed.
	Utilisation(gpu int) (float64, error)
	// NextFault waits for a fault at most so long. It returns false when none came.
	NextFault(wait time.Duration) (Fault, bool, error)
	Close() error
}

// Versioned is a Machine that knows the version of its driver, such as "550.54.15".
type Versioned interface {
	DriverVersion() (string, error)
}

// ErrNone says that there is no library or no GPU.
var ErrNone = errors.New("no GPU")

// library is the file to be loaded: that of a folder where one is named, and by the loader's own search for "".
func library(path string) string {
	const name = "libnvidia-ml.so.1"
	if path == "" {
		return name
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return filepath.Join(path, name)
	}
	return path
}
