package api

import (
	"context"
	"fmt"
	"slices"
	"time"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/explain"
	"github.com/conductord/conductord/jobs/steps"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/node/clock"
	"github.com/conductord/conductord/raftboard/node/lead"
	"github.com/conductord/conductord/raftboard/node/offers"
	"github.com/conductord/conductord/raftboard/node/polls"
	"github.com/conductord/conductord/raftboard/node/proposer"
)

// boardService answers calls about jobs and boards.
type boardService struct {
	elsewhere *Elsewhere
	machine   *fsm.Machine
	clock     *clock.Clock
	leader    *lead.State
	reads     *lead.Reads
	polls     *polls.Polls
	submit    *Submitter
	offers    *offers.Matcher
}

func (s *boardService) getJob(message *conductordv1.GetJobRequest) (*conductordv1.GetJobResponse, error) {
	id, err := jobs.ParseJobID(message.Id)
	if err != nil {
		return nil, err
	}
	job, err := s.machine.JobAt(id, s.clock.AnswerTime())
	if err != nil {
		return nil, err
	}
	return &conductordv1.GetJobResponse{Job: command.JobToProto(&job)}, nil
}

func (s *boardService) explain(ctx context.Context, message *conductordv1.ExplainRequest) (*conductordv1.ExplainResponse, error) {
	id, err := jobs.ParseJobID(message.Id)
	if err != nil {
		return nil, err
	}
	situation, err := s.machine.Situation(id, s.clock.AnswerTime())
	if err != nil {
		return nil, err
	}
	if job := &situation.Job; job.Claim != nil {
		situation.Holder = &jobs.HeldClaim{Job: job.ID, Claim: *job.Claim}
		s.leader.TimeHolder(situation.Holder)
		if situation.Untaken = s.offers.Waiting(job.ID); len(situation.Untaken) > 0 {
			if situation.Workers, err = s.machine.Entities(jobs.EntityWorker); err != nil {
				return nil, err
			}
			situation.Workers = s.ableOn(job.Board, situation.Workers)
			situation.Live = make(map[jobs.SessionID]steps.Live, len(situation.Workers))
			for i := range situation.Workers {
				worker := &situation.Workers[i]
				situation.Live[worker.Session] = s.offers.Live(worker, situation.Now, func(logbook.FlowID) bool { return true })
			}
		}
	}
	if situation.Job.Reason != "" && s.submit.Guard.HidesValuesFrom(ctx) != "" {
		situation.Job.Reason = "the reason is hidden from you"
	}
	situation.Conductors = s.ableOn(situation.Job.Board, situation.Conductors)
	explanation := explain.Job(&situation)
	return command.ExplanationToProto(&explanation), nil
}

// ableOn removes the entities whose principals may not work on the board.
func (s *boardService) ableOn(board string, entities []jobs.Entity) []jobs.Entity {
	return slices.DeleteFunc(entities, func(entity jobs.Entity) bool {
		works, err := s.submit.Guard.WorksOn(entity.Session, board)
		return err != nil || !works
	})
}

func (s *boardService) list(ctx context.Context, message *conductordv1.ListJobsRequest) (*conductordv1.ListJobsResponse, error) {
	query, err := command.QueryFromProto(message)
	if err != nil {
		return nil, err
	}
	shows, err := s.submit.Guard.ShownBoards(ctx)
	if err != nil {
		return nil, err
	}
	answer := &conductordv1.ListJobsResponse{}
	found, next, err := shown(query.After, func(after string) ([]jobs.Job, string, error) {
		query.After = after
		page, err := s.machine.Jobs(query)
		answer.Scans = page.Scans
		return page.Items, page.Next, err
	}, func(job *jobs.Job) bool { return shows(job.Board) }, nil)
	answer.Next, answer.Jobs = next, ToProto(found, command.JobToProto)
	return answer, err
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
	current, err := s.leader.Serving()
	if err != nil {
		return nil, 0, err
	}
	release, err := s.submit.Guard.HoldPoll(ctx, timeout, false)
	if err != nil {
		return nil, 0, err
	}
	defer release()
	finished, leave := s.polls.AwaitFinish(id)
	defer leave()
	index, err := s.reads.Wait(ctx)
	if err != nil {
		return nil, 0, err
	}
	job, stopped, err := s.machine.FinishedJob(id)
	if err == nil && job == nil && !stopped {
		if err := s.leader.Linger(ctx, current, timeout, finished); err != nil {
			return nil, 0, err
		}
		index = s.machine.AppliedIndex()
		job, _, err = s.machine.FinishedJob(id)
	}
	if err == nil && job == nil { // it needs an operator, or the time is over
		var now *conductordv1.GetJobResponse
		now, err = s.getJob(&conductordv1.GetJobRequest{Id: message.Id})
		job = now.GetJob()
	}
	return &conductordv1.WaitJobResponse{Job: job}, index, err
}

