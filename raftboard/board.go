package raftboard

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/api/conductord/v1/conductordv1connect"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/internal/traceparent"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/wire"
)

// makeBatchers makes the batchers of the writes. Updates and endings have one
// call in flight, because an update that overtakes another of its flow is
// refused. All other writes have no order among callers, and two calls.
func (c *core) makeBatchers() {
	c.posts = newBatcher(c, 2, c.sendPostings, func(p *v1.PostedJob) error { return command.ErrorFromProto(p.GetError()) })
	c.posts.each = true
	verdict := func(r *v1.Result) error { return command.ErrorFromProto(r.GetError()) }
	c.ordered = newBatcher(c, 1, c.sendCommands, verdict)
	c.others = newBatcher(c, 2, c.sendCommands, verdict)
}

func (c *core) sendPostings(ctx context.Context, p *peer, postings []*v1.Posting) ([]*v1.PostedJob, *tryError) {
	answer, failed := exchange(ctx, c, p, operation{over: conductordv1connect.BoardServicePostProcedure}, &v1.PostRequest{Postings: postings, Brief: true}, p.board.Post)
	if failed != nil {
		return nil, failed
	}
	return answer.GetPosted(), checkCount(len(postings), len(answer.GetPosted()))
}

func (c *core) sendCommands(ctx context.Context, p *peer, commands []*v1.Command) ([]*v1.Result, *tryError) {
	answer, failed := exchange(ctx, c, p, operation{over: conductordv1connect.BoardServiceExecuteProcedure}, &v1.ExecuteRequest{Commands: commands}, p.board.Execute)
	if failed != nil {
		return nil, failed
	}
	return answer.GetResults(), checkCount(len(commands), len(answer.GetResults()))
}

// submit checks one command, sends it and returns its result.
func submit(ctx context.Context, b *batcher[*v1.Command, *v1.Result], name string, c *v1.Command) (*v1.Result, error) {
	if err := b.core.prepare(c); err != nil {
		return nil, fmt.Errorf("cannot %s: %w", name, err)
	}
	return execute(ctx, b, name, c)
}

// execute sends one checked command, and returns its result.
func execute(ctx context.Context, b *batcher[*v1.Command, *v1.Result], name string, c *v1.Command) (*v1.Result, error) {
	results, _, err := b.do(ctx, operation{name: name}, []*v1.Command{c})
	if err != nil {
		return nil, err
	}
	if err := b.verdict(results[0]); err != nil {
		return nil, cannot(name, err)
	}
	return results[0], nil
}

// remove checks and sends a command that removes an object. A missing object is an error,
// except after an attempt with an ambiguous result.
func (c *Client) remove(ctx context.Context, name string, message *v1.Command, gone error) error {
	if err := command.Check(logbook.MaxLimits, message); err != nil {
		return fmt.Errorf("cannot %s: %w", name, err)
	}
	results, repeated, err := c.others.do(ctx, operation{name: name}, []*v1.Command{message})
	if err != nil {
		return err
	}
	err = c.others.verdict(results[0])
	if err == nil || (repeated && errors.Is(err, gone)) {
		return nil
	}
	return cannot(name, err)
}

// Post implements jobs.Poster. It gives ids to postings without one before the first try, so that
// no try makes a second job. Postings without a traceparent get the traceparent of the span in
// ctx.
func (c *Client) Post(ctx context.Context, postings ...jobs.Posting) ([]jobs.Posted, error) {
	posted := make([]jobs.Posted, len(postings))
	own := make([]bool, len(postings)) // its id was made here
	var messages []*v1.Posting
	var places []int // indexes of the messages in posted
	for i, posting := range postings {
		if own[i] = posting.ID.IsZero(); own[i] {
			posting.ID = jobs.NewJobID()
		}
		posted[i].Job.ID = posting.ID
		posting.Traceparent = cmp.Or(posting.Traceparent, traceparent.Of(ctx))
		message := command.PostingToProto(&posting)
		if posted[i].Err = c.preparePosting(&posting, message); posted[i].Err == nil {
			messages, places = append(messages, message), append(places, i)
		}
	}
	op := operation{name: fmt.Sprintf("post %d jobs", len(postings))}
	if len(postings) == 1 {
		op.name = "post job " + posted[0].Job.ID.String()
	}
	answers, _, err := c.posts.do(ctx, op, messages)
	if err != nil {
		return nil, err
	}
	for k, answer := range answers {
		place := places[k]
		if err := readPosted(answer, own[place], &posted[place], postings[place].Signal); err != nil {
			return nil, fmt.Errorf("cannot %s: %w", op.name, err)
		}
		if !answer.GetExisted() && posted[place].Err == nil {
			restore(&posted[place].Job, &postings[place])
		}
	}
	return posted, nil
}

