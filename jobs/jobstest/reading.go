package jobstest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

var readingRows = []row{
	{"a job is explained", explained},
	{"what is unknown is not found", unknownIsNotFound},
	{"jobs are listed by pages in posting order", jobsByPages},
	{"jobs are listed by board, state and kind", jobsByFilter},
	{"jobs are listed with the newest first", jobsNewestFirst},
	{"jobs are listed as they are claimed", jobsInClaimOrder},
	{"an order that is none is refused", unknownOrder},
	{"a listing leaves out details and store", listingIsLight},
	{"a finished job needs no waiting", waitForFinished},
	{"every waiting caller gets the end", waitIsTold},
	{"waiting ends with its context", waitEndsWithContext},
}

func unknownIsNotFound(k *kit) {
	session, job, token := k.session("worker"), jobs.NewJobID(), jobs.Token{Generation: 1, Index: 1}
	_, err := k.Board.Job(k.ctx, job)
	k.wants("Job", err, jobs.ErrNotFound)
	_, err = k.Board.Wait(k.ctx, job)
	k.wants("Wait", err, jobs.ErrNotFound)
	_, err = k.Board.Claim(k.ctx, session, job, jobs.NewNonce())
	k.wants("Claim", err, jobs.ErrNotFound)
	k.wants("Consume", k.Board.Consume(k.ctx, jobs.Ending{Job: job, Token: token, Outcome: jobs.OutcomeSuccess}), jobs.ErrNotFound)
	k.wants("Abandon", k.Board.Abandon(k.ctx, jobs.Ending{Job: job, Token: token}), jobs.ErrNotFound)
	k.wants("Trash", k.Board.Trash(k.ctx, jobs.Ending{Job: job, Token: token}), jobs.ErrNotFound)
}

// list reads all jobs that a query selects, by pages of a size.
func (k *kit) list(query jobs.Query, size int) []string {
	k.Helper()
	listed := []string{}
	query.Limit = size
	for {
		page, err := k.Board.Jobs(k.ctx, query)
		if err != nil {
			k.Fatalf("Jobs: %v", err)
		}
		if size > 0 && len(page.Items) > size {
			k.Fatalf("a page of %d jobs, and %d were asked for", len(page.Items), size)
		}
		for i := range page.Items {
			listed = append(listed, page.Items[i].Name)
		}
		if page.Next == "" {
			return listed
		}
		if page.Next == query.After {
			k.Fatalf("the page after %q continues at itself", page.Next)
		}
		query.After = page.Next
	}
}

func jobsByPages(k *kit) {
	var want []string
	for i := range 7 {
		want = append(want, k.posted(fmt.Sprint("job ", i)).Name)
	}
	for _, size := range []int{1, 2, 3, 6, 7, 8, 0, logbook.MaxPage + 1} {
		k.same(fmt.Sprint("jobs by pages of ", size), k.list(jobs.Query{Board: k.board}, size), want)
	}
}

