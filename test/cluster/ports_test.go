package cluster

import (
	"net"
	"slices"
	"testing"
)

// TestFreePorts: they are free, each another one, and none that the system may give to a connection meanwhile.
func TestFreePorts(t *testing.T) {
	taken, err := net.Listen("tcp4", loopback+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	list, free, err := freePorts(200)
	if err != nil {
		t.Fatal(err)
	}
	defer free()
	slices.Sort(list)
	if got := len(slices.Compact(slices.Clone(list))); got != 200 {
		t.Errorf("%d of 200 ports are different", got)
	}
	for _, port := range list {
		if port < lowestPort || port >= highestPort {
			t.Errorf("port %d, want one in [%d, %d)", port, lowestPort, highestPort)
		}
		l, err := net.Listen("tcp4", at(loopback, port))
		if err != nil {
			t.Error(err)
			continue
		}
		_ = l.Close()
	}
}

// TestPortsAreKept: a port that was found is not found again before it is free, although nothing listens on it yet.
func TestPortsAreKept(t *testing.T) {
	first, free, err := freePorts(300)
	if err != nil {
		t.Fatal(err)
	}
	second, free2, err := freePorts(300)
	if err != nil {
		free()
		t.Fatal(err)
	}
	defer free2()
	for _, port := range second {
		if slices.Contains(first, port) {
			t.Errorf("port %d is of two clusters", port)
		}
	}
	free()
	mine, err := keep(first[0])
	if err != nil {
		t.Fatalf("it is kept after it was free: %v", err)
	}
	_ = mine.Close()
}

func TestLowestEphemeral(t *testing.T) {
	for text, want := range map[string]int{"32768\t60999\n": 32768, "10000 65535": 10000, "": 32768, "low high": 32768, "1": 32768} {
		if got := lowestEphemeral(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}
