//go:build !linux

// Chaos breaks a cluster of real processes; it needs Linux.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "chaos: this needs Linux: its faults are those of Linux's namespaces, disks and signals")
	os.Exit(1)
}
