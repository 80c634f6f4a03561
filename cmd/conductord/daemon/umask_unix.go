//go:build unix

package daemon

import "syscall"

// tightenUmask keeps new files from everybody but their owner.
func tightenUmask() { syscall.Umask(0o077) }
