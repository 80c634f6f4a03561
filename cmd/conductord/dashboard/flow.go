package dashboard

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"math"
	"net/url"
	"slices"
	"strings"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	flowcmd "github.com/conductord/conductord/cmd/conductord/cli/flow"
	"github.com/conductord/conductord/cmd/conductord/cli/tree"
	"github.com/conductord/conductord/cmd/conductord/dashboard/graph"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// flowData is the data of the page of a flow: its picture, its steps, and the selected step.
type flowData struct {
	ID      string    // of the job; or of the flow, if its jobs were removed
	Job     *jobs.Job // nil: removed, or the page shows an earlier iteration
	Flow    logbook.FlowDetail
	Earlier int // number of the earlier iteration that the page shows; 0: the page shows the current flow
	// Iterations are links to the kept iterations of a flow that continues.
	Iterations []link
	Why        *v1.ExplainResponse // what else than this page explains; nil: nothing
	Steps      string              // how many, by state
	Causes     []string            // what failed first at the start; see causesOf
	Ignored    string              // the failures that are ignored; empty: none
	Places     string              // the loops with at_once in which elements wait; empty: none
	// NoReturn names the point of no return that the flow has passed; empty: none.
	NoReturn string
	Picture  template.HTML
	Planned  bool // the picture knows what each step waits for
	Rows     []flowRow
	Left     int // rows that are not shown
	// Interventions are the latest.
	Interventions []logbook.Intervention
	Began         time.Time // start of the timeline
	Ended         time.Time
	Step          *stepData // nil: no step is selected
	Undo          undoPlan
	Operations    []operation

	message *v1.Job // message of Job
	plan    *flow.Plan
	root    *graph.Part
}

// undoPlan is the plan of a revert that starts now.
type undoPlan struct {
	Link    string   // address that shows or hides the plan
	Command string   // the command that shows the same plan; empty: the plan is hidden
	Problem string   // why there is no plan
	Steps   []string // the first steps of the plan, and the number of the others
}

// flowRow describes a box of the picture as text, with the attempts at its step as bars.
type flowRow struct {
	Part  *graph.Part
	Link  string
	Waits string
	Began time.Time
	Took  string
	Bars  []bar
}

// bar is an attempt in the timeline, which has a width of 1,000.
type bar struct {
	X, Width   int
	Class, Say string
}

// Limits of the picture, in bytes, and of the rows below it.
const (
	maxPicture = maxPage
	maxRows    = 500
)

// loadFlow shows a flow, by its own id or by its job's id.
func loadFlow(ctx context.Context, v *visit) (view, error) {
	data := &flowData{ID: v.part("id")}
	if err := v.findFlow(ctx, data); err != nil {
		return view{}, err
	}
	latest, said := data.Flow.Iteration, "conductord flow show "+data.ID
	if text := v.query("iteration"); text != "" {
		if err := v.goBack(ctx, data, text); err != nil {
			return view{}, err
		}
		said += " --iteration " + text
	}
	data.Iterations = v.iterationLinks(data.ID, latest, max(data.Flow.Iteration, 1))
	v.same = func(ctx context.Context) bool { return v.sameFlow(ctx, data) }
	v.draw(data)
	if v.query("step") != "" {
		if err := v.loadStep(ctx, data, v.query("step")); err != nil {
			return view{}, err
		}
	}
	if data.Undo.Link = v.flowAddress("undo", "1") + "#undo"; v.query("undo") != "" {
		data.Undo.Link = v.flowAddress("undo") + "#undo"
		data.planRevert(v.bound(maxInstances))
	}
	backwards := logbook.InterveneRetryRevert
	if data.Flow.Held() {
		backwards = logbook.InterveneRevert
	}
	data.Operations = append(v.interventions(data, "", backwards, logbook.InterveneRerun, logbook.InterveneTakeBack), v.stops(data)...)
	var watch *v1.WatchRequest
	if data.Job != nil {
		watch = &v1.WatchRequest{Flows: true, Job: data.ID}
	}
	return view{Title: "Flow " + data.Flow.Name, Command: said, Data: data, Watch: watch}, nil
}

// draw makes the picture and the timeline of a flow.
func (v *visit) draw(data *flowData) {
	if v.plan == nil { // unless a live page has made it: compiling a large document is slow
		v.plan = spec.PlanOf(&data.Flow)
	}
	data.plan = v.plan
	data.root, data.Planned = graph.Of(&data.Flow, data.plan), data.plan != nil
	picture := graph.Draw(data.root, v.request.URL.Query()["open"])
	look := graph.Look{
		Title: "The steps of " + data.Flow.Name, Reverting: data.reverting(), Selected: v.query("step"),
		Link: func(b *graph.Box) string {
			if len(b.Parts) > 0 {
				return v.flowAddress("open", picture.Toggled(b)...) + "#picture"
			}
			return v.flowAddress("step", b.Name) + "#step"
		},
	}
	if svg := picture.SVG(&look); len(svg) <= v.bound(maxPicture) {
		data.Picture = template.HTML(svg) // escaped there
	}
	data.timeline(picture, &look)
	all := len(data.Rows)
	data.Rows = most(v, data.Rows, maxRows)
	data.Left = all - len(data.Rows)
	said := data.Flow.Interventions
	data.Interventions = said[max(0, len(said)-v.bound(logbook.MaxInterventions)):]
	data.NoReturn = flowcmd.PassedText(&data.Flow)
	data.Ignored = tree.IgnoredText(&data.Flow)
	data.Places = tree.PlacesText(data.plan, &data.Flow)
	data.Steps, data.Causes = fmt.Sprintf("%d: %s", data.root.Steps(), data.root.Counted()), most(v, causesOf(data.Flow.Cause), logbook.MaxFailures)
}

