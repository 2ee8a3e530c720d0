package main

import (
	"os"
	"regexp"
	"runtime"
	"strconv"
	"testing"
)

// TestServeMany has the kernel say how large the table of descriptors is: none of a storm of starts makes it grow.
func TestServeMany(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	serveMany()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip("no /proc/self/status")
	}
	found := regexp.MustCompile(`(?m)^FDSize:\s+(\d+)$`).FindSubmatch(text)
	if found == nil {
		t.Fatalf("no FDSize in %s", text)
	}
	if size, err := strconv.Atoi(string(found[1])); err != nil || size < mostDescriptors {
		t.Errorf("the table holds %d descriptors, not %d: %v", size, mostDescriptors, err)
	}
	if n := runtime.GOMAXPROCS(0); n < leastProcs {
		t.Errorf("%d goroutines may run at once, not %d", n, leastProcs)
	}
}
