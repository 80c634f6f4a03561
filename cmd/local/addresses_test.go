package local_test

import (
	"net"
	"strconv"
	"testing"

	"github.com/conductord/conductord/cmd/local"
)

// The addresses differ, are free, and are outside the range of outgoing connections.
func TestFreeAddresses(t *testing.T) {
	addresses, err := local.FreeAddresses(50)
	if err != nil || len(addresses) != 50 {
		t.Fatalf("%d addresses, error %v", len(addresses), err)
	}
	seen := map[string]bool{}
	for _, address := range addresses {
		listener, err := net.Listen("tcp", address)
		if err != nil || seen[address] {
			t.Fatalf("%s is not free, or twice there (%t): %v", address, seen[address], err)
		}
		seen[address] = true
		_ = listener.Close()
		_, text, _ := net.SplitHostPort(address)
		if port, err := strconv.Atoi(text); err != nil || port < 10_000 || port >= 32_768 {
			t.Errorf("port %s", text)
		}
	}
	if _, err := local.FreeAddresses(1_000_000); err == nil {
		t.Error("a million addresses were found")
	}
}
