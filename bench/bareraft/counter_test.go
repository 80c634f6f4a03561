package bareraft_test

import (
	"testing"

	"github.com/conductord/conductord/bench/bareraft"
)

// TestCommandsIn checks that every command of an entry is counted once. A fair comparison depends
// on this count.
func TestCommandsIn(t *testing.T) {
	whole := bareraft.AppendCommand(bareraft.AppendCommand(nil, make([]byte, 600)), nil)
	for _, row := range []struct {
		name  string
		entry []byte
		want  int
	}{
		{"none", nil, 0},
		{"two, one of them empty", whole, 2},
		{"cut within the first", whole[:100], 0},
		{"cut before the second", whole[:len(whole)-1], 1},
		{"a length without an end", []byte{0xff, 0xff}, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := bareraft.CommandsIn(row.entry); got != row.want {
				t.Errorf("counted %d, want %d", got, row.want)
			}
		})
	}
}
