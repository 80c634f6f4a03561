package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/wire"
)

// maxClaimedFlow bounds a flow's detail in the answer to a claim, in bytes; a
// larger one is left out, and read in parts.
const maxClaimedFlow = wire.PageBytes

// boardService answers calls about jobs.
type boardService struct{ *Node }

// nameJobs gives ids before the call is forwarded, so that all tries of this
// node are one posting.
func nameJobs(_ context.Context, _ http.Header, request *conductordv1.PostRequest) error {
	for _, posting := range request.Postings {
		if posting.Id == "" {
			posting.Id = jobs.NewJobID().String()
		}
	}
	return nil
}

// post answers as shortly as it is asked to.
func (s *boardService) post(ctx context.Context, request *conductordv1.PostRequest) (*conductordv1.PostResponse, uint64, error) {
	answer, index, err := s.postAll(ctx, request)
	for _, posted := range answer.GetPosted() {
		if request.Brief && !posted.Existed {
			posted.Job.Details, posted.Job.Store = nil, nil
		}
	}
	return answer, index, err
}

// postAll gives each posting its own verdict.
func (s *boardService) postAll(ctx context.Context, request *conductordv1.PostRequest) (*conductordv1.PostResponse, uint64, error) {
	switch n := len(request.Postings); {
	case n == 0:
		return nil, 0, &logbook.InvalidError{Field: "postings", Reason: "none"}
	case n > command.MaxPostings:
		return nil, 0, &logbook.LimitError{Field: "postings", Limit: command.MaxPostings, Size: int64(n), Unit: "postings"}
	}
	// Checking is a good part of the work, and mostly finds nothing: only a call
	// that is refused as a whole is looked at posting by posting.
	whole := postCommand(request.Postings)
	if err := s.disk.mayGrow(command.Size(whole)); err != nil {
		return nil, 0, err
	}
	if command.Size(whole) <= maxEntryBytes && command.Check(s.options.Limits, whole) == nil && s.flowsPass(request.Postings) {
		return s.postChecked(ctx, whole)
	}
	return s.postApart(ctx, request)
}

// postChecked posts what has been checked. Claims that wait for just that go
// with it, so that a job which somebody waits for is claimed by the entry that
// posts it.
func (s *boardService) postChecked(ctx context.Context, c *conductordv1.Command) (*conductordv1.PostResponse, uint64, error) {
	index, results, err := s.proposer.proposeWith(ctx, s.polls.piggyback(c.GetPost().GetPostings()), c)
	if err != nil {
		return nil, 0, err
	}
	if err := command.ErrorFromProto(results[0].GetError()); err != nil {
		return nil, 0, err
	}
	posted, err := s.postedJobs(results[0].GetPost().GetPosted())
	return &conductordv1.PostResponse{Posted: posted}, index, err
}

