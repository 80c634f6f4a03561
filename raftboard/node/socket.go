package node

import (
	"errors"
	"io/fs"
	"net"
	"os"
)

// MaxSocketPath bounds the path of a socket, in bytes: systems allow 104 to 108.
const MaxSocketPath = 100

// localKey is the key of the user in the context of calls by the socket.
type localKey struct{}

// listenSocket listens for programs of this user and of root. It replaces a socket that a
// killed process has left: this process holds the data directory.
func listenSocket(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}
