//go:build !unix

package main

// tightenUmask: there is no umask here.
func tightenUmask() {}
