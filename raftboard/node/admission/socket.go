package admission

import (
	"errors"
	"io/fs"
	"net"
	"os"
)

// ListenSocket listens for programs of this user and of root. It replaces a socket that remains of
// a killed process, which is safe because this process has locked the data directory.
func ListenSocket(path string) (net.Listener, error) {
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
