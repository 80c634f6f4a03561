package daemon_test

import (
	"testing"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/daemon"
)

func TestBallastYieldsToTheEnvironment(t *testing.T) {
	for _, row := range []struct {
		environment []string
		want        int
	}{
		{nil, daemon.BallastBytes},
		{[]string{"HOME=/root", "GOGC=", "XGOGC=1"}, daemon.BallastBytes},
		{[]string{"HOME=/root", "GOGC=100"}, 0},
		{[]string{"GOMEMLIMIT=512MiB"}, 0},
	} {
		program := &cli.Program{Env: row.environment}
		if got := daemon.Ballast(program); got != row.want {
			t.Errorf("with %v the ballast is %d bytes, want %d", row.environment, got, row.want)
		}
	}
}
