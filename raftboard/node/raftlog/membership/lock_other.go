//go:build !unix

package membership

import "os"

// tryLock does nothing: the stores have their own locks.
func tryLock(*os.File) (free bool, err error) { return true, nil }
