package dashboard

import (
	"context"
	"fmt"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"google.golang.org/protobuf/encoding/protojson"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/valuekeys"
)

// dashboardName is the recorded actor if the cluster has no access control.
const dashboardName = "dashboard"

// jobOperations is the table of operations on a job; of is zero when an operation is performed.
func jobOperations(id string, of jobData) []operation {
	job, state, said := of.Job, jobs.State(of.Job.GetState()), func(command string) string { return "conductord " + command + " " + id }
	done, stop, outcome := finished(job), jobs.RequestKind(job.GetStopRequest().GetKind()), jobs.Outcome(job.GetOutcome())
	again := "The whole job runs again. No step is reverted first."
	switch {
	case state == jobs.StateTrashed:
		again = "The job can be claimed again, and continues where it stopped: finished steps do not run again."
	case job.GetParked():
		again = "The job can be claimed again, with all attempts of its retry policy."
	case of.Flow != nil:
		again = "No step is reverted first. These steps run a second time: " + of.Flow.ran() + "."
	}
	awaited := of.awaited()
	failed := state == jobs.StateTrashed || job.GetParked() || outcome == jobs.OutcomeFailed || outcome == jobs.OutcomeReverted
	return []operation{
		{
			Verb: "retry", Text: "Retry", Command: said("job retry"), Help: again,
			permission: command.Operate, unfit: !failed, do: onJob(id, func(a *api) jobCall { return a.board.Retry }),
		},
		{
			Verb: "retry-now", Text: "Retry now", Command: said("flow retry-now"), Help: "All steps that wait for their next attempt start now.",
			Inputs: []input{why}, permission: command.Operate, unfit: !state.Pauses(), do: onJob(id, func(a *api) jobCall { return a.board.RetryNow }),
		},
		{
			Verb: "release", Text: "Release", Command: said("job release"), Help: "The job can be claimed.",
			permission: command.Operate, unfit: !job.GetHeld() || job.GetParked() || done, do: func(ctx context.Context, v *visit) (string, error) {
				_, err := ask(ctx, v.api.board.Change, &v1.Change{Job: id, Release: true, By: dashboardName})
				return "jobs/" + id, err
			},
		},
		{
			Verb: "signal", Text: "Send a signal", Command: said("job signal") + " " + cli.Operand(awaited) + " --data JSON", Help: "A waiting step takes the signal, or the job keeps it until a step waits.",
			Inputs: []input{
				{Name: "signal", Label: "Name", Value: awaited, Required: true},
				{Name: "data", Label: "Data in JSON, the result of the step", Kind: "lines"},
				{Name: "reject", Label: "Rejection: the waiting step fails with this text"},
			},
			permission: command.Signal, unfit: awaited == "", do: signalJob,
		},
		{
			Verb: "resume", Text: "Resume", Command: said("job resume"), Help: "The job continues where it stopped.",
			permission: command.Operate, unfit: done || stop != jobs.RequestSuspend, do: onJob(id, func(a *api) jobCall { return a.board.Resume }),
		},
		{
			Verb: "suspend", Text: "Suspend", Sure: "Suspend this job", Command: said("job suspend"), Help: "Running steps finish. No step starts until the job is resumed.", Danger: true,
			Inputs: []input{why}, permission: command.Operate, unfit: done || stop != "", do: onJob(id, func(a *api) jobCall { return a.board.Suspend }),
		},
		{
			Verb: "cancel", Text: "Cancel", Sure: "Cancel this job", Command: said("job cancel"), Help: "Running steps are interrupted, and finished steps are reverted.", Danger: true,
			Inputs: []input{why, keep}, permission: command.Operate, unfit: done || stop == jobs.RequestCancel, do: onJob(id, func(a *api) jobCall { return a.board.Cancel }),
		},
		{
			Verb: "transfer", Text: "Hand over", Command: said("claim transfer") + " --to CONDUCTOR", Help: "The owner releases the job as in a drain. For 30 s, only the chosen conductor can claim it.",
			Inputs:     []input{{Name: "to", Label: "Conductor", Choices: of.Conductors}, why},
			permission: command.Operate, unfit: state != jobs.StateClaimed && state != jobs.StateClaimable, do: onJob(id, func(a *api) jobCall { return a.board.Transfer }),
		},
		{
			Verb: "repost", Text: "Post again", Command: said("job repost"), Help: "A new job does the same work from the start. This job stays.",
			permission: command.Post, unfit: !done, do: repost,
		},
		{
			Verb: "purge", Text: "Purge", Sure: "Purge this job", Command: said("trash purge"), Help: "The job and its book are removed permanently.", Danger: true,
			permission: command.Operate, unfit: !done, do: onJob(id, func(a *api) jobCall { return a.board.Purge }),
		},
		{
			Verb: "change", Text: "Change", Command: said("job change"), Help: "Set the priority, earliest start or board of the job.",
			Inputs: []input{
				{Name: "priority", Label: fmt.Sprintf("Priority (now %d): very-low, low, normal, high, very-high, or a number", job.GetPriority())},
				{Name: "delay", Label: "Earliest start from now, such as 10m; 0s: now"},
				{Name: "board", Label: "Board", Choices: of.Boards, Unchosen: "keep " + job.GetBoard()},
				{Name: "front", Label: "before all other jobs of its priority", Kind: "check"},
				why,
			},
			permission: command.Operate, unfit: done, do: changeJob,
		},
	}
}