// preparePosting refuses a posting that no node would accept, so that it does not hold back the
// other postings. It encrypts the values of the message.
func (c *core) preparePosting(posting *jobs.Posting, message *v1.Posting) error {
	if err := checkSize("posting", command.SizeOf(message)); err != nil {
		return err
	}
	if err := jobs.CheckPosting(c.plainLimits(), posting); err != nil || c.options.ValueKeys == nil {
		return err
	}
	c.encrypt(message)
	return checkSize("posting", command.SizeOf(message))
}

// checkSize refuses a command that no node would accept.
func checkSize(field string, size int) error {
	if size > wire.MaxCommand {
		return &logbook.LimitError{Field: field, Limit: wire.MaxCommand, Size: int64(size), Unit: "bytes"}
	}
	return nil
}

func readPosted(answer *v1.PostedJob, own bool, posted *jobs.Posted, signal *logbook.Signal) error {
	if posted.Err = command.ErrorFromProto(answer.GetError()); posted.Err != nil {
		return nil
	}
	job, err := command.JobFromProto(answer.GetJob())
	// Only this call knows an id that it made: if that job existed, an earlier
	// attempt posted it.
	posted.Existed = answer.GetExisted() && (!own || job.ID != posted.Job.ID)
	posted.Job = job
	if err == nil && signal != nil {
		posted.Signal, err = readReceipt(answer.GetSignal(), own && signal.ID == "")
	}
	return unreadable(err)
}

// restore adds the parts that a brief answer omits, in its own memory, because the caller may reuse
// the posting's memory.
func restore(job *jobs.Job, posting *jobs.Posting) {
	job.Details = bytes.Clone(posting.Details)
	if len(posting.Store) > 0 {
		job.Store = make(logbook.Values, len(posting.Store))
		for name, value := range posting.Store {
			job.Store[name] = bytes.Clone(value)
		}
	}
}

// unreadable marks an answer that this program does not understand. The call has taken effect.
func unreadable(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: the answer cannot be read: %v", jobs.ErrUncertain, err)
}

// Consume implements jobs.Claimer.
func (c *Client) Consume(ctx context.Context, ending jobs.Ending) error {
	return c.end(ctx, "consume", ending, &v1.Command{Kind: &v1.Command_Consume{Consume: command.EndingToProto(&ending)}})
}

// Abandon implements jobs.Claimer.
func (c *Client) Abandon(ctx context.Context, ending jobs.Ending) error {
	return c.end(ctx, "abandon", ending, &v1.Command{Kind: &v1.Command_Abandon{Abandon: command.EndingToProto(&ending)}})
}

// Trash implements jobs.Claimer.
func (c *Client) Trash(ctx context.Context, ending jobs.Ending) error {
	return c.end(ctx, "trash", ending, &v1.Command{Kind: &v1.Command_Trash{Trash: command.EndingToProto(&ending)}})
}

func (c *Client) end(ctx context.Context, verb string, ending jobs.Ending, message *v1.Command) error {
	name := verb + " job " + ending.Job.String()
	if err := c.prepare(message); err != nil {
		return fmt.Errorf("cannot %s: %w", name, err)
	}
	results, err := c.write(ctx, operation{name: name}, []*v1.Command{message})
	if err != nil {
		return err
	}
	if err := command.ErrorFromProto(results[0].GetError()); err != nil {
		return cannot(name, err)
	}
	return nil
}

// Suspend implements jobs.Controller.
func (c *Client) Suspend(ctx context.Context, request jobs.JobCommand) error {
	return c.order(ctx, "suspend", request, &v1.Command{Kind: &v1.Command_Suspend{Suspend: command.JobCommandToProto(&request)}})
}

// Resume implements jobs.Controller.
func (c *Client) Resume(ctx context.Context, request jobs.JobCommand) error {
	return c.order(ctx, "resume", request, &v1.Command{Kind: &v1.Command_Resume{Resume: command.JobCommandToProto(&request)}})
}

// Cancel implements jobs.Controller.
func (c *Client) Cancel(ctx context.Context, request jobs.JobCommand) error {
	return c.order(ctx, "cancel", request, &v1.Command{Kind: &v1.Command_Cancel{Cancel: command.JobCommandToProto(&request)}})
}

