//go:build unix

package membership

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// checkOwner refuses work on the files of another user. New files would belong to this process's user, also
// with root, and the node could not open them.
func checkOwner(dataDir string, file fs.FileInfo) error {
	stat, ok := file.Sys().(*syscall.Stat_t)
	if ok && int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("the files of %s belong to the user with the id %d: run the command as this user, such as with sudo -u '#%d'", dataDir, stat.Uid, stat.Uid)
	}
	return nil
}