func (s *boardService) waitStep(ctx context.Context, message *conductordv1.WaitStepRequest) (*conductordv1.WaitStepResponse, uint64, error) {
	id, err := jobs.ParseJobID(message.Job)
	if err != nil {
		return nil, 0, err
	}
	timeout, err := pollTime("timeout", message.Timeout)
	if err != nil {
		return nil, 0, err
	}
	current, err := s.leader.Serving()
	if err != nil {
		return nil, 0, err
	}
	release, err := s.submit.Guard.HoldPoll(ctx, timeout, false)
	if err != nil {
		return nil, 0, err
	}
	defer release()
	index, err := s.reads.Wait(ctx)
	if err != nil {
		return nil, 0, err
	}
	step, err := s.machine.Step(id, message.Step)
	for until := time.Now().Add(timeout); err == nil && !step.Settled() && time.Now().Before(until); {
		step, index, err = s.nextStep(ctx, current, &step, time.Until(until))
	}
	if err != nil {
		return nil, 0, err
	}
	return &conductordv1.WaitStepResponse{Step: command.StepToProto(&step)}, index, nil
}

// nextStep reads a step again after its next change, or after the given time. If the step has settled since
// it was read, nextStep does not wait.
func (s *boardService) nextStep(ctx context.Context, current *lead.Leadership, was *jobs.Step, atMost time.Duration) (step jobs.Step, index uint64, err error) {
	changed, leave := s.polls.AwaitStep(was.Flow, was.Atom.Name)
	defer leave()
	index = s.machine.AppliedIndex()
	if step, err = s.machine.Step(was.Job, was.Atom.Name); err != nil || step.Settled() {
		return step, index, err
	}
	if err := s.leader.Linger(ctx, current, atMost, changed); err != nil {
		return step, index, err
	}
	index = s.machine.AppliedIndex()
	step, err = s.machine.Step(was.Job, was.Atom.Name)
	return step, index, err
}

// execute applies many commands, each with its own result.
func (s *boardService) execute(ctx context.Context, message *conductordv1.ExecuteRequest) (*conductordv1.ExecuteResponse, uint64, error) {
	if err := checkExecutable(message.Commands); err != nil {
		return nil, 0, err
	}
	for _, c := range message.Commands {
		for _, posting := range c.GetPost().GetPostings() { // only Post forwards postings
			if err := s.elsewhere.Refuse(posting.GetBoard()); err != nil {
				return nil, 0, err
			}
		}
	}
	index, results, err := s.submit.all(ctx, message.Commands...)
	for _, result := range results {
		for _, posted := range result.GetPost().GetPosted() {
			posted.Posted = nil // only Post returns the jobs
		}
		for _, granted := range result.GetClaim().GetGranted() {
			granted.Claimed = nil // and only Claim returns these
		}
	}
	return &conductordv1.ExecuteResponse{Results: results}, index, err
}

func checkExecutable(commands []*conductordv1.Command) error {
	switch n := len(commands); {
	case n == 0:
		return &logbook.InvalidError{Field: "commands", Reason: "none"}
	case n > proposer.MaxEntryCommands:
		return &logbook.LimitError{Field: "commands", Limit: proposer.MaxEntryCommands, Size: int64(n), Unit: "commands"}
	}
	for _, c := range commands {
		if command.LeaderOnly(c) {
			return fmt.Errorf("%w: only the leader can use the command %s", jobs.ErrNotAllowed, command.Name(c))
		}
		if c.GetClaimNext() != nil {
			return &logbook.InvalidError{Field: "commands", Reason: "claim_next waits, and has its own call"}
		}
		if c.GetOpenSession() != nil {
			return &logbook.InvalidError{Field: "commands", Reason: "open_session counts for its client, and has its own call"}
		}
	}
	return nil
}

