package api

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/node/admission"
	"github.com/conductord/conductord/valuekeys"
)

// The checks of flows of one principal use one part in checkShare of a processor, and up to
// checkSaved at once after a time without checks. The limit exists because a short document can
// define a flow of thousands of steps.
const (
	checkShare = 4
	checkSaved = time.Second
)

// flowChecks checks the flows of postings, and divides the time for the checks among principals.
// Its methods may be called concurrently.
type flowChecks struct {
	check func(flow *logbook.FlowDetail, store logbook.Values) error // Options.CheckFlow; nil: every flow passes

	spent func() time.Duration // threadTime; tests replace it

	mu   sync.Mutex
	paid map[string]time.Time // by principal: time at which its share has paid for its checks; guarded by mu
}

// posting checks the flow that a posting contains, if the rest of the posting is valid. It does not
// check a flow that was saved earlier, or a flow with encrypted arguments.
func (c *flowChecks) posting(ctx context.Context, posting *jobs.Posting) error {
	if c.check == nil || posting.Book == nil {
		return nil
	}
	flows := posting.Book.Flows
	for i := range flows {
		detail := &flows[i]
		if detail.ID != posting.Flow && len(flows) > 1 {
			continue
		}
		if _, encrypted := valuekeys.KeyID(detail.Factory.Args); encrypted {
			return nil
		}
		if err := c.admit(ctx); err != nil {
			return err
		}
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		began := c.spent()
		defer func() { c.charge(ctx, c.spent()-began) }()
		return c.check(detail, posting.Store)
	}
	return nil
}

// admit refuses a check for a principal whose checks have used more than its share.
func (c *flowChecks) admit(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err // the caller no longer waits
	}
	who := admission.CallerOf(ctx)
	if who == nil || who.Trusted() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	owed := time.Until(c.paid[who.Name]) / checkShare
	if owed <= checkSaved {
		return nil
	}
	return fmt.Errorf("post the flow again in %v: %w", ((owed - checkSaved) * checkShare).Round(time.Millisecond), &logbook.LimitError{
		Field: fmt.Sprintf("the time for flow checks of %s", access.Subject{Principal: who.Name}),
		Limit: checkSaved.Milliseconds(), Size: owed.Milliseconds(), Unit: "ms of a processor",
	})
}

// charge counts the time of a check. Principals without debt are removed.
func (c *flowChecks) charge(ctx context.Context, took time.Duration) {
	who, now := admission.CallerOf(ctx), time.Now()
	if who == nil || who.Trusted() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for principal, at := range c.paid {
		if at.Before(now) {
			delete(c.paid, principal)
		}
	}
	if c.paid[who.Name].Before(now) {
		c.paid[who.Name] = now
	}
	c.paid[who.Name] = c.paid[who.Name].Add(checkShare * took)
}
