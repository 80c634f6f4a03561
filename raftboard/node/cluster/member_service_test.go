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
