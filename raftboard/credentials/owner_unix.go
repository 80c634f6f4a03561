//go:build unix

package credentials

import (
	"io/fs"
	"syscall"
)

// ofRoot reports whether root owns a file. Its group may then read it: in this way, packages and
// Kubernetes give a key to a program that must not replace it.
func ofRoot(file fs.FileInfo) bool {
	stat, ok := file.Sys().(*syscall.Stat_t)
	return ok && stat.Uid == 0
}
