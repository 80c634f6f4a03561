//go:build !linux

package boottime

import "time"

// suspended is 0: no clock of this platform is known to count suspension.
func suspended() time.Duration { return 0 }
