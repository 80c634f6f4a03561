package daemon

import "golang.org/x/sys/unix"

// freeBytes is the number of bytes that can be written to the disk of a directory.
func freeBytes(dir string) (free int64, known bool) {
	var stat unix.Statfs_t
	if unix.Statfs(dir, &stat) != nil {
		return 0, false
	}
	return int64(stat.Bavail) * int64(stat.Bsize), true
}