func jobsByFilter(k *kit) {
	session := k.session("worker")
	k.posted("waiting")
	done, aside := k.owned(session, "done"), k.owned(session, "aside")
	k.owned(session, "held")
	k.wants("Consume", k.Board.Consume(k.ctx, success(done)), nil)
	k.wants("Trash", k.Board.Trash(k.ctx, release(aside)), nil)
	elsewhere := k.posting("elsewhere")
	elsewhere.Board += " 2"
	otherwise := k.posting("otherwise")
	otherwise.Kind += " 2"
	k.post(elsewhere, otherwise)
	first, err := k.Board.Jobs(k.ctx, jobs.Query{Board: k.board, Limit: 4})
	k.wants("Jobs", err, nil)
	for _, filter := range []struct {
		name  string
		query jobs.Query
		want  []string
	}{
		{"a board", jobs.Query{Board: k.board}, []string{"waiting", "done", "aside", "held", "otherwise"}},
		{"another board", jobs.Query{Board: elsewhere.Board}, []string{"elsewhere"}},
		{"a kind on any board", jobs.Query{Kind: k.kind}, []string{"waiting", "done", "aside", "held", "elsewhere"}},
		{"a kind on a board", jobs.Query{Board: k.board, Kind: otherwise.Kind}, []string{"otherwise"}},
		{"claimable", jobs.Query{Board: k.board, States: []jobs.State{jobs.StateClaimable}}, []string{"waiting", "otherwise"}},
		{"claimed", jobs.Query{Board: k.board, States: []jobs.State{jobs.StateClaimed}}, []string{"held"}},
		{"completed", jobs.Query{Board: k.board, States: []jobs.State{jobs.StateCompleted}}, []string{"done"}},
		{"trashed", jobs.Query{Board: k.board, States: []jobs.State{jobs.StateTrashed}}, []string{"aside"}},
		{"finished", jobs.Query{Board: k.board, States: []jobs.State{jobs.StateTrashed, jobs.StateCompleted}}, []string{"done", "aside"}},
		{"after a page", jobs.Query{Board: k.board, After: first.Next}, []string{"otherwise"}},
		{"nothing", jobs.Query{Board: k.board + " 3"}, []string{}},
	} {
		for _, size := range []int{0, 1} {
			k.same(filter.name, k.list(filter.query, size), filter.want)
		}
	}
}

func jobsNewestFirst(k *kit) {
	session, tag := k.session("worker"), "tag of "+k.board
	for i := range 5 {
		posting := k.posting(fmt.Sprint("job ", i))
		if i%2 == 0 {
			posting.Tags = []string{tag}
		}
		k.post(posting)
	}
	k.wants("Trash", k.Board.Trash(k.ctx, release(k.owned(session, "aside"))), nil)
	elsewhere := k.posting("elsewhere")
	elsewhere.Board += " 2"
	k.post(elsewhere)
	for _, row := range []struct {
		name  string
		query jobs.Query
		want  []string
	}{
		{"a board", jobs.Query{Board: k.board}, []string{"aside", "job 4", "job 3", "job 2", "job 1", "job 0"}},
		{"a tag", jobs.Query{Tags: []string{tag}}, []string{"job 4", "job 2", "job 0"}},
		{"a state with an index", jobs.Query{Board: k.board, States: []jobs.State{jobs.StateTrashed}}, []string{"aside"}},
		{"a kind on any board", jobs.Query{Kind: k.kind, Name: "e"}, []string{"elsewhere", "aside"}},
		{"nothing", jobs.Query{Tags: []string{"no " + tag}}, []string{}},
	} {
		row.query.Order = jobs.OrderNewest
		for _, size := range []int{0, 1, 2, 3} {
			k.same(fmt.Sprint(row.name, " by pages of ", size), k.list(row.query, size), row.want)
		}
	}
	first, err := k.Board.Jobs(k.ctx, jobs.Query{Board: k.board, Order: jobs.OrderNewest, Limit: 2})
	k.wants("Jobs", err, nil)
	k.posted("later")
	k.same("after a page, with a newer job", k.list(jobs.Query{Board: k.board, Order: jobs.OrderNewest, After: first.Next}, 0), []string{"job 3", "job 2", "job 1", "job 0"})
}