// Transfer implements jobs.Controller.
func (c *Client) Transfer(ctx context.Context, request jobs.JobCommand) error {
	return c.order(ctx, "transfer", request, &v1.Command{Kind: &v1.Command_Transfer{Transfer: command.JobCommandToProto(&request)}})
}

// Unreserve implements jobs.Controller.
func (c *Client) Unreserve(ctx context.Context, request jobs.JobCommand) error {
	return c.order(ctx, "unreserve", request, &v1.Command{Kind: &v1.Command_Unreserve{Unreserve: command.JobCommandToProto(&request)}})
}

// RetryNow implements jobs.Controller.
func (c *Client) RetryNow(ctx context.Context, request jobs.JobCommand) error {
	return c.order(ctx, "retry now", request, &v1.Command{Kind: &v1.Command_RetryNow{RetryNow: command.JobCommandToProto(&request)}})
}

// Signal implements jobs.Signaller.
func (c *Client) Signal(ctx context.Context, job jobs.JobID, signal logbook.Signal) (jobs.SignalReceipt, error) {
	return c.signal(ctx, fmt.Sprintf("send signal %q to job %s", signal.Name, job), jobs.SignalCommand{Job: job, Signal: signal})
}

// SignalKey implements jobs.Signaller.
func (c *Client) SignalKey(ctx context.Context, board, key string, signal logbook.Signal) (jobs.SignalReceipt, error) {
	return c.signal(ctx, fmt.Sprintf("send signal %q to the job with key %q", signal.Name, key), jobs.SignalCommand{Board: board, Key: key, Signal: signal})
}

func (c *Client) signal(ctx context.Context, name string, sent jobs.SignalCommand) (jobs.SignalReceipt, error) {
	own := sent.Signal.ID == ""
	if own {
		sent.Signal.ID = uuid.NewString() // identifies the repeats of this call
	}
	message := &v1.Command{Kind: &v1.Command_Signal{Signal: command.SignalCommandToProto(&sent)}}
	result, err := submit(ctx, c.others, name, message)
	if err != nil {
		return jobs.SignalReceipt{}, err
	}
	return readReceipt(result.GetSignal(), own)
}

// Publish implements jobs.Publisher.
func (c *Client) Publish(ctx context.Context, publication jobs.Publication) (jobs.PublishReceipt, error) {
	own := publication.Signal.ID == ""
	if own {
		publication.Signal.ID = uuid.NewString() // identifies the repeats of this call
	}
	message := &v1.Command{Kind: &v1.Command_Publish{Publish: command.PublicationToProto(&publication)}}
	result, err := submit(ctx, c.others, fmt.Sprintf("publish to topic %q", publication.Topic), message)
	if err != nil {
		return jobs.PublishReceipt{}, err
	}
	receipt, err := command.PublishReceiptFromProto(result.GetPublish())
	if own && receipt.Answer == jobs.SignalRepeated {
		receipt.Answer, receipt.First = receipt.First, ""
	}
	return receipt, unreadable(err)
}

// readReceipt reads the answer to a signal. Only this call knows an id that it made: if the answer is repeated, an
// earlier attempt sent the signal.
func readReceipt(answer *v1.SignalResult, own bool) (jobs.SignalReceipt, error) {
	receipt, err := command.SignalReceiptFromProto(answer)
	if own && receipt.Answer == jobs.SignalRepeated {
		receipt.Answer, receipt.First = receipt.First, ""
	}
	return receipt, unreadable(err)
}

// Change implements jobs.Controller.
func (c *Client) Change(ctx context.Context, change jobs.Change) error {
	if change.ID == uuid.Nil {
		change.ID = uuid.New() // identifies the repeats of this call
	}
	message := &v1.Command{Kind: &v1.Command_Change{Change: command.ChangeToProto(&change)}}
	return c.send(ctx, "change job "+change.Job.String(), message)
}

// Intervene implements jobs.Controller.
func (c *Client) Intervene(ctx context.Context, intervention logbook.Intervention) (jobs.JobID, error) {
	name := fmt.Sprintf("%s in flow %s", intervention.Kind, intervention.Flow)
	message := &v1.Command{Kind: &v1.Command_Intervene{Intervene: command.InterventionToProto(&intervention)}}
	result, err := submit(ctx, c.others, name, message)
	if err != nil || result.GetIntervene().GetJob() == "" {
		return jobs.JobID{}, err
	}
	job, err := jobs.ParseJobID(result.GetIntervene().GetJob())
	return job, unreadable(err)
}

