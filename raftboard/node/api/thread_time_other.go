//go:build !linux

package api

import "time"

// threadTime is not known here: differences of it are the time that has passed.
func threadTime() time.Duration { return time.Duration(time.Now().UnixNano()) }
