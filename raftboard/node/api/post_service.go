package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/internal/traceparent"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/node/admission"
	"github.com/conductord/conductord/raftboard/node/proposer"
	"github.com/conductord/conductord/raftboard/wire"
)

// postService answers calls that post jobs.
type postService struct {
	limits   logbook.Limits
	checks   *flowChecks
	machine  *fsm.Machine
	proposer *proposer.Proposer
	submit   *Submitter
}

// nameJobs gives ids before the call is forwarded, so that all tries of this
// node are one posting. Postings without a traceparent get the traceparent of the call's
// header. An invalid header is ignored, as W3C trace context demands.
func nameJobs(_ context.Context, header http.Header, request *conductordv1.PostRequest) error {
	parent := header.Get(traceparent.Header)
	if _, err := traceparent.Parse(traceparent.Header, parent); err != nil {
		parent = ""
	}
	for _, posting := range request.Postings {
		if posting.Id == "" {
			posting.Id = jobs.NewJobID().String()
		}
		posting.Traceparent = cmp.Or(posting.Traceparent, parent)
	}
	return nil
}

// post removes the caller's own values from a brief answer.
func (s *postService) post(ctx context.Context, request *conductordv1.PostRequest) (*conductordv1.PostResponse, uint64, error) {
	answer, index, err := s.postAll(ctx, request)
	for _, posted := range answer.GetPosted() {
		if request.Brief && !posted.Existed {
			posted.Job.Details, posted.Job.Store = nil, nil
		}
	}
	return answer, index, err
}

// postAll gives each posting its own verdict.
func (s *postService) postAll(ctx context.Context, request *conductordv1.PostRequest) (*conductordv1.PostResponse, uint64, error) {
	switch n := len(request.Postings); {
	case n == 0:
		return nil, 0, &logbook.InvalidError{Field: "postings", Reason: "none"}
	case n > command.MaxPostings:
		return nil, 0, &logbook.LimitError{Field: "postings", Limit: command.MaxPostings, Size: int64(n), Unit: "postings"}
	}
	// Checking is much of the work, and rarely finds a fault: check the whole call, and
	// each posting only if that fails.
	whole := postCommand(request.Postings)
	signed := s.submit.Guard.Sign(ctx, whole)
	if err := s.submit.mayGrow(command.Size(whole)); err != nil {
		return nil, 0, err
	}
	if signed != nil || command.Size(whole) > proposer.MaxEntryBytes {
		return s.postApart(ctx, whole, 0)
	}
	passed, err := command.CheckPost(s.limits, whole, func(place int, posting *jobs.Posting) error {
		return s.checkFlow(ctx, request.Postings[place], posting, place)
	})
	if err != nil {
		return s.postApart(ctx, whole, passed)
	}
	return s.postChecked(ctx, whole)
}

// postChecked posts checked jobs. It piggybacks matching waiting claims, so the entry that posts a
// job also claims it.
func (s *postService) postChecked(ctx context.Context, c *conductordv1.Command) (*conductordv1.PostResponse, uint64, error) {
	index, results, err := s.submit.proposeClaimed(ctx, fsm.QueuesOfPostings(c.GetPost().GetPostings()), c)
	if err != nil {
		return nil, 0, err
	}
	if err := command.ErrorFromProto(results[0].GetError()); err != nil {
		return nil, 0, err
	}
	posted, err := s.postedJobs(ctx, results[0].GetPost().GetPosted())
	return &conductordv1.PostResponse{Posted: posted}, index, err
}

