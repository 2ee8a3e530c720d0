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
	list, err := freePorts(200)
	if err != nil {
		t.Fatal(err)
	}
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

func TestLowestEphemeral(t *testing.T) {
	for text, want := range map[string]int{"32768\t60999\n": 32768, "10000 65535": 10000, "": 32768, "low high": 32768, "1": 32768} {
		if got := lowestEphemeral(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}
