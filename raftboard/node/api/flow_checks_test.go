package api_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/api"
)

// The checks of one principal take a limited share of a processor, at once and over time. Checks of
// other principals continue.
func TestTimeOfChecksIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const cost, hour = 25 * time.Millisecond, time.Hour
		checks := api.NewFlowChecks(cost)
		passed := 0
		for began := time.Now(); time.Since(began) < hour; time.Sleep(cost) {
			err := checks("greedy")
			if err == nil {
				passed++
				continue
			}
			if !errors.Is(err, jobs.ErrLimit) || !strings.Contains(err.Error(), `the time for flow checks of principal "greedy"`) || !strings.Contains(err.Error(), "post the flow again in") {
				t.Fatal(err)
			}
		}
		if share := time.Duration(passed) * cost; share < hour/4 || share > hour/4+2*time.Second {
			t.Errorf("%d checks have passed in an hour, which have taken %v", passed, share)
		}
		if err := checks("modest"); err != nil {
			t.Errorf("another principal: %v", err)
		}
		for range 1_000 {
			if err := checks("node/n1"); err != nil {
				t.Fatalf("a node: %v", err)
			}
		}
	})
}