func (c *Client) order(ctx context.Context, verb string, request jobs.JobCommand, message *v1.Command) error {
	return c.send(ctx, verb+" job "+request.Job.String(), message)
}

// send sends a command that can be repeated unchanged, and whose result has no content.
func (c *Client) send(ctx context.Context, name string, message *v1.Command) error {
	_, err := submit(ctx, c.others, name, message)
	return err
}

// Claim implements jobs.Claimer.
func (c *Client) Claim(ctx context.Context, session jobs.SessionID, job jobs.JobID, nonce jobs.Nonce) (jobs.Claimed, error) {
	request := &v1.ClaimCommand{Session: session.String(), Job: job.String(), Nonce: nonce.String()}
	op := operation{name: "claim job " + job.String(), over: conductordv1connect.BoardServiceClaimProcedure}
	answer, err := call(ctx, c.core, op, request, func(p *peer) unary[v1.ClaimCommand, v1.ClaimResponse] { return p.board.Claim })
	if err != nil {
		return jobs.Claimed{}, err
	}
	return c.claimed(ctx, session, answer.GetClaimed())
}

// claimed reads the answer to a claim, and then the flow if it was too large for
// the answer.
func (c *Client) claimed(ctx context.Context, session jobs.SessionID, message *v1.Claimed) (jobs.Claimed, error) {
	claimed, err := command.ClaimedFromProto(message)
	if err != nil {
		return jobs.Claimed{}, fmt.Errorf("cannot claim a job: %w", unreadable(err))
	}
	if err := claimed.CheckOwner(session); err != nil {
		return jobs.Claimed{}, fmt.Errorf("cannot claim a job: %w: %w", jobs.ErrUncertain, err)
	}
	if !message.GetFlowOmitted() {
		return claimed, nil
	}
	flow, err := c.FlowDetail(ctx, claimed.Job.Flow)
	if err != nil {
		// The claim is made. A repeat with its nonce returns it again.
		return jobs.Claimed{}, fmt.Errorf("cannot load the flow of job %s, which is claimed: %w: %s", claimed.Job.ID, jobs.ErrUncertain, wire.WithoutClass(err))
	}
	claimed.Flow = &flow
	return claimed, nil
}

// ClaimNext implements jobs.Claimer, with as many calls as the wait needs, all with the request's
// nonce.
func (c *Client) ClaimNext(ctx context.Context, request jobs.ClaimRequest) ([]jobs.Claimed, error) {
	if err := jobs.CheckClaimRequest(logbook.MaxLimits, &request); err != nil {
		return nil, fmt.Errorf("cannot claim jobs: %w", err)
	}
	until := time.Now().Add(request.Wait)
	for {
		answer, err := c.claimNext(ctx, request, until)
		if err != nil {
			return nil, err
		}
		if len(answer.GetClaimed()) > 0 || !time.Now().Before(until) {
			return c.allClaimed(ctx, request.Session, answer.GetClaimed())
		}
	}
}

// claimNext repeats the call until it gets an answer. Each attempt waits for the remaining time.
// After a lost answer, the next attempt returns that answer's claims, by the nonce, so the result
// is not ambiguous.
func (c *Client) claimNext(ctx context.Context, request jobs.ClaimRequest, until time.Time) (*v1.ClaimNextResponse, error) {
	message := &v1.ClaimNextRequest{Claim: command.ClaimRequestToProto(&request)}
	op := operation{name: "claim jobs", over: conductordv1connect.BoardServiceClaimNextProcedure}
	op.each = func() time.Duration {
		wait := max(0, min(time.Until(until), pollTime))
		message.Wait = command.DurationToProto(wait)
		return wait + pollGrace
	}
	return call(ctx, c.core, op, message, func(p *peer) unary[v1.ClaimNextRequest, v1.ClaimNextResponse] { return p.board.ClaimNext })
}

func (c *Client) allClaimed(ctx context.Context, session jobs.SessionID, messages []*v1.Claimed) ([]jobs.Claimed, error) {
	var all []jobs.Claimed
	for _, message := range messages {
		claimed, err := c.claimed(ctx, session, message)
		if err != nil {
			return nil, err
		}
		all = append(all, claimed)
	}
	return all, nil
}

