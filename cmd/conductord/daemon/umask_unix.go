//go:build unix

package daemon

import "syscall"

// tightenUmask makes new files accessible only to their owner.
func tightenUmask() { syscall.Umask(0o077) }
