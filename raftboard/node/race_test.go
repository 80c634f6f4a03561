//go:build race

package node_test

// underRace tells that the race detector slows this program down.
const underRace = true
