// Package examples contains the example flows and their handlers, so that the single binary can
// show them without other files.
//
// The handlers are POSIX shell scripts. Embedding loses their mode: write
// them to a disk with 0755.
package examples

import "embed"

// Files are the flow documents (*.toml) and their handlers (handlers/*).
//
//go:embed *.toml handlers/*
var Files embed.FS
