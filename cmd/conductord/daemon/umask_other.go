//go:build !unix

package daemon

// tightenUmask: there is no umask here.
func tightenUmask() {}
