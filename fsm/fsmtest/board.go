package fsmtest

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/explain"
	"github.com/conductord/conductord/logbook"
)

// eventsAtOnce is the number of events that a watch reads from the state machine at a time.
const eventsAtOnce = 256

// Post accepts postings, each for itself.
func (b *Board) Post(ctx context.Context, postings ...jobs.Posting) ([]jobs.Posted, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	answers := make([]jobs.Posted, len(postings))
	post := &v1.PostCommand{}
	var places []int // in answers, of the postings that are in the command
	for i := range postings {
		posting := postings[i]
		if posting.ID.IsZero() {
			posting.ID = jobs.NewJobID()
		}
		answers[i].Job.ID = posting.ID
		if answers[i].Err = posting.Err; posting.Err != nil {
			continue
		}
		single := &v1.PostCommand{Postings: []*v1.Posting{command.PostingToProto(&posting)}}
		if answers[i].Err = command.Check(b.options.Limits, &v1.Command{Kind: &v1.Command_Post{Post: single}}); answers[i].Err == nil {
			post.Postings = append(post.Postings, single.Postings[0])
			places = append(places, i)
		}
	}
	if len(places) == 0 {
		return answers, nil
	}
	result, err := b.run(ctx, &v1.Command{Kind: &v1.Command_Post{Post: post}})
	if err != nil {
		return nil, err
	}
	for at, posted := range result.GetPost().GetPosted() {
		answer := &answers[places[at]]
		answer.Existed = posted.GetExisted()
		if answer.Err = command.ErrorFromProto(posted.GetError()); answer.Err != nil {
			continue
		}
		id, err := jobs.ParseJobID(posted.GetJob())
		if err != nil {
			return nil, err
		}
		if answer.Job, err = b.machine.Job(id); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// Job reads a job.
func (b *Board) Job(ctx context.Context, id jobs.JobID) (jobs.Job, error) {
	if err := ctx.Err(); err != nil {
		return jobs.Job{}, err
	}
	return b.machine.JobAt(id, time.Now())
}

// Jobs reads a page of jobs.
func (b *Board) Jobs(ctx context.Context, query jobs.Query) (jobs.Page[jobs.Job], error) {
	if err := ctx.Err(); err != nil {
		return jobs.Page[jobs.Job]{}, err
	}
	return b.machine.Jobs(query)
}

// Explain explains why a job does not run now.
func (b *Board) Explain(ctx context.Context, id jobs.JobID) (jobs.Explanation, error) {
	if err := ctx.Err(); err != nil {
		return jobs.Explanation{}, err
	}
	situation, err := b.machine.Situation(id, time.Now())
	if err != nil {
		return jobs.Explanation{}, err
	}
	return explain.Job(&situation), nil
}

// Wait returns the job when it is finished or needs an operator.
func (b *Board) Wait(ctx context.Context, id jobs.JobID) (jobs.Job, error) {
	w := b.wait(func(changes fsm.Changes) bool {
		return slices.Contains(changes.Finished, id) || slices.Contains(changes.Stopped, id)
	})
	defer b.forget(w)
	for {
		job, err := b.Job(ctx, id)
		if err != nil || job.State.Finished() || job.State.NeedsOperator() {
			return job, err
		}
		select {
		case <-w.woken:
		case <-ctx.Done():
			return jobs.Job{}, ctx.Err()
		}
		if b.over() {
			return jobs.Job{}, errClosed
		}
	}
}

// Watch yields events in order.
func (b *Board) Watch(ctx context.Context, watch jobs.Watch) iter.Seq2[jobs.Event, error] {
	return func(yield func(jobs.Event, error) bool) {
		if err := jobs.CheckWatch(&watch); err != nil {
			yield(jobs.Event{}, err)
			return
		}
		w := b.wait(func(changes fsm.Changes) bool { return changes.Events })
		defer b.forget(w)
		position := b.machine.LastPosition()
		if watch.After != nil {
			position = *watch.After
		}
		if watch.Begin && !yield(jobs.Event{Kind: jobs.EventBegun, Position: position}, nil) {
			return
		}
		for ctx.Err() == nil {
			events, err := b.machine.Events(position, eventsAtOnce)
			if err != nil {
				yield(jobs.Event{}, err)
				return
			}
			for _, event := range events {
				position = event.Position
				if watch.Selects(&event) && !yield(event, nil) {
					return
				}
			}
			if len(events) > 0 {
				continue
			}
			select {
			case <-w.woken:
			case <-ctx.Done():
			}
			if b.over() {
				yield(jobs.Event{}, errClosed)
				return
			}
		}
	}
}

// Claim takes one job for a session.
func (b *Board) Claim(ctx context.Context, session jobs.SessionID, job jobs.JobID, nonce jobs.Nonce) (jobs.Claimed, error) {
	claim := &v1.ClaimCommand{Session: session.String(), Job: job.String(), Nonce: nonce.String()}
	claimed, err := b.claim(ctx, &v1.Command{Kind: &v1.Command_Claim{Claim: claim}})
	if err != nil {
		return jobs.Claimed{}, err
	}
	return claimed[0], nil
}

// claim applies a claim command, and reads the granted jobs before another command can change them.
func (b *Board) claim(ctx context.Context, c *v1.Command) ([]jobs.Claimed, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := command.Check(b.options.Limits, c); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	results, err := b.proposeLocked(c)
	if err == nil {
		err = command.ErrorFromProto(results[0].GetError())
	}
	if err != nil {
		return nil, err
	}
	var claimed []jobs.Claimed
	for _, granted := range results[0].GetClaim().GetGranted() {
		id, err := jobs.ParseJobID(granted.GetJob())
		if err != nil {
			return nil, err
		}
		one, _, err := b.machine.Claimed(id, fsm.Unbounded)
		if err != nil {
			return nil, err
		}
		claimed = append(claimed, one)
	}
	return claimed, nil
}

// ClaimNext takes the first jobs in order, and waits until there are any.
func (b *Board) ClaimNext(ctx context.Context, request jobs.ClaimRequest) ([]jobs.Claimed, error) {
	if err := jobs.CheckClaimRequest(b.options.Limits, &request); err != nil {
		return nil, err
	}
	c := &v1.Command{Kind: &v1.Command_ClaimNext{ClaimNext: command.ClaimRequestToProto(&request)}}
	w := b.wait(func(changes fsm.Changes) bool { return concerns(&request, &changes) })
	defer b.forget(w)
	timer := time.NewTimer(request.Wait)
	defer timer.Stop()
	for {
		claimed, err := b.claim(ctx, c)
		if err != nil || len(claimed) > 0 || request.Wait == 0 {
			return claimed, err
		}
		select {
		case <-w.woken:
		case <-timer.C:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// concerns reports whether a parked request may have an answer now.
func concerns(request *jobs.ClaimRequest, changes *fsm.Changes) bool {
	if changes.Undrained || slices.Contains(changes.Ended, request.Session) {
		return true
	}
	return slices.ContainsFunc(changes.Claimable, func(queue fsm.Queue) bool { return queue.Suits(request) })
}

// Extend gives a claim its own TTL.
func (b *Board) Extend(ctx context.Context, job jobs.JobID, token jobs.Token, expiry time.Duration) error {
	extend := &v1.ExtendClaimCommand{Job: job.String(), Token: command.TokenToProto(token), Expiry: command.DurationToProto(expiry)}
	_, err := b.run(ctx, &v1.Command{Kind: &v1.Command_ExtendClaim{ExtendClaim: extend}})
	return err
}

// Claims reads a page of the claims that are held.
func (b *Board) Claims(ctx context.Context, query jobs.ClaimQuery) (jobs.Page[jobs.HeldClaim], error) {
	if err := ctx.Err(); err != nil {
		return jobs.Page[jobs.HeldClaim]{}, err
	}
	return b.machine.Claims(query)
}

// Consume completes the job.
func (b *Board) Consume(ctx context.Context, ending jobs.Ending) error {
	_, err := b.run(ctx, &v1.Command{Kind: &v1.Command_Consume{Consume: command.EndingToProto(&ending)}})
	return err
}

// Abandon gives the job back.
func (b *Board) Abandon(ctx context.Context, ending jobs.Ending) error {
	_, err := b.run(ctx, &v1.Command{Kind: &v1.Command_Abandon{Abandon: command.EndingToProto(&ending)}})
	return err
}

// Trash puts the job aside.
func (b *Board) Trash(ctx context.Context, ending jobs.Ending) error {
	_, err := b.run(ctx, &v1.Command{Kind: &v1.Command_Trash{Trash: command.EndingToProto(&ending)}})
	return err
}

// Suspend suspends a job.
func (b *Board) Suspend(ctx context.Context, request jobs.JobCommand) error {
	_, err := b.run(ctx, &v1.Command{Kind: &v1.Command_Suspend{Suspend: command.JobCommandToProto(&request)}})
	return err
}

// Resume lifts a suspension.
func (b *Board) Resume(ctx context.Context, request jobs.JobCommand) error {
	_, err := b.run(ctx, &v1.Command{Kind: &v1.Command_Resume{Resume: command.JobCommandToProto(&request)}})
	return err
}

// Cancel ends a job, or has its owner end it.
func (b *Board) Cancel(ctx context.Context, request jobs.JobCommand) error {
	_, err := b.run(ctx, &v1.Command{Kind: &v1.Command_Cancel{Cancel: command.JobCommandToProto(&request)}})
	return err
}

// Transfer reserves a job for a conductor.
func (b *Board) Transfer(ctx context.Context, request jobs.JobCommand) error {
	_, err := b.run(ctx, &v1.Command{Kind: &v1.Command_Transfer{Transfer: command.JobCommandToProto(&request)}})
	return err
}

// Change gives a job another priority, time, board or place, or releases it.
func (b *Board) Change(ctx context.Context, change jobs.Change) error {
	_, err := b.run(ctx, &v1.Command{Kind: &v1.Command_Change{Change: command.ChangeToProto(&change)}})
	return err
}

// Intervene records an operator's intervention in a failed flow.
func (b *Board) Intervene(ctx context.Context, intervention logbook.Intervention) (jobs.JobID, error) {
	result, err := b.run(ctx, &v1.Command{Kind: &v1.Command_Intervene{Intervene: command.InterventionToProto(&intervention)}})
	if err != nil || result.GetIntervene().GetJob() == "" {
		return jobs.JobID{}, err
	}
	return jobs.ParseJobID(result.GetIntervene().GetJob())
}

// CreateBoard makes a board. An existing board does not change.
func (b *Board) CreateBoard(ctx context.Context, name string) error {
	_, err := b.run(ctx, &v1.Command{Kind: &v1.Command_CreateBoard{CreateBoard: &v1.BoardCommand{Board: name}}})
	return err
}

// LimitBoard replaces the limits of a board.
func (b *Board) LimitBoard(ctx context.Context, name string, limits jobs.BoardLimits) error {
	limit := &v1.LimitBoardCommand{Board: name, Limits: command.BoardLimitsToProto(limits)}
	_, err := b.run(ctx, &v1.Command{Kind: &v1.Command_LimitBoard{LimitBoard: limit}})
	return err
}

// AgeBoard has waiting raise the priority of a board's jobs.
func (b *Board) AgeBoard(ctx context.Context, name string, step time.Duration) error {
	age := &v1.AgeBoardCommand{Board: name, Step: command.DurationToProto(step)}
	_, err := b.run(ctx, &v1.Command{Kind: &v1.Command_AgeBoard{AgeBoard: age}})
	return err
}

// PauseBoard keeps everybody from claiming.
func (b *Board) PauseBoard(ctx context.Context, request jobs.BoardCommand) error {
	pause := &v1.BoardCommand{Board: request.Board, By: request.By, Reason: request.Reason}
	_, err := b.run(ctx, &v1.Command{Kind: &v1.Command_PauseBoard{PauseBoard: pause}})
	return err
}

// ResumeBoard ends a pause.
func (b *Board) ResumeBoard(ctx context.Context, request jobs.BoardCommand) error {
	resume := &v1.BoardCommand{Board: request.Board, By: request.By, Reason: request.Reason}
	_, err := b.run(ctx, &v1.Command{Kind: &v1.Command_ResumeBoard{ResumeBoard: resume}})
	return err
}

// DeleteBoard deletes a board that no other object names.
func (b *Board) DeleteBoard(ctx context.Context, name string) error {
	_, err := b.run(ctx, &v1.Command{Kind: &v1.Command_DeleteBoard{DeleteBoard: &v1.BoardCommand{Board: name}}})
	return err
}

// DrainConductor keeps the conductors of a name from claiming.
func (b *Board) DrainConductor(ctx context.Context, request jobs.DrainCommand) error {
	_, err := b.run(ctx, &v1.Command{Kind: &v1.Command_DrainConductor{DrainConductor: command.DrainCommandToProto(&request)}})
	return err
}

// UndrainConductor ends a drain.
func (b *Board) UndrainConductor(ctx context.Context, request jobs.DrainCommand) error {
	_, err := b.run(ctx, &v1.Command{Kind: &v1.Command_UndrainConductor{UndrainConductor: command.DrainCommandToProto(&request)}})
	return err
}

// Drains reads the drains that stand.
func (b *Board) Drains(ctx context.Context) ([]jobs.Drain, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return b.machine.Drains()
}

// BoardStatus reads a board.
func (b *Board) BoardStatus(ctx context.Context, name string) (jobs.BoardStatus, error) {
	if err := ctx.Err(); err != nil {
		return jobs.BoardStatus{}, err
	}
	return b.machine.BoardStatus(name, time.Now())
}

// BoardList reads boards by name.
func (b *Board) BoardList(ctx context.Context, after string, limit int) (jobs.Page[jobs.BoardStatus], error) {
	if err := ctx.Err(); err != nil {
		return jobs.Page[jobs.BoardStatus]{}, err
	}
	return b.machine.BoardList(after, limit, time.Now())
}

// OpenSession opens a session.
func (b *Board) OpenSession(ctx context.Context, opening jobs.Opening) (jobs.Session, error) {
	result, err := b.run(ctx, &v1.Command{Kind: &v1.Command_OpenSession{OpenSession: command.OpeningToProto(&opening)}})
	if err != nil {
		return jobs.Session{}, err
	}
	return command.SessionFromProto(result.GetSession())
}

// KeepAlive checks whether the session is open. It extends nothing: no session of this board
// expires by itself.
func (b *Board) KeepAlive(ctx context.Context, id jobs.SessionID) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	_, err := b.machine.Session(id)
	if errors.Is(err, logbook.ErrNotFound) {
		return jobs.ErrSessionExpired
	}
	return err
}

// CloseSession ends a session at once.
func (b *Board) CloseSession(ctx context.Context, id jobs.SessionID) error {
	_, err := b.run(ctx, &v1.Command{Kind: &v1.Command_CloseSession{CloseSession: &v1.CloseSessionCommand{Session: id.String()}}})
	return err
}

// Register makes an entity known, or replaces it.
func (b *Board) Register(ctx context.Context, id jobs.SessionID, entity jobs.Entity) error {
	register := &v1.RegisterCommand{Session: id.String(), Entity: command.EntityToProto(&entity)}
	_, err := b.run(ctx, &v1.Command{Kind: &v1.Command_Register{Register: register}})
	return err
}

// Sessions reads the open sessions.
func (b *Board) Sessions(ctx context.Context) ([]jobs.Session, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return b.machine.Sessions()
}

// Entities reads the entities of a kind, or of all kinds.
func (b *Board) Entities(ctx context.Context, kind string) ([]jobs.Entity, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return b.machine.Entities(kind)
}