// postApart gives each posting of a signed command its own verdict. Postings that cannot pass never
// reach the log; the others share commands. The first passed postings are checked already.
func (s *postService) postApart(ctx context.Context, whole *conductordv1.Command, passed int) (*conductordv1.PostResponse, uint64, error) {
	postings := whole.GetPost().GetPostings()
	answer := &conductordv1.PostResponse{Posted: make([]*conductordv1.PostedJob, len(postings))}
	var commands []*conductordv1.Command
	var places [][]int
	var load wire.Load // of the last command
	rule := wire.BatchRule{Max: wire.Load{Commands: command.MaxPostings, Bytes: min(proposer.MaxEntryBytes, s.limits.Command)}}
	accepted := 0
	for i, posting := range postings {
		if err := s.checkPosting(ctx, posting, accepted, i < passed); err != nil {
			answer.Posted[i] = refusedPosting(posting.Id, command.ErrorToProto(err))
			continue
		}
		accepted++
		own := wire.Load{Commands: 1, Bytes: command.Size(postCommand([]*conductordv1.Posting{posting}))}
		if len(commands) == 0 || rule.Full(load, own) {
			c := postCommand(nil)
			c.Principal, c.From = whole.Principal, whole.From
			commands, places, load = append(commands, c), append(places, nil), wire.Load{}
		}
		load = load.Plus(own)
		last := len(commands) - 1
		commands[last].GetPost().Postings = append(commands[last].GetPost().Postings, posting)
		places[last] = append(places[last], i)
	}
	index := s.machine.AppliedIndex()
	err := inTurn(len(commands), func(i int) (err error) {
		var results []*conductordv1.Result
		if index, results, err = s.proposer.Propose(ctx, commands[i]); err != nil {
			return err
		}
		if err := command.ErrorFromProto(results[0].GetError()); err != nil {
			return err
		}
		posted, err := s.postedJobs(ctx, results[0].GetPost().GetPosted())
		if err != nil {
			return err
		}
		for j, place := range places[i] {
			answer.Posted[place] = posted[j]
		}
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	return answer, index, nil
}

// inTurn performs the parts of a call one after another, up to the first failure. If a later part
// had no effect, an earlier one had, so the call is ambiguous.
func inTurn(parts int, do func(part int) error) error {
	for part := range parts {
		err := do(part)
		switch {
		case errors.Is(err, jobs.ErrUnavailable) && part > 0:
			return fmt.Errorf("%w: only the first part of the call took effect; the next part failed: %s", jobs.ErrUncertain, wire.WithoutClass(err))
		case err != nil:
			return err
		}
	}
	return nil
}

func postCommand(postings []*conductordv1.Posting) *conductordv1.Command {
	return &conductordv1.Command{Kind: &conductordv1.Command_Post{Post: &conductordv1.PostCommand{Postings: postings}}}
}

// postedJobs are the jobs of an answer: new jobs as created by the state machine, and existing jobs
// in their current state, read together.
func (s *postService) postedJobs(ctx context.Context, posted []*conductordv1.Posted) ([]*conductordv1.PostedJob, error) {
	answer, items := make([]*conductordv1.PostedJob, len(posted)), make([]conductordv1.PostedJob, len(posted))
	var ids []jobs.JobID
	var places []int
	for i, one := range posted {
		if one.Error != nil {
			answer[i] = refusedPosting(one.Job, one.Error)
			continue
		}
		if one.Posted != nil {
			answer[i], items[i].Job, items[i].Signal = &items[i], one.Posted, one.Signal
			continue
		}
		id, err := jobs.ParseJobID(one.Job)
		if err != nil {
			return nil, err
		}
		ids, places = append(ids, id), append(places, i)
	}
	if len(ids) == 0 {
		return answer, nil
	}
	found, err := s.machine.JobsByID(ids...)
	if err != nil {
		return nil, err
	}
	for k, place := range places {
		if !s.submit.Guard.MayShow(ctx, found[k].Board) {
			why := fmt.Errorf("cannot post job %s: %w: the id belongs to another posting; use a new id", found[k].ID, jobs.ErrConflict)
			answer[place] = refusedPosting(found[k].ID.String(), command.ErrorToProto(why))
			continue
		}
		answer[place] = &conductordv1.PostedJob{Job: command.JobToProto(&found[k]), Existed: posted[place].Existed, Signal: posted[place].Signal}
	}
	return answer, nil
}

func refusedPosting(id string, why *conductordv1.Error) *conductordv1.PostedJob {
	return &conductordv1.PostedJob{Job: &conductordv1.Job{Id: id}, Error: why}
}

// checkPosting authorizes and checks a posting with its flow, unless it was checked already.
func (s *postService) checkPosting(ctx context.Context, message *conductordv1.Posting, ahead int, passed bool) error {
	if passed {
		return nil
	}
	if err := s.submit.Guard.Allow(ctx, "post", command.Post, message); err != nil {
		return err
	}
	posting, err := command.CheckPosting(s.limits, message)
	if err != nil {
		return err
	}
	return s.checkFlow(ctx, message, &posting, ahead)
}

// checkFlow checks the flow that a posting contains. The check can cost much more than the posting,
// so a quota that would refuse the posting refuses it before the check. ahead is the number of
// earlier postings in the call.
func (s *postService) checkFlow(ctx context.Context, message *conductordv1.Posting, posting *jobs.Posting, ahead int) error {
	if who := admission.CallerOf(ctx); who != nil && s.checks.check != nil && len(message.GetBook().GetFlows()) > 0 {
		if err := s.machine.RoomFor(who.Name, message, uint64(ahead), s.submit.Guard.Now()); err != nil {
			return err
		}
	}
	return s.checks.posting(ctx, posting)
}
