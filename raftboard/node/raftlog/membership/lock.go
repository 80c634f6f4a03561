package membership

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// lockFile is locked by the process that uses a data directory: a node, or a conversion of its log
// store. The stores have their own locks, but the choice between the stores comes before a store is
// opened.
const lockFile = "lock"

// LockDataDir makes the data directory if it is missing, and locks it for this process until the
// lock is closed or the process ends.
func LockDataDir(dataDir string) (io.Closer, error) {
	if err := os.MkdirAll(dataDir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the data directory: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(dataDir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot lock the data directory: %w", err)
	}
	free, err := tryLock(file)
	if err == nil && free {
		return file, nil
	}
	_ = file.Close()
	if err != nil {
		return nil, fmt.Errorf("cannot lock the data directory: %w", err)
	}
	return nil, fmt.Errorf("cannot use %s: another process uses this data directory", dataDir)
}
