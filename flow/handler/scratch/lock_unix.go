//go:build unix

package scratch

import (
	"os"

	"golang.org/x/sys/unix"
)

func tryLock(directory *os.File) error {
	return unix.Flock(int(directory.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}
