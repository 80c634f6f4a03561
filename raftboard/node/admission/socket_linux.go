package admission

import (
	"net"
	"strconv"

	"golang.org/x/sys/unix"
)

// userOf returns the kernel's number of the user at the other end of a socket.
func userOf(conn net.Conn) string {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return "unknown"
	}
	user := "unknown"
	_ = raw.Control(func(fd uintptr) {
		if peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			user = strconv.Itoa(int(peer.Uid))
		}
	})
	return user
}
