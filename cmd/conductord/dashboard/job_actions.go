package dashboard

import (
	"context"
	"fmt"
	"slices"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/valuekeys"
)

// dashboardName stands for who did something where access control names nobody.
const dashboardName = "dashboard"

// jobAction is a row of what can be done to one job.
type jobAction struct {
	Verb, Text string // of its address, and of its button
	Command    string // of the command line, before the id
	Help       string // what happens
	Danger     bool   // it needs a look before it is done
	Reason     bool   // its form asks why
	permission command.Permission
	fits       func(*v1.Job) bool // it means something for the job
	do         func(ctx context.Context, v *visit) (next string, err error)
}

// jobActions is the table.
func jobActions() []jobAction {
	return []jobAction{
		{"retry", "Retry", "job retry", "It begins again: what was recorded is kept or done anew, as its state needs.", false, false, command.Operate,
			func(j *v1.Job) bool {
				failed := j.GetOutcome() == string(jobs.OutcomeFailed) || j.GetOutcome() == string(jobs.OutcomeReverted)
				return j.GetState() == string(jobs.StateTrashed) || j.GetParked() || failed
			}, onJob(func(a *api) jobCall { return a.board.Retry })},
		{"release", "Release", "job release", "It may be claimed.", false, false, command.Operate,
			func(j *v1.Job) bool { return j.GetHeld() && !j.GetParked() && !finished(j) }, release},
		{"resume", "Resume", "job resume", "It goes on where it stands.", false, false, command.Operate,
			func(j *v1.Job) bool {
				return !finished(j) && j.GetStopRequest().GetKind() == string(jobs.RequestSuspend)
			},
			onJob(func(a *api) jobCall { return a.board.Resume })},
		{"suspend", "Suspend", "job suspend", "Running steps finish, and no more begin until it is resumed.", true, true, command.Operate,
			func(j *v1.Job) bool { return !finished(j) && j.GetStopRequest() == nil },
			onJob(func(a *api) jobCall { return a.board.Suspend })},
		{"cancel", "Cancel", "job cancel", "Running steps are interrupted, and what it has done is undone.", true, true, command.Operate,
			func(j *v1.Job) bool {
				return !finished(j) && j.GetStopRequest().GetKind() != string(jobs.RequestCancel)
			},
			onJob(func(a *api) jobCall { return a.board.Cancel })},
		{"repost", "Post again", "job repost", "A new job does the same work from its beginning. This one stays.", false, false, command.Post, finished, repost},
		{"purge", "Purge", "trash purge", "It is removed for ever, with its book.", true, false, command.Operate,
			finished, onJob(func(a *api) jobCall { return a.board.Purge })},
	}
}

// jobCall is a call of the API about one job.
type jobCall func(context.Context, *connect.Request[v1.JobCommand]) (*connect.Response[v1.Done], error)

// onJob makes an action of a call.
func onJob(of func(*api) jobCall) func(context.Context, *visit) (string, error) {
	return func(ctx context.Context, v *visit) (string, error) {
		id := v.request.PathValue("id")
		request := &v1.JobCommand{Job: id, By: dashboardName, Reason: v.form("reason")}
		request.Revert = v.request.PathValue("verb") == "cancel" && v.form("keep") == ""
		if _, err := ask(ctx, of(v.api), request); err != nil {
			return "", err
		}
		if v.request.PathValue("verb") == "purge" {
			return "jobs", nil
		}
		return "jobs/" + id, nil
	}
}

func release(ctx context.Context, v *visit) (string, error) {
	id := v.request.PathValue("id")
	_, err := ask(ctx, v.api.board.Change, &v1.Change{Job: id, Release: true, By: dashboardName})
	return "jobs/" + id, err
}

// actOnJob finds the action of an address.
func actOnJob(ctx context.Context, v *visit) (string, error) {
	verb := v.request.PathValue("verb")
	all := jobActions()
	if i := slices.IndexFunc(all, func(a jobAction) bool { return a.Verb == verb }); i >= 0 {
		return all[i].do(ctx, v)
	}
	return "", fmt.Errorf("%w: there is no action %.64q", jobs.ErrNotFound, verb)
}

// again makes the posting of the same work. It refuses values that are hidden or encrypted, which would
// be posted as they look.
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
			return nil, fmt.Errorf("its flow is gone with its book: %w", err)
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
