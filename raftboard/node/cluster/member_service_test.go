package cluster_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/cluster"
)

// TestChangesWaitForEachOther: a change of the members waits a limited time for the change in
// progress.
func TestChangesWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changes := cluster.NewChanges()
		release := changes.Hold()
		if err := changes.Make(t.Context()); !errors.Is(err, jobs.ErrConflict) || !strings.Contains(err.Error(), "in progress") {
			t.Errorf("two changes at once: %v", err)
		}
		time.AfterFunc(100*time.Millisecond, release)
		if err := changes.Make(t.Context()); err != nil {
			t.Errorf("a change that came before the last one had ended: %v", err)
		}
	})
}

// TestAddressesOfMembers: a member has addresses that other nodes can dial.
func TestAddressesOfMembers(t *testing.T) {
	for address, good := range map[string]bool{
		"h:1": true, "h:65535": true, "[::1]:7070": true,
		"h": false, ":1": false, "h:": false, "h:0": false, "h:65536": false, "h:-1": false, "h:http": false, "a@b:1": false,
	} {
		for field, err := range map[string]error{
			"raft_address": cluster.CheckAddresses(address, "h:1"), "api_address": cluster.CheckAddresses("h:1", address),
		} {
			switch {
			case good && err != nil:
				t.Errorf("%s %q: %v", field, address, err)
			case !good && (!errors.Is(err, jobs.ErrInvalid) || !strings.Contains(err.Error(), field) || !strings.Contains(err.Error(), "is not HOST:PORT with a port from 1 to 65535")):
				t.Errorf("%s %q: got %v", field, address, err)
			}
		}
	}
}
