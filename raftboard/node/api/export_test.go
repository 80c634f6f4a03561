package api

import (
	"context"
	"time"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/node/admission"
)

// AnswerToClaim makes the answer to a claim whose entry has been applied.
func AnswerToClaim(a *API, job jobs.JobID, token jobs.Token) ([]*conductordv1.Claimed, error) {
	return a.claims.claimed([]*conductordv1.Granted{{Job: job.String(), Token: command.TokenToProto(token)}})
}

// InTurn performs the parts of a call in order.
func InTurn(parts int, do func(part int) error) error { return inTurn(parts, do) }

// NewFlowChecks makes checks of flows that each take the given processor time.
func NewFlowChecks(cost time.Duration) func(principal string) error {
	var spent time.Duration
	checks := &flowChecks{
		check: func(*logbook.FlowDetail, logbook.Values) error { spent += cost; return nil },
		spent: func() time.Duration { return spent }, paid: make(map[string]time.Time),
	}
	posting := &jobs.Posting{Book: &logbook.Book{ID: logbook.NewBookID(), Flows: []logbook.FlowDetail{{ID: logbook.NewFlowID()}}}}
	return func(principal string) error {
		return checks.posting(admission.WithCaller(context.Background(), &admission.Caller{Name: principal}), posting)
	}
}
