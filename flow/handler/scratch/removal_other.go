//go:build !unix

package scratch

import (
	"os"
	"time"
)

const onlyDirectory = 0

func remove(path string, _ time.Time) error { return os.RemoveAll(path) }
