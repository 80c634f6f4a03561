package admission

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// freeSpace returns the number of bytes that the daemon can still write.
func freeSpace(dir string) (int64, error) {
	var stat unix.Statfs_t
	err := unix.Statfs(dir, &stat)
	return int64(stat.Bavail) * int64(stat.Bsize), err
}

// reserveSpace makes a file that occupies the given number of bytes on the disk.
func reserveSpace(path string, bytes int64) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(unix.Fallocate(int(file.Fd()), 0, 0, bytes), file.Close())
}