func (s *boardService) listErrors(ctx context.Context, message *conductordv1.ListErrorsRequest) (*conductordv1.ListErrorsResponse, error) {
	query, err := command.ErrorQueryFromProto(message)
	if err != nil {
		return nil, err
	}
	shows, err := s.submit.Guard.ShownBoards(ctx)
	if err != nil {
		return nil, err
	}
	answer := &conductordv1.ListErrorsResponse{}
	found, next, err := shown(message.After, func(after string) ([]jobs.JobError, string, error) {
		query.After = after
		page, err := s.machine.Errors(query)
		answer.Scans = page.Scans
		return page.Items, page.Next, err
	}, func(e *jobs.JobError) bool { return shows(e.Board) }, nil)
	answer.Next, answer.Errors = next, ToProto(found, command.JobErrorToProto)
	return answer, err
}

// bulk lists a page of jobs, and applies the same command to each in one entry. If a
// job has changed since it was listed, its command is refused or harmless.
func (s *boardService) bulk(ctx context.Context, message *conductordv1.BulkRequest) (*conductordv1.BulkResponse, uint64, error) {
	bulk, err := command.BulkFromProto(message)
	if err != nil {
		return nil, 0, err
	}
	query, err := bulk.Narrowed()
	if err != nil {
		return nil, 0, err
	}
	index, err := s.reads.Wait(ctx)
	if err != nil {
		return nil, 0, err
	}
	page, err := s.machine.Jobs(query)
	if err != nil {
		return nil, 0, err
	}
	page.Items = slices.DeleteFunc(page.Items, func(j jobs.Job) bool { return !bulk.Selects(&j) })
	answer := &conductordv1.BulkResponse{Matched: uint32(len(page.Items)), Next: page.Next, Scans: page.Scans}
	if bulk.DryRun || len(page.Items) == 0 {
		return answer, index, nil
	}
	commands := make([]*conductordv1.Command, len(page.Items))
	for i := range page.Items {
		commands[i] = command.BulkCommand(&bulk, &page.Items[i])
	}
	index, results, err := s.submit.all(ctx, commands...)
	if err != nil {
		return nil, 0, err
	}
	for i, result := range results {
		if result.GetError() == nil {
			answer.Done++
			continue
		}
		answer.Refused = append(answer.Refused, &conductordv1.BulkRefusal{Job: page.Items[i].ID.String(), Error: result.GetError()})
	}
	return answer, index, nil
}

func (s *boardService) getBoard(message *conductordv1.GetBoardRequest) (*conductordv1.GetBoardResponse, error) {
	board, err := s.machine.BoardStatus(message.Board, s.clock.AnswerTime())
	if err != nil {
		return nil, err
	}
	return &conductordv1.GetBoardResponse{Board: command.BoardToProto(&board)}, nil
}

// ownIDDigits is the minimum length of an id prefix from a caller that cannot read all boards. The search must be
// complete, and must not reveal how many ids of other boards match. 9 digits match the ids of about 4 s.
const ownIDDigits = 9

// findIDs finds ids by prefix, among the ids that the caller may see.
func (s *boardService) findIDs(ctx context.Context, message *conductordv1.FindIDsRequest) (*conductordv1.FindIDsResponse, error) {
	prefix, err := jobs.ParseIDPrefix(jobs.IDNoun(message.Noun), message.Prefix)
	if err != nil {
		return nil, err
	}
	shows, all, err := s.submit.Guard.ShownIDs(ctx)
	if err != nil {
		return nil, err
	}
	if !all && len(prefix.Digits) < ownIDDigits {
		return nil, &logbook.InvalidError{Field: message.Noun + " id", Reason: fmt.Sprintf(
			"%.64q is too short: use at least %d digits, because you do not have access to all boards", message.Prefix, ownIDDigits)}
	}
	found, err := s.machine.FindIDs(prefix, shows)
	answer := &conductordv1.FindIDsResponse{More: found.More && (all || len(found.IDs) == jobs.MaxIDMatches)}
	for _, id := range found.IDs {
		answer.Ids = append(answer.Ids, id.String())
	}
	return answer, err
}

func (s *boardService) listBoards(ctx context.Context, message *conductordv1.ListBoardsRequest) (*conductordv1.ListBoardsResponse, error) {
	boards, next, err := shown(message.After, func(after string) ([]jobs.BoardStatus, string, error) {
		page, err := s.machine.BoardList(after, int(min(message.Limit, logbook.MaxPage)), s.clock.AnswerTime())
		return page.Items, page.Next, err
	}, func(board *jobs.BoardStatus) bool { return s.submit.Guard.MayShow(ctx, board.Name) }, func(kept []jobs.BoardStatus) string { return kept[len(kept)-1].Name })
	return &conductordv1.ListBoardsResponse{Next: next, Boards: ToProto(boards, command.BoardToProto)}, err
}
