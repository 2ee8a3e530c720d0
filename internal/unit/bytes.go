package unit

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bytes is an amount of memory. Arithmetic saturates at the ends of int64.
type Bytes int64

// Binary multiples of a byte.
const (
	KiB Bytes = 1 << (10 * (iota + 1))
	MiB
	GiB
	TiB
)

// Add is b + c, saturating.
func (b Bytes) Add(c Bytes) Bytes { return Bytes(addSaturating(int64(b), int64(c))) }

// Sub is b - c, at least 0: memory cannot be owed.
func (b Bytes) Sub(c Bytes) Bytes { return max(0, Bytes(subSaturating(int64(b), int64(c)))) }

// MiB is b in mebibytes.
func (b Bytes) MiB() float64 { return float64(b) / float64(MiB) }

// GiB is b in gibibytes.
func (b Bytes) GiB() float64 { return float64(b) / float64(GiB) }

// FromMiB converts mebibytes to Bytes, rounding up to a whole byte (a job never asks less than it said) and
// saturating. Less than nothing is 0; what is not a number asks for everything.
func FromMiB(m float64) Bytes {
	v := math.Ceil(m * float64(MiB))
	switch {
	case v < 0:
		return 0
	case v < math.MaxInt64:
		return Bytes(v)
	}
	return math.MaxInt64
}

// String writes b in the largest binary unit of which it holds at least one, with one decimal from GiB on:
// "512 MiB", "22.5 GiB".
func (b Bytes) String() string {
	switch {
	case b >= TiB:
		return fmt.Sprintf("%.1f TiB", float64(b)/float64(TiB))
	case b >= GiB:
		return fmt.Sprintf("%.1f GiB", b.GiB())
	case b >= MiB:
		return fmt.Sprintf("%.0f MiB", b.MiB())
	case b >= KiB:
		return fmt.Sprintf("%.0f KiB", float64(b)/float64(KiB))
	}
	return fmt.Sprintf("%d B", int64(b))
}

// suffixes are the units ParseBytes knows, longest first so that "GiB" is not read as "B". Decimal prefixes
// mean powers of ten; a bare letter means the binary unit, as nvidia-smi and Kubernetes users write it.
var suffixes = []struct {
	text  string
	scale float64
}{
	{"KIB", float64(KiB)}, {"MIB", float64(MiB)}, {"GIB", float64(GiB)}, {"TIB", float64(TiB)},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},
	{"KI", float64(KiB)}, {"MI", float64(MiB)}, {"GI", float64(GiB)}, {"TI", float64(TiB)},
	{"K", float64(KiB)}, {"M", float64(MiB)}, {"G", float64(GiB)}, {"T", float64(TiB)},
	{"B", 1},
}

// ParseBytes reads an amount of memory such as "16GiB", "512 MiB", "11GB" or "1024". A number without a unit is
// bytes. It refuses negative, infinite and unreadable values.
func ParseBytes(s string) (Bytes, error) {
	text, scale := strings.ToUpper(strings.TrimSpace(s)), 1.0
	for _, u := range suffixes {
		if number, ok := strings.CutSuffix(text, u.text); ok {
			text, scale = strings.TrimSpace(number), u.scale
			break
		}
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("memory %q is not a number with a unit such as 16GiB", s)
	}
	if v < 0 {
		return 0, fmt.Errorf("memory %q is negative", s)
	}
	return FromMiB(v * scale / float64(MiB)), nil
}

// UnmarshalText is ParseBytes, for flags.
func (b *Bytes) UnmarshalText(text []byte) error {
	v, err := ParseBytes(string(text))
	*b = v
	return err
}
