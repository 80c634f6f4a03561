package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/steps"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/node/clock"
	"github.com/conductord/conductord/raftboard/node/lead"
	"github.com/conductord/conductord/raftboard/node/offers"
	"github.com/conductord/conductord/raftboard/wire"
)

const (
	// recordLook is the interval at which a report checks whether it is recorded, in addition to
	// the checks after changes of its flow: a restored snapshot reports no changed flows.
	recordLook = time.Second
	// placeLook is the interval at which an attempt that was withheld from a worker looks for one
	// again.
	placeLook = 500 * time.Millisecond
)

// workerService answers the calls of step workers, and of conductors that offer steps to workers.
// Only the leader answers. The state decides what a worker may report, and whether the report is
// recorded. Offers only connect the two sides.
type workerService struct {
	limits  logbook.Limits
	machine *fsm.Machine
	leader  *lead.State
	reads   *lead.Reads
	offers  *offers.Matcher
	router  *Router
	clock   *clock.Clock
}

func (s *workerService) offer(ctx context.Context, message *conductordv1.OfferStepRequest) (*conductordv1.OfferStepResponse, uint64, error) {
	o, wait, err := s.offerOf(message)
	if err != nil {
		return nil, 0, err
	}
	current, err := s.begin(ctx)
	if err != nil {
		return nil, 0, err
	}
	if err := s.router.Memory.MayGrow(); err != nil {
		return nil, 0, err
	}
	if err := s.checkOffer(o); err != nil {
		return nil, 0, err
	}
	release, err := s.router.Guard.HoldPoll(ctx, wait, false)
	if err != nil {
		return nil, 0, err
	}
	defer release()
	if err := s.offers.Offer(o); err != nil {
		return nil, 0, err
	}
	defer s.offers.Withdraw(o)
	if lost, err := s.checkSessions(o); err != nil {
		return nil, 0, err
	} else if lost {
		return &conductordv1.OfferStepResponse{Lost: true}, s.machine.AppliedIndex(), nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	look := time.NewTicker(placeLook)
	defer look.Stop()
	answer := &conductordv1.OfferStepResponse{}
	for {
		select {
		case got := <-o.Answer:
			if answer.Lost = got.Lost; got.Worker != (jobs.SessionID{}) {
				answer.Worker, answer.WorkerName = got.Worker.String(), got.Name
			}
			if got.Outcome != nil {
				answer.Outcome = command.StepOutcomeToProto(got.Outcome)
			}
			return answer, s.machine.AppliedIndex(), nil
		case <-look.C:
			if worker := o.Offer.Worker; !worker.IsZero() {
				if works, err := s.router.Guard.WorksOn(worker, o.Board); err == nil && !works {
					s.offers.Lose(o)
				}
			}
			s.offers.Place(o)
		case <-timer.C:
			return answer, s.machine.AppliedIndex(), nil
		case <-current.Over:
			return nil, 0, s.leader.Ended()
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
}

// checkSessions reports whether the session of the step's worker has ended. If the only session that
// may take the step has ended, it widens the offer. Call it after the offer has become visible, so
// that no end of a session is missed.
func (s *workerService) checkSessions(o *offers.Offer) (lost bool, err error) {
	ended := func(id jobs.SessionID) (bool, error) {
		_, err := s.machine.Session(id)
		if errors.Is(err, jobs.ErrSessionExpired) || errors.Is(err, jobs.ErrNotFound) {
			return true, nil
		}
		return false, err
	}
	if worker := o.Offer.Worker; !worker.IsZero() {
		if lost, err := ended(worker); lost || err != nil {
			return lost, err
		}
	}
	if only := o.Offer.Only.Session; !only.IsZero() {
		gone, err := ended(only)
		if err != nil {
			return false, err
		}
		if gone {
			s.offers.Widen(o)
		}
	}
	return false, nil
}

// begin waits until this node's state has all acknowledged writes.
func (s *workerService) begin(ctx context.Context) (*lead.Leadership, error) {
	current, err := s.leader.Serving()
	if err != nil {
		return nil, err
	}
	_, err = s.reads.Wait(ctx)
	return current, err
}

func (s *workerService) offerOf(message *conductordv1.OfferStepRequest) (*offers.Offer, time.Duration, error) {
	wait, err := pollTime("wait", message.Wait)
	if err != nil {
		return nil, 0, err
	}
	o := &offers.Offer{Work: message.Work, Size: command.SizeOf(message.Work), Answer: make(chan steps.Answer, 1)}
	if o.Offer.Work, err = command.StepWorkFromProto(message.Work); err != nil {
		return nil, 0, err
	}
	if o.Offer.Session, err = jobs.ParseSessionID(message.Session); err != nil {
		return nil, 0, err
	}
	if message.Worker != "" {
		if o.Offer.Worker, err = jobs.ParseSessionID(message.Worker); err != nil {
			return nil, 0, err
		}
	}
	if message.OnlySession != "" {
		if o.Offer.Only.Session, err = jobs.ParseSessionID(message.OnlySession); err != nil {
			return nil, 0, err
		}
		if o.Offer.Only.Name = message.OnlyName; o.Offer.Only.Name != "" {
			if err := s.limits.CheckName("only_name", o.Offer.Only.Name); err != nil {
				return nil, 0, err
			}
		}
	}
	if message.Refused > 0 {
		o.Offer.Refused, o.Offer.Refusal = int(message.Refused), command.ErrorFromProto(message.Refusal)
	}
	if o.Offer.Since, err = command.TimeFromProto("since", message.Since); err != nil {
		return nil, 0, err
	}
	o.Offer.Stop = message.Stop
	if err := s.limits.CheckName("type", o.Offer.Work.Type); err != nil {
		return nil, 0, err
	}
	for _, label := range o.Offer.Work.Labels {
		if err := s.limits.CheckName("label", label); err != nil {
			return nil, 0, err
		}
	}
	if n := len(o.Offer.Work.Labels); n > jobs.MaxOffered {
		return nil, 0, &logbook.LimitError{Field: "labels", Limit: jobs.MaxOffered, Size: int64(n), Unit: "labels"}
	}
	return o, wait, nil
}

// checkOffer compares an offer with the state. Only the owner of the flow may offer its steps, and
// a worker gets only an attempt that the logbook has for a worker.
func (s *workerService) checkOffer(o *offers.Offer) error {
	work := &o.Offer.Work
	job, err := s.machine.Job(work.Job)
	if err != nil {
		return err
	}
	if job.Claim == nil || job.Claim.Token != work.Token || job.Claim.Session != o.Offer.Session || job.Flow != work.Flow {
		return fmt.Errorf("cannot offer %s: %w: session %s does not hold job %s under token %s", work.ID, jobs.ErrFenced, o.Offer.Session, work.Job, work.Token)
	}
	o.Board, o.Work.Board = job.Board, job.Board // the conductor's own value is ignored
	attempt, latest, err := s.machine.Attempt(work.Flow, work.Step, work.Action, work.Attempt)
	if err != nil {
		return err
	}
	worker := ""
	if o.Offer.Worker != (jobs.SessionID{}) {
		worker = o.Offer.Worker.String()
	}
	if !latest || attempt.Ended() || !attempt.Offered || attempt.Asked != work.Asked || attempt.Worker != worker {
		return fmt.Errorf("cannot offer %s: %w: in the logbook, the attempt is not open, or not offered to worker %q", work.ID, jobs.ErrFenced, worker)
	}
	return s.findFailed(o)
}

// findFailed finds the workers that have failed at the step, which a new attempt should avoid.
func (s *workerService) findFailed(o *offers.Offer) error {
	work := &o.Offer.Work
	if o.Offer.Worker != (jobs.SessionID{}) || !o.Offer.Only.Session.IsZero() || work.Attempt == 1 {
		return nil
	}
	failed, err := s.machine.FailedWorkers(work.Flow, work.Step, work.Action)
	if err != nil {
		return err
	}
	for _, text := range failed {
		if session, err := jobs.ParseSessionID(text); err == nil {
			o.Failed = append(o.Failed, session)
		}
	}
	return nil
}

func (s *workerService) pull(ctx context.Context, message *conductordv1.PullStepsRequest) (*conductordv1.PullStepsResponse, uint64, error) {
	wait, err := pollTime("wait", message.Wait)
	if err != nil {
		return nil, 0, err
	}
	guard := s.router.Guard
	if p := guard.HidesValuesFrom(ctx); p != "" {
		return nil, 0, fmt.Errorf("%w: principal %q has no permission to read values, and workers receive values", jobs.ErrNotAllowed, p)
	}
	p, err := pullOf(message)
	if err != nil {
		return nil, 0, err
	}
	current, err := s.begin(ctx)
	if err != nil {
		return nil, 0, err
	}
	if p.Worker, p.Principal, err = s.worker(p.Session); err != nil {
		return nil, 0, err
	}
	p.Sees = func(board string) bool { return guard.MayOn(ctx, command.Work, board) }
	release, err := guard.HoldPoll(ctx, wait, false)
	if err != nil {
		return nil, 0, err
	}
	defer release()
	s.offers.Pull(p)
	defer s.offers.Leave(p)
	// After the call has become visible, so that no end of an attempt is missed.
	if over, err := s.over(p.Session, message.Holds); err != nil || len(over) > 0 {
		return &conductordv1.PullStepsResponse{Stop: over}, s.machine.AppliedIndex(), err
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for promised := p.Promised; ; {
		select {
		case answer := <-p.Answer:
			err := s.addCheckpoints(answer)
			return answer, s.machine.AppliedIndex(), err
		case <-promised:
			promised = nil
			timer.Reset(offers.PromiseTime)
		case <-timer.C:
			return &conductordv1.PullStepsResponse{}, s.machine.AppliedIndex(), nil
		case <-current.Over:
			return nil, 0, s.leader.Ended()
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
}

// addCheckpoints adds the recorded checkpoints to the attempts that a worker gets. The conductor does not send them,
// because it repeats its offer after each report. Attempts beyond the size of an answer wait for the next call.
func (s *workerService) addCheckpoints(answer *conductordv1.PullStepsResponse) error {
	size := 0
	for i, work := range answer.Work {
		id, err := command.StepIDFromProto(work.Id)
		if err != nil {
			return err
		}
		checkpoints, err := s.machine.Checkpoints(id.Flow, id.Step)
		if err != nil {
			return err
		}
		if len(checkpoints) > 0 {
			work = proto.CloneOf(work) // the offer has the original
			work.Checkpoints = checkpoints
			answer.Work[i] = work
		}
		if size += command.SizeOf(work); i > 0 && size > wire.PageBytes {
			answer.Work = answer.Work[:i]
			return nil
		}
	}
	return nil
}

func pullOf(message *conductordv1.PullStepsRequest) (*offers.Pull, error) {
	session, err := jobs.ParseSessionID(message.Session)
	if err != nil {
		return nil, err
	}
	if message.Slots > steps.MaxSlots {
		return nil, &logbook.LimitError{Field: "slots", Limit: steps.MaxSlots, Size: int64(message.Slots), Unit: "attempts"}
	}
	if n := len(message.Holds); n > steps.MaxHeld {
		return nil, &logbook.LimitError{Field: "holds", Limit: steps.MaxHeld, Size: int64(n), Unit: "attempts"}
	}
	p := &offers.Pull{
		Session: session, Free: int(message.Slots), Refill: message.Refill, Holds: make(map[steps.ID]bool, len(message.Holds)),
		Promised: make(chan struct{}), Answer: make(chan *conductordv1.PullStepsResponse, 1),
	}
	for _, held := range message.Holds {
		id, err := command.StepIDFromProto(held.GetId())
		if err != nil {
			return nil, err
		}
		p.Holds[id] = held.Stopping
	}
	return p, nil
}

// list lists the workers that the caller may see, like lists of entities.
func (s *workerService) list(ctx context.Context, message *conductordv1.ListWorkersRequest) (*conductordv1.ListWorkersResponse, uint64, error) {
	if _, err := s.begin(ctx); err != nil {
		return nil, 0, err
	}
	entities, next, err := shown(message.After, func(after string) ([]jobs.Entity, string, error) {
		return s.machine.EntityPage(jobs.EntityWorker, "", after, logbook.MaxPage)
	}, func(entity *jobs.Entity) bool {
		return s.router.Guard.ShowEntity(ctx, entity) && (message.Board == "" || len(entity.Boards) == 0 || slices.Contains(entity.Boards, message.Board))
	}, fsm.EntityCursor)
	if err != nil {
		return nil, 0, err
	}
	answer := &conductordv1.ListWorkersResponse{Next: next}
	for i := range entities {
		live := s.offers.Live(&entities[i], s.clock.AnswerTime(), func(flow logbook.FlowID) bool {
			board, _, err := s.machine.BoardOfWork(flow)
			return err == nil && s.router.Guard.MayShow(ctx, board)
		})
		answer.Workers = append(answer.Workers, command.LiveWorkerToProto(&live))
	}
	return answer, s.machine.AppliedIndex(), nil
}

// worker is the worker that a session has registered, and the principal that opened the session.
func (s *workerService) worker(session jobs.SessionID) (worker jobs.Entity, principal string, err error) {
	opened, err := s.machine.Session(session)
	if err != nil {
		return jobs.Entity{}, "", err
	}
	workers, err := s.machine.Entities(jobs.EntityWorker)
	for i := range workers {
		if workers[i].Session == session {
			return workers[i], opened.Principal, nil
		}
	}
	if err == nil {
		err = &logbook.InvalidError{Field: "session", Reason: fmt.Sprintf("%s has registered no entity of the kind %q: call SessionService/Register first", session, jobs.EntityWorker)}
	}
	return jobs.Entity{}, "", err
}

// over returns the attempts that a worker holds and must end, except attempts that are already
// stopping. It frees the slots of attempts whose end is recorded.
func (s *workerService) over(session jobs.SessionID, holds []*conductordv1.HeldStep) ([]*conductordv1.StepAttempt, error) {
	if len(holds) == 0 {
		return nil, nil
	}
	followed := s.offers.Followed(session)
	var over []*conductordv1.StepAttempt
	for _, held := range holds {
		id, err := command.StepIDFromProto(held.Id)
		if err != nil {
			return nil, err
		}
		if followed[id] {
			continue
		}
		attempt, latest, err := s.machine.Attempt(id.Flow, id.Step, id.Action, id.Attempt)
		if err != nil {
			return nil, err
		}
		open := latest && !attempt.Ended() && attempt.Asked == id.Asked && attempt.Worker == session.String()
		if !open && held.Stopping {
			s.offers.Freed(session, id)
		} else if !open {
			over = append(over, held.Id)
		}
	}
	return over, nil
}

func (s *workerService) report(ctx context.Context, message *conductordv1.ReportStepRequest) (*conductordv1.ReportStepResponse, uint64, error) {
	wait, err := pollTime("wait", message.Wait)
	if err != nil {
		return nil, 0, err
	}
	worker, err := jobs.ParseSessionID(message.Session)
	if err != nil {
		return nil, 0, err
	}
	for _, sent := range message.Outcome.GetSends() {
		if sent.Signal != nil {
			sent.Signal.By = "" // the conductor names the job
		}
	}
	s.router.Guard.MarkSends(ctx, message.Outcome.GetId().GetFlow(), message.Outcome.GetSends())
	outcome, err := command.StepOutcomeFromProto(message.Outcome)
	if err != nil {
		return nil, 0, err
	}
	if err := s.checkOutcome(&outcome); err != nil {
		return nil, 0, err
	}
	current, err := s.begin(ctx)
	if err != nil {
		return nil, 0, err
	}
	release, err := s.router.Guard.HoldPoll(ctx, wait, false)
	if err != nil {
		return nil, 0, err
	}
	defer release()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	look := time.NewTicker(recordLook)
	defer look.Stop()
	waiting, leave := s.offers.AwaitReport(outcome.Flow)
	defer leave()
	for over := false; ; {
		recorded, err := s.recorded(ctx, worker, &outcome)
		if recorded && outcome.Done {
			s.offers.Freed(worker, outcome.ID)
		}
		if err == nil && !recorded && outcome.Checkpoint != nil {
			err = s.offers.Refusal(worker, &outcome)
		}
		if err != nil || recorded {
			return &conductordv1.ReportStepResponse{Recorded: recorded}, s.machine.AppliedIndex(), err
		}
		passed := s.offers.Report(worker, &outcome)
		waits := outcome.Done || outcome.Checkpoint != nil // for the record
		if over || passed && !waits {
			return &conductordv1.ReportStepResponse{Recorded: passed && !waits}, s.machine.AppliedIndex(), nil
		}
		select {
		case <-waiting.News:
		case <-look.C:
		case <-timer.C:
			over = true
		case <-current.Over:
			return nil, 0, s.leader.Ended()
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
}

func (s *workerService) checkOutcome(o *steps.Outcome) error {
	ends := 0
	for _, given := range []bool{o.Result != nil, o.Failure != nil, o.NotYet != 0} {
		if given {
			ends++
		}
	}
	switch {
	case o.Done && ends != 1:
		return &logbook.InvalidError{Field: "outcome", Reason: fmt.Sprintf("done is set with %d of result, failure and not_yet; set exactly one", ends)}
	case !o.Done && ends > 0:
		return &logbook.InvalidError{Field: "outcome", Reason: "it has a result, a failure or not_yet, and is not done"}
	case o.NotYet < 0 || o.NotYet > flow.MaxAsk:
		return &logbook.InvalidError{Field: "not_yet", Reason: fmt.Sprintf("%s; it must be positive, and at most %s", o.NotYet, flow.MaxAsk)}
	case len(o.Output) > steps.MaxOutput:
		return &logbook.LimitError{Field: "output", Limit: steps.MaxOutput, Size: int64(len(o.Output)), Unit: "bytes"}
	case len(o.Stderr) > logbook.MaxStderr:
		return &logbook.LimitError{Field: "stderr", Limit: logbook.MaxStderr, Size: int64(len(o.Stderr)), Unit: "bytes"}
	}
	if p := o.Progress; p != nil {
		if p.Done < 0 || p.Total < 0 || p.Total > 0 && p.Done > p.Total {
			return &logbook.InvalidError{Field: "progress", Reason: fmt.Sprintf("%d of %d", p.Done, p.Total)}
		}
		if err := (logbook.Limits{Value: flow.MaxDetails}).CheckValue("progress details", p.Details); err != nil {
			return err
		}
	}
	if err := s.limits.CheckFailure("failure", o.Failure); err != nil {
		return err
	}
	if err := s.checkCheckpoint(o); err != nil {
		return err
	}
	if len(o.Sends) > 0 && (o.Result == nil || o.Action != logbook.ActionExecute) {
		return &logbook.InvalidError{Field: "sends", Reason: "set in a report that is not the result of an execution"}
	}
	logbook.NameSends(o.Flow, o.SendPlace(), o.Sends)
	if err := s.limits.CheckSends(o.Sends); err != nil {
		return err
	}
	return s.limits.CheckValue("result", o.Result)
}

// checkCheckpoint checks the checkpoint of a report. The conductor checks the limits of plain values.
func (s *workerService) checkCheckpoint(o *steps.Outcome) error {
	switch {
	case o.Checkpoint == nil:
		return nil
	case o.Done:
		return &logbook.InvalidError{Field: "outcome", Reason: "it has done and a checkpoint; report each checkpoint before the end"}
	case o.Checkpoint.Number < 1:
		return &logbook.InvalidError{Field: "checkpoint number", Reason: "0; number the checkpoints of an attempt from 1"}
	}
	return s.limits.CheckCheckpoint(o.Checkpoint)
}

// recorded reports whether the logbook has an outcome. It refuses an outcome of another
// worker's attempt, and of an attempt that has ended in another way.
func (s *workerService) recorded(ctx context.Context, worker jobs.SessionID, o *steps.Outcome) (bool, error) {
	if _, err := s.machine.Session(worker); err != nil {
		return false, err
	}
	board, _, err := s.machine.BoardOfWork(o.Flow)
	if err != nil {
		return false, err
	}
	attempt, latest, err := s.machine.Attempt(o.Flow, o.Step, o.Action, o.Attempt)
	refused := ""
	switch {
	case err != nil:
		return false, err
	case !latest && !attempt.Ended() || !s.router.Guard.MayOn(ctx, command.Work, board):
		refused = "there is no such attempt"
	case attempt.Asked == o.Asked+1 && o.NotYet > 0:
		return true, nil
	case attempt.Asked != o.Asked:
		refused = fmt.Sprintf("the attempt is at poll %d", attempt.Asked)
	case attempt.Worker != worker.String():
		refused = fmt.Sprintf("the attempt does not belong to session %s", worker)
	case !attempt.Ended() && o.Checkpoint != nil:
		number, err := s.machine.Checkpointed(o.Flow, o.Step, o.Action, o.Attempt, o.Asked)
		return number >= o.Checkpoint.Number, err
	case !attempt.Ended():
		return false, nil
	case o.Done && (attempt.Failure != nil) == (o.Failure != nil):
		return true, nil
	case !o.Done:
		refused = "the attempt has ended"
	default:
		refused = "the attempt has ended with a different outcome"
	}
	return false, fmt.Errorf("cannot report %s: %w: %s", o.ID, jobs.ErrFenced, refused)
}
