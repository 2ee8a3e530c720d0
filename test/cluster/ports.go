package cluster

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
)

// Ports are looked for here: above those of services that people know, and below those that the system gives to connections. One of the
// latter may be a connection's by the time at which a component wants to listen on it, and a control plane makes many connections as it
// comes up.
const (
	lowestPort  = 20000
	highestPort = 30000
	portTries   = 1000
)

// freePorts are ports of the loopback interface that nothing listens on.
func freePorts(n int) ([]int, error) {
	text, _ := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range") // no text is no range
	highest := min(highestPort, lowestEphemeral(string(text)))
	var list []int
	var open []net.Listener
	defer func() { // when all are found, so that none is found twice
		for _, l := range open {
			_ = l.Close()
		}
	}()
	for tries := 0; len(list) < n; tries++ {
		port := 0 // the system's choice, where its own range leaves no room or ours is full
		if highest > lowestPort && tries < portTries {
			port = lowestPort + rand.IntN(highest-lowestPort)
		}
		l, err := net.Listen("tcp4", at(loopback, port))
		if err != nil && port != 0 {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("a free port of %s: %w", loopback, err)
		}
		open = append(open, l)
		list = append(list, l.Addr().(*net.TCPAddr).Port)
	}
	return list, nil
}

// lowestEphemeral is the lowest port that the system gives to connections, by what it says of them; Linux's own default where that is no
// range.
func lowestEphemeral(text string) int {
	const usual = 32768
	fields := strings.Fields(text)
	if len(fields) != 2 {
		return usual
	}
	low, err := strconv.Atoi(fields[0])
	if err != nil {
		return usual
	}
	return low
}
