//go:build !linux

package admission

import (
	"net"
	"os"
	"strconv"
)

// userOf is the number of this process's user: only its programs, and those of root, can
// open the socket.
func userOf(net.Conn) string { return strconv.Itoa(os.Getuid()) }
