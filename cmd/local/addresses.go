package local

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// The ports that FreeAddresses uses. They are below the ephemeral ports of the system, so no
// outgoing connection gets one between the search and the use. Tests of package node, which can run
// in parallel, use the ports below these.
const (
	firstPort = 22_000
	lastPort  = 32_000
	portTries = 1_000
)

// FreeAddresses finds loopback addresses without a listener. It holds each address until all are
// found, so none is found twice.
func FreeAddresses(n int) ([]string, error) {
	var addresses []string
	var last error
	for tries := 0; len(addresses) < n; tries++ {
		if tries >= portTries {
			return nil, fmt.Errorf("cannot find %d free ports: %w", n, last)
		}
		port := firstPort + rand.IntN(lastPort-firstPort)
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			last = err
			continue
		}
		defer func() { _ = listener.Close() }()
		addresses = append(addresses, listener.Addr().String())
	}
	return addresses, nil
}
