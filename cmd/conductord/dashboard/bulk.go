package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
)

// maxBulkCalls limits the calls of one confirmed bulk: 5,000 jobs, in a few seconds. The user can
// repeat it for the rest.
const maxBulkCalls = 25

// bulkOperations are the operations that the list of jobs offers for all jobs of a filter.
var bulkOperations = []operation{
	{Verb: string(jobs.ActionRetry), Text: "Retry", Inputs: []input{why}, permission: command.Operate},
	{Verb: string(jobs.ActionResume), Text: "Resume", Inputs: []input{why}, permission: command.Operate},
	{Verb: string(jobs.ActionSuspend), Text: "Suspend", Inputs: []input{why}, permission: command.Operate},
	{Verb: string(jobs.ActionCancel), Text: "Cancel", Inputs: []input{why, keep}, permission: command.Operate},
	{Verb: string(jobs.ActionPurge), Text: "Purge", Inputs: []input{why}, permission: command.Operate},
}

// offeredBulk are the bulk operations that make sense for a filter and that the user has permission
// for. Without a filter there are none: as on the command line, a mistake must not change all jobs.
func (v *visit) offeredBulk(f *jobFilter) (offered []operation) {
	if f.flags() == "" {
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
	for _, o := range v.offered(bulkOperations, cmp.Or(f.Board, access.AllBoards), "bulk") {
		if _, err := (&jobs.Bulk{Action: jobs.Action(o.Verb), Query: f.query()}).Narrowed(); err == nil {
			o.Address += "?" + address.Encode()
			offered = append(offered, o)
		}
	}
	return offered
}

// query is the part of a filter that decides whether an action makes sense.
func (f *jobFilter) query() (q jobs.Query) {
	switch {
	case f.State == "":
	case stateIsOutcome(f.State):
		q.Outcomes, q.States = []jobs.Outcome{jobs.Outcome(f.State)}, []jobs.State{jobs.StateCompleted}
	default:
		for _, state := range strings.Split(f.State, ",") {
			q.States = append(q.States, jobs.State(state))
		}
	}
	return q
}

// bulkData is the data of the page that asks for confirmation of a bulk.
type bulkData struct {
	operation
	Back  string
	Count int
	More  bool // there are more than the counted jobs
	Limit int
}

// bulkOf reads the request for a bulk from the page's address.
func (v *visit) bulkOf() (o operation, request *v1.BulkRequest, filter jobFilter, err error) {
	if o, err = v.chosen(bulkOperations); err != nil {
		return o, nil, filter, err
	}
	filter, query, err := v.jobQuery()
	if err == nil && filter.flags() == "" {
		err = fmt.Errorf("%w: no jobs are selected: add at least one filter", jobs.ErrInvalid)
	}
	if err != nil {
		return o, nil, filter, err
	}
	query.Limit, query.After, query.Order, query.Stale = jobs.MaxBulk, "", "", false
	return o, &v1.BulkRequest{Action: o.Verb, Query: query, By: dashboardName}, filter, nil
}

// loadBulk counts the affected jobs, and asks for confirmation.
func loadBulk(ctx context.Context, v *visit) (view, error) {
	o, request, filter, err := v.bulkOf()
	if err == nil && v.dashboard.options.ReadOnly {
		err = errReadOnly
	}
	if err != nil {
		return view{}, err
	}
	request.DryRun, request.Query.Limit = true, 0
	o.Address = v.request.URL.RequestURI()
	data := bulkData{operation: o, Back: v.dashboard.views.address("jobs") + "?" + v.request.URL.Query().Encode(), Limit: maxBulkCalls * jobs.MaxBulk}
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
	return view{Title: data.Text + " jobs", Command: "conductord bulk " + request.Action + filter.flags(), Data: data}, nil
}

// doBulk performs the bulk that the user has confirmed on the page of loadBulk. If some jobs are
// refused, changes of other jobs remain.
func doBulk(ctx context.Context, v *visit) (string, error) {
	_, request, _, err := v.bulkOf()
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
		return "", fmt.Errorf("the action succeeded for %d jobs and was refused for %d; the first refusal: %w", done, refused, first)
	}
	query := v.request.URL.Query()
	query.Set("done", strconv.Itoa(done))
	return "jobs?" + query.Encode(), nil
}
