//go:build race

package node_test

// underRace: the race detector slows this program down.
const underRace = true