// Job implements jobs.Reader.
func (c *Client) Job(ctx context.Context, id jobs.JobID) (jobs.Job, error) {
	op := operation{name: "read job " + id.String(), reads: true, stale: c.stale, over: conductordv1connect.BoardServiceGetJobProcedure}
	request := &v1.GetJobRequest{Id: id.String(), Stale: c.stale}
	answer, err := call(ctx, c.core, op, request, func(p *peer) unary[v1.GetJobRequest, v1.GetJobResponse] { return p.board.GetJob })
	if err != nil {
		return jobs.Job{}, err
	}
	return decoded(op, answer.GetJob(), command.JobFromProto)
}

// Explain implements jobs.Reader.
func (c *Client) Explain(ctx context.Context, id jobs.JobID) (jobs.Explanation, error) {
	op := operation{name: "explain job " + id.String(), reads: true, stale: c.stale}
	request := &v1.ExplainRequest{Id: id.String(), Stale: c.stale}
	answer, err := call(ctx, c.core, op, request, func(p *peer) unary[v1.ExplainRequest, v1.ExplainResponse] { return p.board.Explain })
	if err != nil {
		return jobs.Explanation{}, err
	}
	return decoded(op, answer, command.ExplanationFromProto)
}

// Jobs implements jobs.Reader.
func (c *Client) Jobs(ctx context.Context, query jobs.Query) (jobs.Page[jobs.Job], error) {
	op := operation{name: "list jobs", reads: true, stale: c.stale}
	query.Limit = int(pageLimit(query.Limit))
	request := command.QueryToProto(&query)
	request.Stale = c.stale
	answer, err := call(ctx, c.core, op, request, func(p *peer) unary[v1.ListJobsRequest, v1.ListJobsResponse] { return p.board.ListJobs })
	page, err := paged(op, answer.GetJobs(), answer.GetNext(), command.JobFromProto, err)
	page.Scans = answer.GetScans()
	return page, err
}

// pageLimit is the limit of a listing, as defined by the interfaces.
func pageLimit(limit int) uint32 {
	if limit <= 0 || limit > logbook.MaxPage {
		return logbook.MaxPage
	}
	return uint32(limit)
}

// Wait implements jobs.Reader, with as many long polls as needed.
func (c *Client) Wait(ctx context.Context, id jobs.JobID) (jobs.Job, error) {
	op := operation{name: "wait for job " + id.String(), reads: true, try: pollTime + pollGrace, over: conductordv1connect.BoardServiceWaitJobProcedure}
	request := &v1.WaitJobRequest{Id: id.String(), Timeout: command.DurationToProto(pollTime)}
	for {
		answer, err := call(ctx, c.core, op, request, func(p *peer) unary[v1.WaitJobRequest, v1.WaitJobResponse] { return p.board.WaitJob })
		if err != nil {
			return jobs.Job{}, err
		}
		job, err := decoded(op, answer.GetJob(), command.JobFromProto)
		if err != nil || job.State.Finished() || job.State.NeedsOperator() {
			return job, err
		}
	}
}

// Step implements jobs.Reader.
func (c *Client) Step(ctx context.Context, job jobs.JobID, step string) (jobs.Step, error) {
	return c.step(ctx, operation{name: fmt.Sprintf("read step %.64q of job %s", step, job), reads: true}, job, step, 0)
}

// WaitStep implements jobs.Reader, with as many long polls as needed.
func (c *Client) WaitStep(ctx context.Context, job jobs.JobID, step string) (jobs.Step, error) {
	op := operation{name: fmt.Sprintf("wait for step %.64q of job %s", step, job), reads: true, try: pollTime + pollGrace}
	for {
		found, err := c.step(ctx, op, job, step, pollTime)
		if err != nil || found.Settled() {
			return found, err
		}
	}
}

func (c *Client) step(ctx context.Context, op operation, job jobs.JobID, step string, wait time.Duration) (jobs.Step, error) {
	request := &v1.WaitStepRequest{Job: job.String(), Step: step, Timeout: command.DurationToProto(wait)}
	answer, err := call(ctx, c.core, op, request, func(p *peer) unary[v1.WaitStepRequest, v1.WaitStepResponse] { return p.board.WaitStep })
	if err != nil {
		return jobs.Step{}, err
	}
	return decoded(op, answer.GetStep(), command.StepFromProto)
}

// A poll must not be longer than a node allows.
const _ = uint64(wire.MaxPoll - pollTime)
