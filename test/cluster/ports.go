package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Ports are looked for here: above those of services that people know, and below those that the system gives to connections. One of the
// latter may be a connection's by the time at which a component wants to listen on it, and a control plane makes many connections as it
// comes up.
const (
	lowestPort  = 20000
	highestPort = 30000
	portTries   = 1000
)

// freePorts are ports of the loopback interface that nothing listens on, and that no other cluster of this machine has: most components
// listen seconds after their port was found, and one that was killed does not listen until it is started again. They are kept from others
// until free is called or this process ends.
func freePorts(n int) (list []int, free func(), err error) {
	text, _ := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range") // no text is no range
	highest := min(highestPort, lowestEphemeral(string(text)))
	var open, kept []net.Listener
	free = func() { closeAll(kept) }
	defer func() { closeAll(open) }() // when all are found, so that none is found twice
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
			free()
			return nil, nil, fmt.Errorf("a free port of %s: %w", loopback, err)
		}
		open = append(open, l)
		port = l.Addr().(*net.TCPAddr).Port
		mine, err := keep(port)
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			free()
			return nil, nil, fmt.Errorf("keep port %d from other clusters: %w", port, err)
		}
		kept = append(kept, mine)
		list = append(list, port)
	}
	return list, free, nil
}

// keep keeps a port from other clusters: by a socket that has a name and no file, of which the system allows one, and which ends with its
// process.
func keep(port int) (net.Listener, error) {
	return net.Listen("unix", "@weft-cluster-port-"+strconv.Itoa(port))
}

func closeAll(list []net.Listener) {
	for _, l := range list {
		_ = l.Close()
	}
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