// awaited is a signal for which a step of the job waits; empty: none does.
func (d *jobData) awaited() string {
	for i := range d.Waits {
		if signals := d.Waits[i].Signals; len(signals) > 0 {
			return signals[0]
		}
	}
	return ""
}

// signalJob sends the signal of a form.
func signalJob(ctx context.Context, v *visit) (string, error) {
	id, name := v.part("name"), v.form("signal")
	signal := &v1.SignalCommand{Job: id, Name: name, Id: uuid.NewString(), Reject: v.form("reject"), By: dashboardName}
	if text := v.form("data"); text != "" {
		data, err := jsonOf("data", text)
		if err != nil {
			return "", err
		}
		signal.Data = command.ValueToProto(data)
	}
	_, err := ask(ctx, v.api.board.Signal, signal)
	return "jobs/" + id, err
}

// jobCall is a call of the API about one job.
type jobCall func(context.Context, *connect.Request[v1.JobCommand]) (*connect.Response[v1.Done], error)

// onJob makes an action that makes a call.
func onJob(id string, of func(*api) jobCall) func(context.Context, *visit) (string, error) {
	return func(ctx context.Context, v *visit) (string, error) {
		verb := v.part("verb")
		request := &v1.JobCommand{Job: id, By: dashboardName, Reason: v.form("reason"), Revert: verb == "cancel" && v.form("keep") == "", To: v.form("to")}
		next := "jobs/" + id
		if verb == "purge" {
			next = "jobs"
		}
		_, err := ask(ctx, of(v.api), request)
		return next, err
	}
}

// again makes a posting of the same details and flow. It refuses hidden or encrypted values,
// because it would post their placeholders.
func (v *visit) again(ctx context.Context, message *v1.Job) (*v1.Posting, error) {
	job, err := command.JobFromProto(message)
	if err != nil {
		return nil, err
	}
	if v.who.GetHideValues() {
		return nil, fmt.Errorf("%w: its values are hidden from principal %q", jobs.ErrNotAllowed, v.who.GetName())
	}
	var flow *logbook.FlowDetail
	if !job.Flow.IsZero() {
		got, err := ask(ctx, v.api.logbook.GetFlow, &v1.GetFlowRequest{Id: job.Flow.String()})
		if err != nil {
			return nil, fmt.Errorf("its flow and book were removed: %w", err)
		}
		detail, err := command.FlowDetailFromProto(got.GetFlow())
		if err != nil {
			return nil, err
		}
		flow = &detail
	}
	again := job.Again(flow)
	posting := command.PostingToProto(&again)
	if text := protojson.Format(posting); valuekeys.Shown(text) != text {
		return nil, fmt.Errorf("%w: its values are encrypted; use the command line with --value-keys", jobs.ErrInvalid)
	}
	return posting, nil
}
