//go:build !linux

package admission

import (
	"net"
	"os"
	"strconv"
)

// userOf returns the number of this process's user: only programs of this user and of root can open
// the socket.
func userOf(net.Conn) string { return strconv.Itoa(os.Getuid()) }
