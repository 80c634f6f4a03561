package raftboard

import (
	"context"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/api/conductord/v1/conductordv1connect"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/steps"
)

// pollOperation is the operation of a call that waits at the leader and can be repeated.
func pollOperation(name, procedure string, wait time.Duration) operation {
	return operation{name: name, over: procedure, reads: true, try: wait + pollGrace}
}

// OfferStep implements steps.Offerer.
func (c *Client) OfferStep(ctx context.Context, offer steps.Offer) (steps.Answer, error) {
	wait := min(offer.Wait, pollTime)
	op := pollOperation("offer "+offer.Work.ID.String(), conductordv1connect.WorkerServiceOfferProcedure, wait)
	request := &v1.OfferStepRequest{
		Session: offer.Session.String(), Work: command.StepWorkToProto(&offer.Work), Stop: offer.Stop,
		Since: command.TimeToProto(offer.Since), Wait: command.DurationToProto(wait),
	}
	if offer.Worker != (jobs.SessionID{}) {
		request.Worker = offer.Worker.String()
	}
	if !offer.Only.Session.IsZero() {
		request.OnlySession, request.OnlyName = offer.Only.Session.String(), offer.Only.Name
	}
	if offer.Refused > 0 {
		request.Refused, request.Refusal = uint32(offer.Refused), command.ErrorToProto(offer.Refusal)
	}
	c.core.encrypt(request)
	answer, err := call(ctx, c.core, op, request, func(p *peer) unary[v1.OfferStepRequest, v1.OfferStepResponse] { return p.workers.Offer })
	if err != nil {
		return steps.Answer{}, err
	}
	got := steps.Answer{Name: answer.GetWorkerName(), Lost: answer.GetLost()}
	if answer.GetWorker() != "" {
		if got.Worker, err = decoded(op, answer.GetWorker(), jobs.ParseSessionID); err != nil {
			return steps.Answer{}, err
		}
	}
	if answer.GetOutcome() != nil {
		outcome, err := decoded(op, answer.GetOutcome(), command.StepOutcomeFromProto)
		if err != nil {
			return steps.Answer{}, err
		}
		got.Outcome = &outcome
	}
	return got, nil
}

// PullSteps implements steps.Client.
func (c *Client) PullSteps(ctx context.Context, pull steps.Pull) (steps.Pulled, error) {
	wait := min(pull.Wait, pollTime)
	op := pollOperation("pull steps for session "+pull.Session.String(), conductordv1connect.WorkerServicePullProcedure, wait)
	request := &v1.PullStepsRequest{Session: pull.Session.String(), Slots: uint32(max(0, pull.Slots)), Wait: command.DurationToProto(wait), Refill: pull.Refill}
	for i := range pull.Holds {
		request.Holds = append(request.Holds, &v1.HeldStep{Id: command.StepIDToProto(&pull.Holds[i].ID), Stopping: pull.Holds[i].Stopping})
	}
	answer, err := call(ctx, c.core, op, request, func(p *peer) unary[v1.PullStepsRequest, v1.PullStepsResponse] { return p.workers.Pull })
	if err != nil {
		return steps.Pulled{}, err
	}
	var pulled steps.Pulled
	if pulled.Work, err = listed(op, answer.GetWork(), command.StepWorkFromProto); err != nil {
		return steps.Pulled{}, err
	}
	pulled.Stop, err = listed(op, answer.GetStop(), command.StepIDFromProto)
	return pulled, err
}

// ReportStep implements steps.Client.
func (c *Client) ReportStep(ctx context.Context, worker jobs.SessionID, outcome steps.Outcome, wait time.Duration) (recorded bool, err error) {
	wait = min(wait, pollTime)
	op := pollOperation("report "+outcome.ID.String(), conductordv1connect.WorkerServiceReportProcedure, wait)
	request := &v1.ReportStepRequest{Session: worker.String(), Outcome: command.StepOutcomeToProto(&outcome), Wait: command.DurationToProto(wait)}
	c.core.encrypt(request)
	answer, err := call(ctx, c.core, op, request, func(p *peer) unary[v1.ReportStepRequest, v1.ReportStepResponse] { return p.workers.Report })
	return answer.GetRecorded(), err
}

// Workers lists the live workers of a board, or of all boards, with as many calls as needed.
func (c *Client) Workers(ctx context.Context, board string) ([]steps.Live, error) {
	op := operation{name: "list workers", reads: true}
	return allPages(op, func(after string) (jobs.Page[steps.Live], error) {
		request := &v1.ListWorkersRequest{Board: board, After: after}
		answer, err := call(ctx, c.core, op, request, func(p *peer) unary[v1.ListWorkersRequest, v1.ListWorkersResponse] { return p.workers.List })
		return paged(op, answer.GetWorkers(), answer.GetNext(), command.LiveWorkerFromProto, err)
	})
}
