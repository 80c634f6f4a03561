package main_test

import (
	"testing"

	main "github.com/conductord/conductord/cmd/conductord"
)

func TestHeadroomYieldsToTheEnvironment(t *testing.T) {
	for _, row := range []struct {
		environment []string
		want        int
	}{
		{nil, main.HeadroomBytes},
		{[]string{"HOME=/root", "GOGC=", "XGOGC=1"}, main.HeadroomBytes},
		{[]string{"HOME=/root", "GOGC=100"}, 0},
		{[]string{"GOMEMLIMIT=512MiB"}, 0},
	} {
		program := &main.Program{Env: row.environment}
		if got := program.Headroom(); got != row.want {
			t.Errorf("with %v the headroom is %d bytes, want %d", row.environment, got, row.want)
		}
	}
}
