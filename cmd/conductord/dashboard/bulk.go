package dashboard

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
)

// maxBulkCalls bounds the calls of one confirmed bulk: 5,000 jobs, in some seconds. Repeating it
// does the rest.
const maxBulkCalls = 25

// bulkAction is something that can be done to all jobs of a filter.
type bulkAction struct{ Verb, Text, Address string }

// bulkTexts are the actions that the list of jobs offers, with the text of their buttons.
var bulkTexts = []struct {
	action jobs.Action
	text   string
}{{jobs.ActionRetry, "Retry"}, {jobs.ActionResume, "Resume"}, {jobs.ActionSuspend, "Suspend"}, {jobs.ActionCancel, "Cancel"}, {jobs.ActionPurge, "Purge"}}

// bulkActions are those that mean something for a filter and that the person may do. Without a filter
// there are none: as on the command line, nothing is done to all jobs by mistake.
func (v *visit) bulkActions(f *jobFilter) (actions []bulkAction) {
	if f.flags() == "" || !v.may(command.Operate, boardOr(f.Board, access.AllBoards)) {
		return nil
	}
	address := v.request.URL.Query()
	address.Del("after")
	address.Del("done")
	for name, value := range map[string]string{"board": f.Board, "state": f.State} {
		if value != "" {
			address.Set(name, value)
		}
	}
	for _, of := range bulkTexts {
		if _, err := (&jobs.Bulk{Action: of.action, Query: f.query()}).Narrowed(); err == nil {
			actions = append(actions, bulkAction{string(of.action), of.text, v.board.views.address("bulk", string(of.action)) + "?" + address.Encode()})
		}
	}
	return actions
}

func boardOr(board, otherwise string) string {
	if board == "" {
		return otherwise
	}
	return board
}

// query is the part of a filter that says whether an action means something.
func (f *jobFilter) query() (q jobs.Query) {
	switch {
	case f.State == "":
	case stateIsOutcome(f.State):
		q.Outcomes, q.States = []jobs.Outcome{jobs.Outcome(f.State)}, []jobs.State{jobs.StateCompleted}
	default:
		q.States = []jobs.State{jobs.State(f.State)}
	}
	return q
}

// bulkData is what the page shows that asks before a bulk.
type bulkData struct {
	Verb, Text, Address, Back string
	Count                     int
	More                      bool // there are more than were counted
	Revert                    bool // the form asks whether to undo
	Limit                     int
}

// bulkOf reads the request for a bulk from the page's address.
func (v *visit) bulkOf() (*v1.BulkRequest, *jobFilter, error) {
	verb := v.request.PathValue("verb")
	if !slices.Contains(jobs.Actions, jobs.Action(verb)) {
		return nil, nil, fmt.Errorf("%w: there is no action %.64q", jobs.ErrNotFound, verb)
	}
	filter, query, err := v.jobQuery()
	if err == nil && filter.flags() == "" {
		err = fmt.Errorf("%w: say which jobs: at least one filter is needed", jobs.ErrInvalid)
	}
	if err != nil {
		return nil, nil, err
	}
	query.Limit, query.After, query.Order, query.Stale = jobs.MaxBulk, "", "", false
	return &v1.BulkRequest{Action: verb, Query: query, By: dashboardName}, &filter, nil
}

// loadBulk counts the jobs to which something would be done, and asks.
func loadBulk(ctx context.Context, v *visit) (view, error) {
	request, filter, err := v.bulkOf()
	if err == nil && v.board.options.ReadOnly {
		err = errReadOnly
	}
	if err != nil {
		return view{}, err
	}
	request.DryRun, request.Query.Limit = true, 0
	data := bulkData{Verb: request.Action, Address: v.request.URL.RequestURI(), Limit: maxBulkCalls * jobs.MaxBulk}
	data.Back = v.board.views.address("jobs") + "?" + v.request.URL.Query().Encode()
	data.Text = bulkText(request.Action)
	for range maxBulkCalls {
		report, err := ask(ctx, v.api.board.Bulk, request)
		if err != nil {
			return view{}, err
		}
		data.Count += int(report.GetMatched())
		request.Query.After = report.GetNext()
		if data.More = report.GetNext() != ""; !data.More {
			break
		}
	}
	data.Revert = request.Action == string(jobs.ActionCancel)
	return view{Title: data.Text + " jobs", Command: "conductord bulk " + request.Action + filter.flags(), Data: data}, nil
}

func bulkText(action string) string {
	for _, of := range bulkTexts {
		if string(of.action) == action {
			return of.text
		}
	}
	return action
}

// doBulk does what loadBulk has asked for. What was done to some jobs stays done if others are refused.
func doBulk(ctx context.Context, v *visit) (string, error) {
	request, _, err := v.bulkOf()
	if err != nil {
		return "", err
	}
	request.Reason, request.Revert = v.form("reason"), request.Action == string(jobs.ActionCancel) && v.form("keep") == ""
	done, refused, first := 0, 0, error(nil)
	for range maxBulkCalls {
		report, err := ask(ctx, v.api.board.Bulk, request)
		if err != nil {
			return "", fmt.Errorf("after %d jobs: %w", done, err)
		}
		done += int(report.GetDone())
		if refused += len(report.GetRefused()); first == nil && len(report.GetRefused()) > 0 {
			of := report.GetRefused()[0]
			first = fmt.Errorf("job %s: %w", of.GetJob(), command.ErrorFromProto(of.GetError()))
		}
		if request.Query.After = report.GetNext(); request.Query.After == "" {
			break
		}
	}
	if refused > 0 {
		return "", fmt.Errorf("it was done to %d jobs and refused for %d, first because: %w", done, refused, first)
	}
	query := v.request.URL.Query()
	query.Set("done", strconv.Itoa(done))
	return "jobs?" + query.Encode(), nil
}
