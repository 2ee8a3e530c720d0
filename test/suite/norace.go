//go:build !race

package suite

// Raced says whether the tests have the race detector.
const Raced = false
