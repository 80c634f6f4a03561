package main_test

import (
	"strings"
	"testing"

	main "github.com/conductord/conductord/cmd/conductord"
)

// TestBoardCommands runs the verbs in the order of a board's life.
func TestBoardCommands(t *testing.T) {
	cluster := openCluster(t)
	for _, row := range []struct {
		args string
		code int
		want string // part of what is said, on stdout or stderr
	}{
		{"board show night", main.ExitNotFound, "not found"},
		{"board create night", 0, "night open, no limits"},
		{"board limit night", main.ExitUsage, "say what is bounded"},
		{"board limit night --jobs 1 --postings-per-second 5", 0, "night open, at most 1 unfinished jobs, 5 postings a second"},
		{"board limit night --bytes 9000", 0, "at most 1 unfinished jobs, 9000 bytes of them, 5 postings a second"},
		{"board delete night", 0, ""},
		{"board create night", 0, "night open, no limits"},
		{"board limit night --jobs 1", 0, "at most 1"},
		{"job post --board night --kind k --name a", 0, ""},
		{"job post --board night --kind k --name b", main.ExitLimit, `board "night" jobs`},
		{"board pause night --reason stocktaking", 0, "night paused since"},
		{"board list", 0, "paused"},
		{"-o json board list", 0, `"reason": "stocktaking"`},
		{"board show night", 0, "1 claimable"},
		{"-o json board show night", 0, `"kind": "k"`},
		{"board resume night", 0, "night open"},
		{"board delete night", main.ExitConflict, "1 unfinished jobs"},
		{"board delete default", main.ExitConflict, "always exists"},
	} {
		got := run(t, cluster, strings.Fields(row.args)...)
		if got.code != row.code || !strings.Contains(got.out+got.err, row.want) {
			t.Errorf("%s: %+v", row.args, got)
		}
	}
}
