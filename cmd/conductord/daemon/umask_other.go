//go:build !unix

package daemon

// tightenUmask does nothing: this system has no umask.
func tightenUmask() {}