// flowAddress is the address of the flow's page with another value of one field.
func (v *visit) flowAddress(name string, values ...string) string {
	query := v.request.URL.Query()
	query[name] = values
	jobs, flows := v.dashboard.options.Path+"jobs/", v.dashboard.options.Path+"flows/" // the page of a job shows the picture too
	return (&url.URL{Path: strings.Replace(v.request.URL.Path, jobs, flows, 1), RawQuery: query.Encode()}).String()
}

// findFlow reads the flow of the page; if the id is a job's, it also reads the job.
func (v *visit) findFlow(ctx context.Context, data *flowData) error {
	id := data.ID
	answer, err := ask(ctx, v.api.board.GetJob, &v1.GetJobRequest{Id: id, Stale: true})
	if errors.Is(err, jobs.ErrNotFound) {
		if own, _ := ask(ctx, v.api.logbook.GetFlow, &v1.GetFlowRequest{Id: id, Skip: math.MaxInt32, Stale: true}); own.GetJob() != "" {
			if answer, err = ask(ctx, v.api.board.GetJob, &v1.GetJobRequest{Id: own.GetJob(), Stale: true}); err == nil {
				data.ID = own.GetJob()
			}
		}
	}
	switch {
	case errors.Is(err, jobs.ErrNotFound):
	case err != nil:
		return err
	default:
		job, err := command.JobFromProto(answer.GetJob())
		if err != nil {
			return err
		}
		if data.Job, data.message, id = &job, answer.GetJob(), job.Flow.String(); job.Flow.IsZero() {
			return fmt.Errorf("job %s has no flow: %w", job.ID, jobs.ErrNotFound)
		}
		if job.Claim != nil {
			if data.Why, err = v.explain(ctx, data.message); err != nil || data.Why.GetRemedy().GetVerb() == string(jobs.RemedyShowFlow) {
				data.Why = nil
			}
		}
	}
	const rereads = 3
	for range rereads {
		var whole bool
		if data.Flow, whole, err = v.readFlow(ctx, id); err != nil || whole {
			return err
		}
	}
	return fmt.Errorf("flow %s changes faster than it can be read: %w", id, jobs.ErrUnavailable)
}

// readFlow reads a flow in as many calls as necessary. The result is incomplete if the flow changed
// between the calls.
func (v *visit) readFlow(ctx context.Context, id string) (flow logbook.FlowDetail, whole bool, err error) {
	for first := true; ; first = false {
		answer, err := ask(ctx, v.api.logbook.GetFlow, &v1.GetFlowRequest{Id: id, Skip: uint32(len(flow.Atoms)), AtomsOnly: !first, Stale: true})
		if err != nil {
			return flow, false, err
		}
		part, err := command.FlowDetailFromProto(answer.GetFlow())
		switch {
		case err != nil:
			return flow, false, err
		case first:
			flow = part
		case part.Fence != flow.Fence || part.Sequence != flow.Sequence || len(part.Atoms) == 0:
			return flow, false, nil
		default:
			flow.Atoms = append(flow.Atoms, part.Atoms...)
		}
		if !answer.GetMore() {
			return flow, true, nil
		}
	}
}

func (v *visit) sameFlow(ctx context.Context, data *flowData) bool {
	now, err := ask(ctx, v.api.logbook.GetFlow, &v1.GetFlowRequest{Id: data.Flow.ID.String(), Skip: uint32(len(data.Flow.Atoms)), AtomsOnly: true, Stale: true})
	return err == nil && now.GetFlow().GetSequence() == data.Flow.Sequence && command.TokenFromProto(now.GetFlow().GetFence()) == data.Flow.Fence &&
		(data.Job == nil || v.sameJob(ctx, data.message))
}

// reverting reports whether the flow is reverting, or was at its end.
func (d *flowData) reverting() bool {
	state := d.Flow.State
	return state == logbook.FlowReverting || state == logbook.FlowReverted || state == logbook.FlowFailure ||
		state == logbook.FlowSuspended && d.Flow.Cause != nil
}

