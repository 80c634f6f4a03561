package dashboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
)

// shownErrors is the number of the latest errors of a job on its page.
const shownErrors = 20

// shownWaits is the number of waiting steps on the page of a job.
const shownWaits = 20

// jobData is the data of the page of a job.
type jobData struct {
	Job        *v1.Job
	Why        *v1.ExplainResponse
	Story      []happening
	Errors     []*v1.JobError
	More       bool // there are more errors
	Values     []namedText
	Left       int      // number of omitted values
	Hidden     bool     // its values are hidden from the user
	Boards     []string // boards to which it can be moved
	Conductors []string // conductors other than its owner
	Operations []operation
	Flow       *flowData // nil: it has none, or it was removed
	Log        stepData  // the last lines of all steps, while it is claimed
	Waits      []stepWait
}

// stepWait is a step that waits for a signal, an approval or a time.
type stepWait struct {
	Step     string
	Text     string
	Signals  []string
	Approval bool
}

// waitsOf returns the steps of a flow that wait.
func (v *visit) waitsOf(d *flowData) (waits []stepWait) {
	for i := range d.Flow.Atoms {
		atom := &d.Flow.Atoms[i]
		if wait := atom.OpenWait(); wait != nil && wait.Signal == nil && len(waits) < v.bound(shownWaits) {
			waits = append(waits, stepWait{Step: atom.Name, Text: wait.Text(), Signals: wait.Signals, Approval: wait.Open() && wait.Approval != nil})
		}
	}
	return waits
}

// happening is one line of a job's history.
type happening struct {
	At     time.Time
	Look   badge
	What   string
	Detail string
}

// loadJob shows a job: why it does not run, its history, and the possible actions.
func loadJob(ctx context.Context, v *visit) (view, error) {
	id := v.part("id")
	got, err := ask(ctx, v.api.board.GetJob, &v1.GetJobRequest{Id: id, Stale: true})
	if err != nil {
		return view{}, err
	}
	data := jobData{Job: got.GetJob(), Hidden: v.who.GetHideValues()}
	v.same = func(ctx context.Context) bool {
		return v.sameJob(ctx, data.Job) && (data.Flow == nil || v.sameFlow(ctx, data.Flow))
	}
	if data.Why, err = v.explain(ctx, data.Job); err != nil {
		return view{}, err
	}
	failed, err := ask(ctx, v.api.board.ListErrors, &v1.ListErrorsRequest{Job: id, Limit: uint32(v.bound(shownErrors)), Stale: true})
	if err != nil {
		return view{}, err
	}
	data.Errors, data.More = failed.GetErrors(), failed.GetNext() != ""
	data.Story = storyOf(data.Job, data.Errors, v.bound(maxResult))
	data.Values, data.Left = valuesOf(data.Job, v.bound(maxValueSum))
	if board := data.Job.GetBoard(); v.may(command.Operate, board) && !finished(data.Job) {
		if data.Boards, err = v.boards(ctx); err != nil {
			return view{}, err
		}
		data.Boards = slices.DeleteFunc(data.Boards, func(other string) bool { return other == board })
		data.Boards = most(v, data.Boards, shownBoards)
		live, err := ask(ctx, v.api.sessions.ListEntities, &v1.ListEntitiesRequest{Kind: jobs.EntityConductor, Stale: true})
		if err != nil {
			return view{}, err
		}
		for _, e := range live.GetEntities() {
			if e.GetName() != data.Job.GetClaim().GetOwner() {
				data.Conductors = append(data.Conductors, e.GetName())
			}
		}
		data.Conductors = most(v, slices.Compact(data.Conductors), shownBoards) // they are sorted by name
	}
	if flow := (&flowData{ID: id}); data.Job.GetFlow() != "" && v.findFlow(ctx, flow) == nil {
		if v.draw(flow); flow.Job != nil && flow.Job.Claim != nil {
			_ = v.loadLog(ctx, flow, &data.Log)
			data.Log.Log = strings.ToValidUTF8(data.Log.Log[max(0, len(data.Log.Log)-v.bound(2*maxResult)):], "")
		}
		if len(flow.Picture) > v.bound(maxValueSum) { // only the flow's page has room for the picture
			flow.Picture = ""
		}
		flow.Iterations = v.iterationLinks(id, flow.Flow.Iteration, 0)
		data.Flow, data.Waits = flow, v.waitsOf(flow)
	}
	data.Operations = v.offered(jobOperations(id, data), data.Job.GetBoard(), "jobs", id)
	title := cmp.Or(data.Job.GetName(), data.Job.GetKind(), "Job") + " …" + short(id)
	return view{Title: title, Command: "conductord job get " + id, Data: data, Watch: &v1.WatchRequest{Job: id, Flows: true}}, nil
}

func (v *visit) sameJob(ctx context.Context, job *v1.Job) bool {
	now, err := ask(ctx, v.api.board.GetJob, &v1.GetJobRequest{Id: job.GetId(), Stale: true})
	return err == nil && proto.Equal(now.GetJob(), job)
}

func finished(job *v1.Job) bool { return jobs.State(job.GetState()).Finished() }

// explain returns why a job does not run. Only the leader knows which steps of a claimed job wait
// for workers. If no leader answers in time, the node answers from its own state.
func (v *visit) explain(ctx context.Context, job *v1.Job) (*v1.ExplainResponse, error) {
	if job.GetClaim() != nil {
		soon, cancel := context.WithTimeout(ctx, statusTime)
		defer cancel()
		if why, err := ask(soon, v.api.board.Explain, &v1.ExplainRequest{Id: job.GetId()}); err == nil {
			return why, nil
		}
	}
	return ask(ctx, v.api.board.Explain, &v1.ExplainRequest{Id: job.GetId(), Stale: true})
}

