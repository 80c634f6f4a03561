//go:build !unix

package scratch

import (
	"errors"
	"os"
)

func tryLock(*os.File) error { return errors.ErrUnsupported }
