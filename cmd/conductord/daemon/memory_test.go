package daemon_test

import (
	"math"
	"runtime/debug"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/daemon"
)

func TestMemoryYieldsToTheEnvironment(t *testing.T) {
	before := debug.SetMemoryLimit(math.MaxInt64)
	defer debug.SetMemoryLimit(before)
	for _, row := range []struct {
		environment []string
		limit       int64
		ballast     int
		set         int64 // the resulting memory limit of Go
	}{
		{nil, 1 << 30, daemon.BallastBytes, 1 << 30},
		{[]string{"HOME=/root", "GOGC=", "XGOGC=1"}, 1 << 30, daemon.BallastBytes, 1 << 30},
		{nil, 256 << 20, 32 << 20, 256 << 20},
		{[]string{"HOME=/root", "GOGC=100"}, 1 << 30, 0, math.MaxInt64},
		{[]string{"GOMEMLIMIT=512MiB"}, 1 << 30, 0, math.MaxInt64},
	} {
		debug.SetMemoryLimit(math.MaxInt64)
		program := &cli.Program{Env: row.environment}
		ballast := daemon.Ballast(program, row.limit)
		if set := debug.SetMemoryLimit(-1); ballast != row.ballast || set != row.set {
			t.Errorf("with %v and %d the ballast is %d bytes and the limit %d, want %d and %d", row.environment, row.limit, ballast, set, row.ballast, row.set)
		}
	}
}