func jobsInClaimOrder(k *kit) {
	session := k.session("worker")
	post := func(name string, change func(*jobs.Posting)) {
		posting := k.posting(name)
		change(&posting)
		k.post(posting)
	}
	post("normal", func(*jobs.Posting) {})
	post("low", func(p *jobs.Posting) { p.Priority = -5 })
	post("high with a label", func(p *jobs.Posting) { p.Priority, p.Labels = 5, []string{"gpu"} })
	post("normal with a label", func(p *jobs.Posting) { p.Labels = []string{"gpu"} })
	post("front", func(p *jobs.Posting) { p.Front = true })
	post("front of the front", func(p *jobs.Posting) { p.Front = true })
	post("of another kind", func(p *jobs.Posting) { p.Kind += " 2" })
	post("held", func(p *jobs.Posting) { p.Hold = true })
	post("elsewhere", func(p *jobs.Posting) { p.Board += " 2" })
	k.owned(session, "claimed")
	want := []string{"high with a label", "front of the front", "front", "normal", "normal with a label", "of another kind", "low"}
	for _, row := range []struct {
		name  string
		query jobs.Query
		want  []string
		scans bool
	}{
		{"a board", jobs.Query{Board: k.board}, want, false},
		{"claimable jobs of a board", jobs.Query{Board: k.board, States: []jobs.State{jobs.StateClaimable}}, want, false},
		{"a kind", jobs.Query{Board: k.board, Kind: k.kind}, []string{"high with a label", "front of the front", "front", "normal", "normal with a label", "low"}, false},
		{"another kind", jobs.Query{Board: k.board, Kind: k.kind + " 2"}, []string{"of another kind"}, false},
		{"a part of the name", jobs.Query{Board: k.board, Name: "label"}, []string{"high with a label", "normal with a label"}, true},
		{"a board that is not there", jobs.Query{Board: k.board + " 3"}, []string{}, false},
	} {
		row.query.Order = jobs.OrderClaim
		for _, size := range []int{0, 1, 2, 3} {
			k.same(fmt.Sprint(row.name, " by pages of ", size), k.list(row.query, size), row.want)
		}
		if page, err := k.Board.Jobs(k.ctx, row.query); err != nil || page.Scans != row.scans {
			k.Errorf("%s: scans %t, %v", row.name, page.Scans, err)
		}
	}
	offered := k.request(session)
	offered.Kinds, offered.Labels, offered.Max = nil, []string{"gpu"}, len(want)
	claimed, err := k.Board.ClaimNext(k.ctx, offered)
	k.wants("ClaimNext", err, nil)
	taken := []string{}
	for i := range claimed {
		taken = append(taken, claimed[i].Job.Name)
	}
	k.same("jobs as they were claimed", taken, want)
}

func unknownOrder(k *kit) {
	for name, query := range map[string]jobs.Query{
		"an unknown order":            {Order: "odd"},
		"claim order of claimed jobs": {Order: jobs.OrderClaim, States: []jobs.State{jobs.StateClaimable, jobs.StateClaimed}},
		"claim order of outcomes":     {Order: jobs.OrderClaim, Outcomes: []jobs.Outcome{jobs.OutcomeSuccess}},
		"a place in another order":    {Order: jobs.OrderClaim, After: "12"},
		"no place in posting order":   {After: "claim-12"},
	} {
		_, err := k.Board.Jobs(k.ctx, query)
		k.wants(name, err, jobs.ErrInvalid)
	}
}

func listingIsLight(k *kit) {
	posting := k.posting("heavy")
	posting.Details, posting.Store = json.RawMessage(`{"a":1}`), logbook.Values{"a": json.RawMessage(`1`)}
	want := k.post(posting)[0]
	page, err := k.Board.Jobs(k.ctx, jobs.Query{Board: k.board})
	if err != nil || len(page.Items) != 1 {
		k.Fatalf("Jobs: %s, %v", render(page), err)
	}
	want.Details, want.Store = nil, nil
	k.same("job in a listing", page.Items[0], want)
}

func waitForFinished(k *kit) {
	session := k.session("worker")
	done, aside := k.owned(session, "done"), k.owned(session, "aside")
	k.wants("Consume", k.Board.Consume(k.ctx, success(done)), nil)
	k.wants("Trash", k.Board.Trash(k.ctx, release(aside)), nil)
	for id, want := range map[jobs.JobID]jobs.State{done.Job.ID: jobs.StateCompleted, aside.Job.ID: jobs.StateTrashed} {
		job, err := k.Board.Wait(k.ctx, id)
		if err != nil || job.State != want {
			k.Errorf("Wait: %s, %v; want it %s", render(job), err, want)
		}
	}
}

