package local

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// The ports that FreeAddresses looks among. They lie below those that systems
// hand out to outgoing connections, so that nobody gets one by accident between
// its being found and its being used. The tests of package node, which may run
// at the same time, have those below.
const (
	firstPort = 22_000
	lastPort  = 32_000
	portTries = 1_000
)

// FreeAddresses finds loopback addresses that nobody listens on. All are held
// until all are found, so that none is found twice.
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