// storyOf returns the known history of a job in time order. errors are sorted from the latest.
// longest limits each text, in bytes.
func storyOf(job *v1.Job, failed []*v1.JobError, longest int) []happening {
	story := []happening{{At: timeOf(job.GetPostedAt()), Look: badge{"", "○", "calm"}, What: by("Posted to board "+job.GetBoard(), job.GetPostedBy())}}
	add := func(at any, look badge, what, detail string) {
		if stamp := timeOf(at); !stamp.IsZero() {
			story = append(story, happening{stamp, look, what, detail})
		}
	}
	if job.GetClaim() == nil || !timeOf(job.GetStartedAt()).Equal(timeOf(job.GetClaim().GetSince())) {
		add(job.GetStartedAt(), stateOf(string(jobs.StateClaimed)), "First claimed", "")
	}
	for _, e := range failed {
		what := map[jobs.How]string{
			jobs.HowAbandoned: "Released by " + e.GetOwner(), jobs.HowCrashed: "Conductor " + e.GetOwner() + " was lost", jobs.HowTrashed: "Trashed by " + e.GetOwner(),
			jobs.HowReverted: "Failed and reverted by " + e.GetOwner(), jobs.HowFailed: "Failed without a complete revert by " + e.GetOwner(),
		}[jobs.How(e.GetHow())]
		add(e.GetAt(), stateOf(e.GetHow()), cmp.Or(what, e.GetHow()), cut(failureText(e.GetReason(), e.GetFailure()), longest))
	}
	if claim := job.GetClaim(); claim != nil {
		what := "Claimed by " + claim.GetOwner()
		if before := job.GetLastOwner(); before != "" {
			what += fmt.Sprintf("; last owner: %s; claim number %d", before, job.GetClaims())
		}
		add(claim.GetSince(), stateOf(string(jobs.StateClaimed)), what, "")
	}
	if request := job.GetStopRequest(); request != nil {
		add(request.GetAt(), stateOf(string(jobs.StateSuspended)), by("Request to "+request.GetKind(), request.GetBy()), request.GetReason())
	}
	why, end := cut(failureText(job.GetReason(), job.GetFailure()), longest), stateOf(job.GetState(), job.GetOutcome())
	if slices.ContainsFunc(story, func(h happening) bool { return h.Detail == why }) {
		why = "" // an earlier line has this text already
	}
	ended := "Ended: " + end.Text
	switch last := job.GetLastOwner(); {
	case job.GetClaims() == 1:
		ended += "; claimed once, by " + last
	case job.GetClaims() > 1:
		ended += fmt.Sprintf("; claimed %d times, last by %s", job.GetClaims(), last)
	}
	add(job.GetFinishedAt(), end, ended, why)
	slices.SortStableFunc(story, func(a, b happening) int { return a.At.Compare(b.At) })
	if !finished(job) {
		if due, state := timeOf(job.GetDueAt()), jobs.State(job.GetState()); !due.IsZero() && (state == jobs.StateDelayed || state.Pauses()) {
			add(due, stateOf(job.GetState()), "Due", "")
		}
		add(job.GetDeadline(), badge{"", "⊘", "stop"}, "Deadline: an unfinished job is cancelled and reverted", "")
	}
	return story
}

func by(what, who string) string {
	if who == "" {
		return what
	}
	return what + " by " + who
}

// changeJob applies the form of a job's page: priority, due time, board and front.
func changeJob(ctx context.Context, v *visit) (string, error) {
	id := v.part("name")
	change := &v1.Change{Job: id, Board: v.form("board"), Front: v.form("front") != "", By: dashboardName, Reason: v.form("reason")}
	if text := v.form("priority"); text != "" {
		priority, err := jobs.ParsePriority(text)
		if err != nil {
			return "", err
		}
		value := int32(priority)
		change.Priority = &value
	}
	if text := v.form("delay"); text != "" {
		delay, err := time.ParseDuration(text)
		if err != nil || delay < 0 {
			return "", fmt.Errorf("%w: field delay is %.64q, and must be a delay such as 10m, or 0s for no delay", jobs.ErrInvalid, text)
		}
		change.NotBefore = command.TimeToProto(time.Now().Add(delay)) // like the command line
	}
	_, err := ask(ctx, v.api.board.Change, change)
	return "jobs/" + id, err
}

// repost posts a new job with the same details and flow as a finished job.
func repost(ctx context.Context, v *visit) (string, error) {
	id := v.part("name")
	got, err := ask(ctx, v.api.board.GetJob, &v1.GetJobRequest{Id: id})
	if err != nil {
		return "", err
	}
	posting, err := v.again(ctx, got.GetJob())
	if err != nil {
		return "", fmt.Errorf("cannot post job %s again: %w", id, err)
	}
	answer, err := ask(ctx, v.api.board.Post, &v1.PostRequest{Postings: []*v1.Posting{posting}, Brief: true})
	if err != nil {
		return "", err
	}
	if len(answer.GetPosted()) != 1 {
		return "", errors.New("the answer of the node does not contain the result of the posting")
	}
	if refused := answer.GetPosted()[0].GetError(); refused != nil {
		return "", command.ErrorFromProto(refused)
	}
	posted, err := jobs.ParseJobID(answer.GetPosted()[0].GetJob().GetId())
	if err == nil && posted.String() != posting.GetId() {
		return "", fmt.Errorf("no new job was posted: %w", jobs.KeyTaken(got.GetJob().GetBoard(), posting.GetKey(), posted))
	}
	return "jobs/" + posted.String(), err
}
