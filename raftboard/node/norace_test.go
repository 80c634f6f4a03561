//go:build !race

package node_test

const underRace = false