// postApart gives each posting its own verdict: those that cannot pass never
// reach the log, and the others share a command.
func (s *boardService) postApart(ctx context.Context, request *conductordv1.PostRequest) (*conductordv1.PostResponse, uint64, error) {
	answer := &conductordv1.PostResponse{Posted: make([]*conductordv1.PostedJob, len(request.Postings))}
	var commands []*conductordv1.Command
	var places [][]int
	size := 0
	for i, posting := range request.Postings {
		err := command.CheckPosting(s.options.Limits, posting)
		if err == nil {
			err = s.checkFlow(posting)
		}
		if err != nil {
			answer.Posted[i] = refusedPosting(posting.Id, command.ErrorToProto(err))
			continue
		}
		if own := command.SizeOf(posting); len(commands) == 0 || size+own > maxEntryBytes {
			commands = append(commands, postCommand(nil))
			places = append(places, nil)
			size = 0
		}
		size += command.SizeOf(posting)
		last := len(commands) - 1
		commands[last].GetPost().Postings = append(commands[last].GetPost().Postings, posting)
		places[last] = append(places[last], i)
	}
	index := s.machine.AppliedIndex()
	err := inTurn(len(commands), func(i int) (err error) {
		var result *conductordv1.Result
		if index, result, err = s.submitOne(ctx, commands[i]); err != nil {
			return err
		}
		posted, err := s.postedJobs(result.GetPost().GetPosted())
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

// inTurn does the parts of a call one after another, up to the first that fails.
// That a later part did not happen does not say so of the call.
func inTurn(parts int, do func(part int) error) error {
	for part := range parts {
		err := do(part)
		switch {
		case errors.Is(err, jobs.ErrUnavailable) && part > 0:
			return fmt.Errorf("%w: the first part of it has: then %v", jobs.ErrUncertain, err)
		case err != nil:
			return err
		}
	}
	return nil
}

func (s *boardService) flowsPass(postings []*conductordv1.Posting) bool {
	for _, posting := range postings {
		if s.checkFlow(posting) != nil {
			return false
		}
	}
	return true
}

// checkFlow finds the faults of the flow that a posting brings, which is
// otherwise in order. A flow that is saved already has been checked, or not, by
// whoever saved it.
func (s *boardService) checkFlow(posting *conductordv1.Posting) error {
	flows := posting.GetBook().GetFlows()
	if s.options.CheckFlow == nil {
		return nil
	}
	for _, message := range flows {
		if message.GetId() != posting.GetFlow() && len(flows) > 1 {
			continue
		}
		detail, err := command.FlowDetailFromProto(message)
		if err != nil {
			return err
		}
		return s.options.CheckFlow(&detail, command.ValuesFromProto(posting.GetStore()))
	}
	return nil
}

func postCommand(postings []*conductordv1.Posting) *conductordv1.Command {
	return &conductordv1.Command{Kind: &conductordv1.Command_Post{Post: &conductordv1.PostCommand{Postings: postings}}}
}

// postedJobs are the jobs of an answer: those that were made as the state
// machine made them, and those that existed as they are, read all at once.
func (s *boardService) postedJobs(posted []*conductordv1.Posted) ([]*conductordv1.PostedJob, error) {
	answer := make([]*conductordv1.PostedJob, len(posted))
	var ids []jobs.JobID
	var places []int
	for i, one := range posted {
		if one.Error != nil {
			answer[i] = refusedPosting(one.Job, one.Error)
			continue
		}
		if one.Posted != nil {
			answer[i] = &conductordv1.PostedJob{Job: one.Posted}
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
		answer[place] = &conductordv1.PostedJob{Job: command.JobToProto(&found[k]), Existed: posted[place].Existed}
	}
	return answer, nil
}

func refusedPosting(id string, why *conductordv1.Error) *conductordv1.PostedJob {
	return &conductordv1.PostedJob{Job: &conductordv1.Job{Id: id}, Error: why}
}

func (s *boardService) getJob(message *conductordv1.GetJobRequest) (*conductordv1.GetJobResponse, error) {
	job, err := s.job(message.Id)
	return &conductordv1.GetJobResponse{Job: job}, err
}

func (s *boardService) job(text string) (*conductordv1.Job, error) {
	id, err := jobs.ParseJobID(text)
	if err != nil {
		return nil, err
	}
	job, err := s.machine.JobAt(id, s.clock.answerTime())
	if err != nil {
		return nil, err
	}
	return command.JobToProto(&job), nil
}

func (s *boardService) explain(message *conductordv1.ExplainRequest) (*conductordv1.ExplainResponse, error) {
	id, err := jobs.ParseJobID(message.Id)
	if err != nil {
		return nil, err
	}
	situation, err := s.machine.Situation(id, s.clock.answerTime())
	if err != nil {
		return nil, err
	}
	if job := &situation.Job; job.Claim != nil {
		situation.Holder = &jobs.HeldClaim{Job: job.ID, Claim: *job.Claim}
		s.timeHolder(situation.Holder)
	}
	explanation := jobs.Explain(&situation)
	return command.ExplanationToProto(&explanation), nil
}

func (s *boardService) list(message *conductordv1.ListJobsRequest) (*conductordv1.ListJobsResponse, error) {
	query, err := command.QueryFromProto(message)
	if err != nil {
		return nil, err
	}
	page, err := s.machine.Jobs(query)
	if err != nil {
		return nil, err
	}
	answer := &conductordv1.ListJobsResponse{Next: page.Next, Scans: page.Scans}
	for i := range page.Jobs {
		answer.Jobs = append(answer.Jobs, command.JobToProto(&page.Jobs[i]))
	}
	return answer, nil
}

func (s *boardService) wait(ctx context.Context, message *conductordv1.WaitJobRequest) (*conductordv1.WaitJobResponse, uint64, error) {
	id, err := jobs.ParseJobID(message.Id)
	if err != nil {
		return nil, 0, err
	}
	timeout, err := pollTime("timeout", message.Timeout)
	if err != nil {
		return nil, 0, err
	}
	current, err := s.leader.serving()
	if err != nil {
		return nil, 0, err
	}
	finished, leave := s.polls.awaitFinish(id)
	defer leave()
	index, err := s.reads.wait(ctx)
	if err != nil {
		return nil, 0, err
	}
	job, err := s.job(message.Id)
	if err != nil || jobs.State(job.State).Finished() {
		return &conductordv1.WaitJobResponse{Job: job}, index, err
	}
	if err := s.leader.linger(ctx, current, timeout, finished); err != nil {
		return nil, 0, err
	}
	index = s.machine.AppliedIndex()
	job, err = s.job(message.Id)
	return &conductordv1.WaitJobResponse{Job: job}, index, err
}

func (s *boardService) claim(ctx context.Context, message *conductordv1.ClaimCommand) (*conductordv1.ClaimResponse, uint64, error) {
	index, result, err := s.submitOne(ctx, &conductordv1.Command{Kind: &conductordv1.Command_Claim{Claim: message}})
	if err != nil {
		return nil, 0, err
	}
	claimed, err := s.claimed(result.GetClaim().GetGranted())
	if err != nil {
		return nil, 0, err
	}
	if len(claimed) == 0 {
		return nil, 0, fmt.Errorf("cannot claim job %s: %w: the claim was granted, and has ended since; claim it with a new nonce", message.Job, jobs.ErrUnclaimable)
	}
	return &conductordv1.ClaimResponse{Claimed: claimed[0]}, index, nil
}

// claimed loads what the claimant needs to start. A claim that has ended since
// it was granted is left out: its job may have another owner, and the answer
// would hand over that owner's token.
func (s *boardService) claimed(granted []*conductordv1.Granted) ([]*conductordv1.Claimed, error) {
	var answer []*conductordv1.Claimed
	budget := maxClaimedFlow
	for _, grant := range granted {
		id, err := jobs.ParseJobID(grant.Job)
		if err != nil {
			return nil, err
		}
		claimed, omitted, err := s.machine.Claimed(id, budget)
		if errors.Is(err, jobs.ErrNotFound) {
			continue // finished and removed since
		}
		if err != nil {
			return nil, err
		}
		if claimed.Job.Claim == nil || claimed.Job.Claim.Token != command.TokenFromProto(grant.Token) {
			continue
		}
		message := command.ClaimedToProto(&claimed)
		message.FlowOmitted = omitted
		budget = max(0, budget-command.SizeOf(message.Flow))
		answer = append(answer, message)
	}
	return answer, nil
}

// execute applies many commands, each with its own result.
func (s *boardService) execute(ctx context.Context, message *conductordv1.ExecuteRequest) (*conductordv1.ExecuteResponse, uint64, error) {
	if err := checkExecutable(message.Commands); err != nil {
		return nil, 0, err
	}
	index, results, err := s.submit(ctx, message.Commands...)
	for _, result := range results {
		for _, posted := range result.GetPost().GetPosted() {
			posted.Posted = nil // only Post answers with the jobs
		}
	}
	return &conductordv1.ExecuteResponse{Results: results}, index, err
}

func checkExecutable(commands []*conductordv1.Command) error {
	switch n := len(commands); {
	case n == 0:
		return &logbook.InvalidError{Field: "commands", Reason: "none"}
	case n > maxEntryCommands:
		return &logbook.LimitError{Field: "commands", Limit: maxEntryCommands, Size: int64(n), Unit: "commands"}
	}
	for _, c := range commands {
		if command.LeaderOnly(c) {
			return fmt.Errorf("%w: %s is a command of the leader's own", jobs.ErrNotAllowed, command.Name(c))
		}
		if c.GetClaimNext() != nil {
			return &logbook.InvalidError{Field: "commands", Reason: "claim_next waits, and has a call of its own"}
		}
		if c.GetOpenSession() != nil {
			return &logbook.InvalidError{Field: "commands", Reason: "open_session is counted for its client, and has a call of its own"}
		}
	}
	return nil
}
