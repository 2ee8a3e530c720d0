package main

import (
	"fmt"
	"strconv"
	"strings"
)

// seeds is a list of seeds, written 42, 42..51 or 1,2,3.
type seeds []int64

// maxSeeds bounds a slip such as 1..1000000000.
const maxSeeds = 10_000

// UnmarshalText reads a list of seeds, for flags.
func (s *seeds) UnmarshalText(text []byte) error {
	*s = nil
	for part := range strings.SplitSeq(string(text), ",") {
		first, last, isRange := strings.Cut(part, "..")
		if !isRange {
			last = first
		}
		a, err := strconv.ParseInt(strings.TrimSpace(first), 10, 64)
		if err != nil {
			return fmt.Errorf("seed %q is not a whole number", first)
		}
		b, err := strconv.ParseInt(strings.TrimSpace(last), 10, 64)
		if err != nil {
			return fmt.Errorf("seed %q is not a whole number", last)
		}
		if b < a || b-a >= maxSeeds || len(*s) >= maxSeeds {
			return fmt.Errorf("seeds %q: write a range such as 42..51 of at most %d", part, maxSeeds)
		}
		for seed := a; seed <= b; seed++ {
			*s = append(*s, seed)
		}
	}
	return nil
}
