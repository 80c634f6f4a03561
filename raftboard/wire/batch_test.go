package wire_test

import (
	"testing"

	"github.com/conductord/conductord/raftboard/wire"
)

var rule = wire.BatchRule{Max: wire.Load{Commands: 100, Bytes: 1000}, Much: wire.Load{Commands: 50, Bytes: 500}, Few: 4, InFlight: 2}

func TestSendNow(t *testing.T) {
	tests := []struct {
		name               string
		batch              wire.Load
		full               bool
		inFlight, commands int
		want               bool
	}{
		{"nothing waits", wire.Load{}, false, 0, 0, false},
		{"one, and nothing in flight", wire.Load{1, 10}, false, 0, 0, true},
		{"some, and nothing in flight", wire.Load{20, 200}, false, 0, 0, true},
		{"few beside few", wire.Load{4, 40}, false, 1, 4, true},
		{"few beside more", wire.Load{1, 10}, false, 1, 5, false},
		{"more beside few", wire.Load{5, 50}, false, 1, 1, false},
		{"almost much", wire.Load{49, 499}, false, 1, 30, false},
		{"many commands", wire.Load{50, 50}, false, 1, 100, true},
		{"many bytes", wire.Load{1, 500}, false, 1, 100, true},
		{"full of little", wire.Load{30, 300}, true, 1, 30, true},
		{"full, and as many in flight as may be", wire.Load{100, 1000}, true, 2, 8, false},
		{"few, and as many in flight as may be", wire.Load{1, 1}, false, 2, 2, false},
	}
	for _, test := range tests {
		if got := rule.SendNow(test.batch, test.full, test.inFlight, test.commands); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

func TestFull(t *testing.T) {
	tests := []struct {
		name        string
		batch, next wire.Load
		want        bool
	}{
		{"an empty batch takes anything", wire.Load{}, wire.Load{500, 5000}, false},
		{"up to the limits", wire.Load{99, 900}, wire.Load{1, 100}, false},
		{"a command too many", wire.Load{99, 900}, wire.Load{2, 10}, true},
		{"a byte too many", wire.Load{9, 900}, wire.Load{1, 101}, true},
	}
	for _, test := range tests {
		if got := rule.Full(test.batch, test.next); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}
