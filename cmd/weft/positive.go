package main

import (
	"fmt"
	"strconv"
)

// positive is a flag that counts something: at least 1, and 0 only where it was not given.
type positive int

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *positive) UnmarshalText(text []byte) error {
	n, err := strconv.Atoi(string(text))
	if err != nil || n < 1 {
		return fmt.Errorf("%q is not a whole number of at least 1", text)
	}
	*p = positive(n)
	return nil
}