func waitIsTold(k *kit) {
	const waiters = 8
	posting := k.posting("awaited")
	posting.Details = json.RawMessage(`{"a": 1}`)
	k.post(posting)
	told := make(chan jobs.Job, waiters)
	var group sync.WaitGroup
	for range waiters {
		group.Go(func() {
			job, err := k.Board.Wait(k.ctx, posting.ID)
			if err != nil {
				k.Errorf("Wait: %v", err)
			}
			told <- job
		})
	}
	session := k.session("worker")
	k.linger(session)
	claimed := k.claim(session, posting.ID)
	k.wants("Abandon", k.Board.Abandon(k.ctx, release(claimed)), nil)
	claimed = k.claim(session, posting.ID)
	k.linger(session)
	select {
	case job := <-told:
		k.Errorf("Wait has answered before the end: %s", render(job))
	default:
	}
	k.wants("Consume", k.Board.Consume(k.ctx, success(claimed)), nil)
	for range waiters {
		job := answer(k, "Wait", told)
		if job.State != jobs.StateCompleted || job.Outcome != jobs.OutcomeSuccess || string(job.Details) != string(posting.Details) {
			k.Errorf("Wait: %s, want the completed job", render(job))
		}
	}
	group.Wait()
}

func waitEndsWithContext(k *kit) {
	job := k.posted("forgotten")
	ctx, cancel := context.WithCancel(k.ctx)
	ended := make(chan error, 1)
	go func() {
		_, err := k.Board.Wait(ctx, job.ID)
		ended <- err
	}()
	k.linger(k.session("idler"))
	cancel()
	k.wants("Wait", answer(k, "Wait", ended), context.Canceled)
}

func explained(k *kit) {
	because := func(id jobs.JobID, want jobs.Cause) jobs.Explanation {
		k.Helper()
		got, err := k.Board.Explain(k.ctx, id)
		if err != nil || got.Cause != want || got.Job != id || got.Text == "" {
			k.Errorf("explained as %s, %v; want %s", render(got), err, want)
		}
		return got
	}
	session := k.session("worker")
	register := func(conductor jobs.Entity) {
		k.Helper()
		conductor.Kind, conductor.Name, conductor.Boards = jobs.EntityConductor, "conductor of "+k.kind, []string{k.board}
		k.wants("Register", k.Board.Register(k.ctx, session, conductor), nil)
	}
	first := k.posted("first")
	because(first.ID, jobs.CauseNoConductor)
	register(jobs.Entity{JobKinds: []string{k.kind}, MaxJobs: 2})
	because(first.ID, jobs.CauseReady)
	second := k.posted("second")
	high := k.posting("high")
	high.Priority = 300
	k.post(high)
	if got := because(second.ID, jobs.CauseBehind); !strings.HasPrefix(got.Text, "2 jobs") || got.Remedy.Value != "301" {
		k.Errorf("explained as %s", render(got))
	}
	k.wants("Cancel", k.Board.Cancel(k.ctx, command(high.ID)), nil)
	because(k.post(k.labelled("labelled", "gpu"))[0].ID, jobs.CauseLabels)
	claimed := k.claim(session, first.ID)
	because(first.ID, jobs.CauseClaimed)
	because(second.ID, jobs.CauseReady)
	register(jobs.Entity{JobKinds: []string{k.kind}, MaxJobs: 1})
	because(second.ID, jobs.CauseFull)
	k.wants("Consume", k.Board.Consume(k.ctx, success(claimed)), nil)
	because(first.ID, jobs.CauseFinished)
	k.wants("Suspend", k.Board.Suspend(k.ctx, command(second.ID)), nil)
	if got := because(second.ID, jobs.CauseSuspended); !strings.Contains(got.Text, "ann") || got.Remedy.Target != second.ID.String() {
		k.Errorf("explained as %s", render(got))
	}
	_, err := k.Board.Explain(k.ctx, jobs.NewJobID())
	k.wants("Explain of no job", err, jobs.ErrNotFound)
}