// timeline makes a row for each box except frames. While the job is claimed, the timeline ends now.
func (d *flowData) timeline(picture *graph.Picture, look *graph.Look) {
	for i := range d.Flow.Atoms {
		for j := range d.Flow.Atoms[i].Attempts {
			attempt := &d.Flow.Atoms[i].Attempts[j]
			if d.Began.IsZero() || attempt.StartedAt.Before(d.Began) {
				d.Began = attempt.StartedAt
			}
			d.Ended = slices.MaxFunc([]time.Time{d.Ended, attempt.StartedAt, attempt.EndedAt, d.Flow.UpdatedAt}, time.Time.Compare)
		}
	}
	if d.Job != nil && d.Job.Claim != nil {
		d.Ended = slices.MaxFunc([]time.Time{d.Ended, time.Now()}, time.Time.Compare)
	}
	waits := picture.Waits()
	for i := range picture.Boxes {
		if box := &picture.Boxes[i]; !box.Open {
			d.Rows = append(d.Rows, d.row(box.Part, look.Link(box), waits[box.Part]))
		}
	}
}

func (d *flowData) row(part *graph.Part, link string, waits []*graph.Part) flowRow {
	row, ended, open := flowRow{Part: part, Link: link}, time.Time{}, false
	const named = 4 // the page of the step has all attempts
	var names []string
	for _, before := range waits[:min(len(waits), named)] {
		names = append(names, before.Label())
	}
	if len(waits) > named {
		names = append(names, fmt.Sprintf("%d more", len(waits)-named))
	}
	row.Waits = strings.Join(names, ", ")
	part.Walk(func(atom *logbook.AtomDetail) {
		for i := range atom.Attempts {
			attempt := &atom.Attempts[i]
			end := attempt.EndedAt
			if last := i == len(atom.Attempts)-1; last {
				open = open || !attempt.Ended()
			} else if !attempt.Ended() {
				end = atom.Attempts[i+1].StartedAt // its conductor died before it ended
			}
			if row.Began.IsZero() || attempt.StartedAt.Before(row.Began) {
				row.Began = attempt.StartedAt
			}
			ended = slices.MaxFunc([]time.Time{ended, end}, time.Time.Compare)
			if len(part.Parts) == 0 && len(part.Atoms) == 1 {
				row.Bars = append(row.Bars, d.bar(attempt.StartedAt, end, attemptClass(attempt), fmt.Sprintf("%s %d", attempt.Action, attempt.Number)))
			}
		}
	})
	if open {
		ended = time.Time{}
	}
	if row.Bars == nil && !row.Began.IsZero() {
		row.Bars = []bar{d.bar(row.Began, ended, part.Status().Name, part.Fact())}
	}
	row.Took = took(row.Began, ended)
	return row
}

// bar is the time between two moments, or until the end of the timeline.
func (d *flowData) bar(began, ended time.Time, class, say string) bar {
	if ended.IsZero() {
		ended = d.Ended
	} else {
		say += ", " + durationText(ended.Sub(began))
	}
	const width, least = 1000, 4
	all := max(d.Ended.Sub(d.Began), time.Millisecond)
	x := min(int(width*began.Sub(d.Began)/all), width-least)
	return bar{X: x, Width: max(least, int(width*ended.Sub(d.Began)/all)-x), Class: class, Say: say}
}

// attemptClass is the state of an attempt for display.
func attemptClass(attempt *logbook.Attempt) string {
	state := logbook.AtomSuccess
	switch reverts := attempt.Action == logbook.ActionRevert; {
	case attempt.Failure != nil && reverts:
		state = logbook.AtomRevertFailure
	case attempt.Failure != nil:
		state = logbook.AtomFailure
	case attempt.IsUntaken():
		state = graph.AwaitsWorker
	case reverts && !attempt.Ended():
		state = logbook.AtomReverting
	case reverts:
		state = logbook.AtomReverted
	case !attempt.Ended():
		state = logbook.AtomRunning
	}
	return graph.States[graph.Place(state)].Name
}

// planRevert plans a revert that starts now. It lists at most the given number of steps.
func (d *flowData) planRevert(shown int) {
	undo := &d.Undo
	if undo.Command = "conductord flow plan --revert " + d.ID; d.plan == nil {
		undo.Problem = "This page plans a revert only for a flow document in plain text. The factory of this flow is " + d.Flow.Factory.Name + "."
		return
	}
	undos, err := engine.PlanRevert(engine.Options{Plan: d.plan, Detail: d.Flow, Store: d.store()})
	if err != nil {
		undo.Problem = err.Error()
	}
	for i := range undos {
		if undo.Steps = append(undo.Steps, undos[i].Step+": "+flowcmd.UndoText(&undos[i])); len(undo.Steps) == shown && len(undos) > shown {
			undo.Steps = append(undo.Steps, fmt.Sprintf("and %d more", len(undos)-shown))
			break
		}
	}
}

// store returns the values that steps of the flow can require: the flow's values, overlaid by
// the job's.
func (d *flowData) store() logbook.Values {
	store := logbook.Values{}
	maps.Copy(store, d.Flow.Store)
	if d.Job != nil {
		maps.Copy(store, d.Job.Store)
	}
	return store
}
