package jobstest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

var postingRows = []row{
	{"a posted job reads back", postedReadsBack},
	{"details and store are kept byte for byte", postedBytes},
	{"no board means the default board", defaultBoard},
	{"a posting without an id gets one", postingWithoutID},
	{"a book is saved with its job", bookWithJob},
	{"a refused posting saves no book", refusedSavesNoBook},
	{"a job may name a book that was saved before", bookSavedBefore},
	{"each posting has its own verdict", postingVerdicts},
	{"posting again is a repeat", postingAgain},
	{"posting again later returns the job in its current state", postingAgainLater},
	{"twenty repeats at once make one job", twentyRepeats},
	{"the same id with other content is a conflict", sameIDOtherContent},
	{"a flow has one unfinished job", oneJobPerFlow},
	{"jobs are numbered in posting order", postingOrder},
	{"a job that is not due waits", delayedJobWaits},
	{"a job that was due long ago is claimable", dueLongAgo},
	{"a key has one unfinished job", oneJobPerKey},
	{"no finished job is reopened while another has its key", keyIsTaken},
	{"twenty postings of one key make one job", twentyOfOneKey},
	{"the front is before its equals", frontIsFirst},
	{"jobs are found by tags and key", foundByTags},
	{"a job may bring its own number of crashes", ownCrashes},
	{"keys, tags and crashes have bounds", boundsOfPostings},
	{"postings are made of Go values", madeOfValues},
	{"a traceparent is kept, and a repeat may have another", keptTraceparent},
}

const (
	traceparentA = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	traceparentB = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b8-00"
)

func keptTraceparent(k *kit) {
	posting := k.posting("traced")
	posting.Traceparent = traceparentA
	posted := k.post(posting)[0]
	posting.Traceparent = traceparentB
	again := k.post(posting)[0]
	for what, job := range map[string]jobs.Job{"posted": posted, "posted again": again, "read": k.job(posting.ID)} {
		k.same("the traceparent of the job that was "+what, job.Traceparent, traceparentA)
	}
}

// madeOfValues posts the results of NewPosting and NewPlainPosting.
func madeOfValues(k *kit) {
	var input struct {
		Name  string `json:"name"`
		Title string `json:"title,omitempty"`
	}
	input.Name = "Ada"
	withFlow, plain := jobs.NewPosting(k.kind, []int{1, 2}, input), jobs.NewPlainPosting(k.kind, input)
	withFlow.Board, plain.Board = k.board, k.board
	posted := k.post(withFlow, plain)
	flow := k.flow(posted[0].Flow)
	if flow.Factory.Name != k.kind || string(flow.Factory.Args) != "[1,2]" || posted[0].Kind != k.kind || string(k.job(posted[0].ID).Store["name"]) != `"Ada"` || len(posted[0].Store) != 1 {
		k.Errorf("the job with a flow is %s, with %s", render(posted[0]), render(flow))
	}
	if got := k.job(posted[1].ID); got.Kind != k.kind || !got.Flow.IsZero() || string(got.Details) != `{"name":"Ada"}` {
		k.Errorf("the plain job is %s", render(got))
	}
	for what, broken := range map[string]jobs.Posting{
		"args":    jobs.NewPosting(k.kind, make(chan int), nil),
		"store":   jobs.NewPosting(k.kind, nil, []int{1}),
		"details": jobs.NewPlainPosting(k.kind, make(chan int)),
	} {
		k.wantsInvalid(what, broken.Err)
		k.wants(what, k.verdict(broken), broken.Err)
	}
}

func postedReadsBack(k *kit) {
	posting := k.posting("plain")
	posting.Priority = jobs.High
	posted := k.post(posting)[0]
	got := k.job(posting.ID)
	k.same("the job as it was answered", posted, got)
	if got.PostedAt.IsZero() || got.ModifiedAt.Before(got.PostedAt) || !got.FinishedAt.IsZero() || got.Sequence == 0 {
		k.Errorf("times and number: %s", render(got))
	}
	k.same("job", got, jobs.Job{
		ID: posting.ID, Board: k.board, Name: "plain", Kind: k.kind, Priority: jobs.High, State: jobs.StateClaimable,
		Sequence: got.Sequence, PostedAt: got.PostedAt, ModifiedAt: got.ModifiedAt, ClaimableAt: got.PostedAt, Size: got.Size,
	})
}

func postedBytes(k *kit) {
	posting := k.posting("odd")
	posting.Details = json.RawMessage("{ \"b\": 12345678901234567890123, \"a\":\n[2.50, 1E+2, \"\\u00e5<&>\"], \"c\": null }")
	posting.Store = logbook.Values{"odd": posting.Details, "letters": json.RawMessage(`"åß漢🙂"`), "null": json.RawMessage(`null`)}
	posted, again := k.post(posting)[0], k.post(posting)[0]
	claimed := k.claim(k.session("reader"), posting.ID)
	for what, job := range map[string]jobs.Job{"posted": posted, "posted again": again, "read": k.job(posting.ID), "claimed": claimed.Job} {
		if !bytes.Equal(job.Details, posting.Details) {
			k.Errorf("%s: details are %q, want %q", what, job.Details, posting.Details)
		}
		if len(job.Store) != len(posting.Store) {
			k.Errorf("%s: store has %d values, want %d", what, len(job.Store), len(posting.Store))
		}
		for name, want := range posting.Store {
			if !bytes.Equal(job.Store[name], want) {
				k.Errorf("%s: %s in the store is %q, want %q", what, name, job.Store[name], want)
			}
		}
	}
}

func defaultBoard(k *kit) {
	posting := k.posting("anywhere")
	posting.Board = ""
	if job := k.post(posting)[0]; job.Board != jobs.DefaultBoard {
		k.Errorf("posted on %q, want %q", job.Board, jobs.DefaultBoard)
	}
	session := k.session("worker")
	claimed := k.next(jobs.ClaimRequest{Session: session, Nonce: jobs.NewNonce(), Kinds: []string{k.kind}})
	k.same("jobs claimed without naming a board", names(claimed), []string{"anywhere"})
	if len(claimed) == 1 {
		k.wants("Consume", k.Board.Consume(k.ctx, success(claimed[0])), nil)
	}
}

func postingWithoutID(k *kit) {
	posting := k.posting("nameless")
	posting.ID = jobs.JobID{}
	first, second := k.post(posting)[0], k.post(posting)[0]
	if first.ID.IsZero() || first.ID == second.ID {
		k.Errorf("got ids %s and %s, want two", first.ID, second.ID)
	}
	k.same("job", k.job(first.ID), first)
}

func bookWithJob(k *kit) {
	posting := k.withFlow("travel")
	flow := posting.Book.Flows[0]
	job := k.post(posting)[0]
	if job.Book != posting.Book.ID || job.BookName != posting.Book.Name || job.Flow != flow.ID || job.Kind != "test" {
		k.Errorf("got %s, want book, flow and the factory's name as kind", render(job))
	}
	book, err := k.Logbook.Book(k.ctx, posting.Book.ID)
	if err != nil || book.Name != posting.Book.Name || len(book.Flows) != 1 {
		k.Fatalf("Book: %s, %v", render(book), err)
	}
	claimed := k.claim(k.session("worker"), job.ID)
	if claimed.Book == nil || claimed.Flow == nil {
		k.Fatalf("claimed without book or flow: %s", render(claimed))
	}
	k.same("claimed book", []any{claimed.Book.ID, claimed.Book.Name, claimed.Book.Meta}, []any{book.ID, book.Name, book.Meta})
	k.same("claimed flow", *claimed.Flow, k.flow(flow.ID))
	k.same("store of the flow", claimed.Flow.Store, flow.Store)
	k.same("factory of the flow", claimed.Flow.Factory, flow.Factory)
	if claimed.Flow.State != logbook.FlowPending {
		k.Errorf("the flow is %s, want pending", claimed.Flow.State)
	}
}

func (k *kit) flow(id logbook.FlowID) logbook.FlowDetail {
	k.Helper()
	flow, err := k.Logbook.FlowDetail(k.ctx, id)
	if err != nil {
		k.Fatalf("FlowDetail: %v", err)
	}
	return flow
}

// saved saves a book of flows with the given names.
func (k *kit) saved(flows ...string) logbook.Book {
	k.Helper()
	book := journey(flows...)
	if err := k.Logbook.SaveBook(k.ctx, book); err != nil {
		k.Fatalf("SaveBook: %v", err)
	}
	return book
}

func refusedSavesNoBook(k *kit) {
	for _, refusal := range []struct {
		name  string
		spoil func(*jobs.Posting)
		want  error
	}{
		{"a flow that is not in the book", func(p *jobs.Posting) { p.Flow = logbook.NewFlowID() }, jobs.ErrNotFound},
		{"two flows and none named", func(p *jobs.Posting) { *p.Book = journey("out", "back") }, jobs.ErrInvalid},
		{"a book without flows", func(p *jobs.Posting) { *p.Book = journey() }, jobs.ErrInvalid},
		{"the id of another job", func(p *jobs.Posting) { p.ID = k.posted("first").ID }, jobs.ErrConflict},
	} {
		posting := k.withFlow("travel")
		refusal.spoil(&posting)
		k.wants(refusal.name, k.verdict(posting), refusal.want)
		_, err := k.Logbook.Book(k.ctx, posting.Book.ID)
		k.wants("the book of a posting with "+refusal.name, err, logbook.ErrNotFound)
	}
}

func bookSavedBefore(k *kit) {
	one, two, none := k.saved("out"), k.saved("out", "back"), k.saved()
	for _, reference := range []struct {
		name string
		book logbook.BookID
		flow logbook.FlowID
		want error
	}{
		{"an unknown book", logbook.NewBookID(), logbook.FlowID{}, jobs.ErrNotFound},
		{"an unknown flow", one.ID, logbook.NewFlowID(), jobs.ErrNotFound},
		{"a flow of another book", one.ID, two.Flows[0].ID, jobs.ErrNotFound},
		{"two flows and none named", two.ID, logbook.FlowID{}, jobs.ErrInvalid},
		{"a book without flows", none.ID, logbook.FlowID{}, jobs.ErrInvalid},
		{"the only flow", one.ID, logbook.FlowID{}, nil},
		{"a named flow", two.ID, two.Flows[1].ID, nil},
	} {
		posting := jobs.Posting{ID: jobs.NewJobID(), Board: k.board, Name: "travel", BookID: reference.book, Flow: reference.flow}
		k.wants(reference.name, k.verdict(posting), reference.want)
		if reference.want != nil {
			_, err := k.Board.Job(k.ctx, posting.ID)
			k.wants("the job refused for "+reference.name, err, jobs.ErrNotFound)
			continue
		}
		job := k.job(posting.ID)
		if job.Book != reference.book || job.BookName != "a journey" || job.Flow.IsZero() || job.Kind != "test" {
			k.Errorf("%s: got %s", reference.name, render(job))
		}
	}
}

func postingVerdicts(k *kit) {
	good, last := k.posting("good"), k.withFlow("last")
	lost, nameless, twin := k.posting("lost"), k.posting(""), k.posting("twin")
	lost.Kind, lost.BookID = "", logbook.NewBookID()
	twin.ID = good.ID
	postings := []jobs.Posting{lost, good, nameless, twin, last}
	want := []error{jobs.ErrNotFound, nil, jobs.ErrInvalid, jobs.ErrConflict, nil}
	answers, err := k.Board.Post(k.ctx, postings...)
	if err != nil || len(answers) != len(want) {
		k.Fatalf("Post: %d answers, %v", len(answers), err)
	}
	for i := range want {
		k.wants(fmt.Sprint("posting ", i), answers[i].Err, want[i])
		if answers[i].Job.ID != postings[i].ID {
			k.Errorf("answer %d is about %s, want %s", i, answers[i].Job.ID, postings[i].ID)
		}
		if want[i] != nil && (answers[i].Existed || answers[i].Job.Sequence != 0) {
			k.Errorf("refused posting %d is answered with the job %s", i, render(answers[i].Job))
		}
	}
	page, err := k.Board.Jobs(k.ctx, jobs.Query{Board: k.board})
	if err != nil || len(page.Items) != 2 || page.Items[0].Name != "good" || page.Items[1].Name != "last" {
		k.Errorf("Jobs: %s, %v", render(page), err)
	}
}

func postingAgain(k *kit) {
	for _, posting := range []jobs.Posting{k.posting("plain"), k.withFlow("travel"), {ID: jobs.NewJobID(), Board: k.board, Name: "saved", BookID: k.saved("out").ID}} {
		posting.Store = logbook.Values{"a": json.RawMessage(`1`), "b": json.RawMessage(`2`), "c": json.RawMessage(`3`)}
		first := k.post(posting)[0]
		answers, err := k.Board.Post(k.ctx, posting)
		if err != nil || len(answers) != 1 || answers[0].Err != nil || !answers[0].Existed {
			k.Fatalf("posting %q again: %+v, %v", posting.Name, answers, err)
		}
		k.same("the repeated job", answers[0].Job, first)
	}
	if page, err := k.Board.Jobs(k.ctx, jobs.Query{Board: k.board}); err != nil || len(page.Items) != 3 {
		k.Errorf("Jobs: %d, %v; want 3", len(page.Items), err)
	}
}

func postingAgainLater(k *kit) {
	posting := k.withFlow("travel")
	claimed := k.claim(k.session("worker"), k.post(posting)[0].ID)
	k.again(posting, jobs.StateClaimed)
	run := []logbook.Update{
		{Flow: claimed.Job.Flow, Token: claimed.Job.Token, Sequence: 1, State: logbook.FlowRunning},
		{Flow: claimed.Job.Flow, Token: claimed.Job.Token, Sequence: 2, State: logbook.FlowSuccess},
	}
	if verdicts, err := k.Logbook.Update(k.ctx, run...); err != nil || verdicts[0] != nil || verdicts[1] != nil {
		k.Fatalf("Update: %v, %v", verdicts, err)
	}
	k.wants("Consume", k.Board.Consume(k.ctx, success(claimed)), nil)
	k.again(posting, jobs.StateCompleted)
}

// again repeats a posting and checks the state of the job.
func (k *kit) again(posting jobs.Posting, want jobs.State) {
	k.Helper()
	answers, err := k.Board.Post(k.ctx, posting)
	if err != nil || answers[0].Err != nil || !answers[0].Existed || answers[0].Job.State != want {
		k.Errorf("posting again: %+v, %v; want the job, %s", answers, err, want)
	}
}

func twentyRepeats(k *kit) {
	posting := k.withFlow("travel")
	made := make(chan jobs.Job, 20)
	var group sync.WaitGroup
	for range cap(made) {
		group.Go(func() {
			answers, err := k.Board.Post(k.ctx, posting)
			if err != nil || len(answers) != 1 || answers[0].Err != nil {
				k.Errorf("Post: %+v, %v", answers, err)
				return
			}
			if !answers[0].Existed {
				made <- answers[0].Job
			}
		})
	}
	group.Wait()
	if len(made) != 1 {
		k.Errorf("%d of %d calls made the job, want 1", len(made), cap(made))
	}
	if page, err := k.Board.Jobs(k.ctx, jobs.Query{Board: k.board}); err != nil || len(page.Items) != 1 {
		k.Errorf("Jobs: %d, %v; want 1", len(page.Items), err)
	}
}

func sameIDOtherContent(k *kit) {
	posting := k.posting("plain")
	posting.Details, posting.Store = json.RawMessage(`{"a":1}`), logbook.Values{"a": json.RawMessage(`1`)}
	k.post(posting)
	before := k.job(posting.ID)
	for what, change := range map[string]func(*jobs.Posting){
		"board":    func(p *jobs.Posting) { p.Board += "2" },
		"name":     func(p *jobs.Posting) { p.Name = "other" },
		"kind":     func(p *jobs.Posting) { p.Kind += "2" },
		"priority": func(p *jobs.Posting) { p.Priority = 1 },
		"details":  func(p *jobs.Posting) { p.Details = json.RawMessage(`{"a": 1}`) },
		"store":    func(p *jobs.Posting) { p.Store = logbook.Values{"a": json.RawMessage(`2`)} },
		"due time": func(p *jobs.Posting) { p.NotBefore = time.Now().Add(time.Hour) },
		"flow":     func(p *jobs.Posting) { p.Kind, p.BookID = "", k.saved("out").ID },
	} {
		other := posting
		change(&other)
		k.wants("another "+what, k.verdict(other), jobs.ErrConflict)
	}
	k.same("the job that was there", k.job(posting.ID), before)
}

func oneJobPerFlow(k *kit) {
	book := k.saved("out", "back")
	refer := func(name string, flow int) jobs.Posting {
		return jobs.Posting{ID: jobs.NewJobID(), Board: k.board, Name: name, BookID: book.ID, Flow: book.Flows[flow].ID}
	}
	first, second, other := refer("first", 0), refer("second", 0), refer("other", 1)
	answers, err := k.Board.Post(k.ctx, first, second, other)
	if err != nil || len(answers) != 3 {
		k.Fatalf("Post: %+v, %v", answers, err)
	}
	k.wants("the first job of a flow", answers[0].Err, nil)
	k.wants("the second job of a flow", answers[1].Err, jobs.ErrConflict)
	k.wants("the job of another flow", answers[2].Err, nil)
	k.wants("the second, in another call", k.verdict(second), jobs.ErrConflict)
	claimed := k.claim(k.session("worker"), first.ID)
	k.wants("the second, while the first is claimed", k.verdict(second), jobs.ErrConflict)
	k.wants("Trash", k.Board.Trash(k.ctx, release(claimed)), nil)
	k.wants("the second, after the first is finished", k.verdict(second), nil)
}

func postingOrder(k *kit) {
	const posters, each = 8, 5
	var group sync.WaitGroup
	for range posters {
		group.Go(func() {
			last := uint64(0)
			for range each {
				answers, err := k.Board.Post(k.ctx, k.posting("one"), k.posting("two"))
				if err != nil || answers[0].Err != nil || answers[1].Err != nil {
					k.Errorf("Post: %+v, %v", answers, err)
					return
				}
				if one, two := answers[0].Job.Sequence, answers[1].Job.Sequence; one <= last || two <= one {
					k.Errorf("jobs are numbered %d, %d after %d", one, two, last)
				}
				last = answers[1].Job.Sequence
			}
		})
	}
	group.Wait()
	page, err := k.Board.Jobs(k.ctx, jobs.Query{Board: k.board})
	if err != nil || len(page.Items) != posters*each*2 {
		k.Fatalf("Jobs: %d, %v; want %d", len(page.Items), err, posters*each*2)
	}
	for i := 1; i < len(page.Items); i++ {
		if page.Items[i].Sequence <= page.Items[i-1].Sequence {
			k.Errorf("job %d has the number %d after %d", i, page.Items[i].Sequence, page.Items[i-1].Sequence)
		}
	}
}

func delayedJobWaits(k *kit) {
	posting := k.posting("later")
	posting.NotBefore = time.Now().Add(time.Hour).UTC()
	job := k.post(posting)[0]
	if job.State != jobs.StateDelayed || !job.DueAt.Equal(posting.NotBefore) || !job.NotBefore.Equal(posting.NotBefore) {
		k.Errorf("got %s, want it delayed until %v", render(job), posting.NotBefore)
	}
	session := k.session("worker")
	_, err := k.Board.Claim(k.ctx, session, job.ID, jobs.NewNonce())
	k.wants("Claim", err, jobs.ErrUnclaimable)
	k.same("jobs to be had", names(k.next(k.request(session))), []string{})
}

func dueLongAgo(k *kit) {
	posting := k.posting("late")
	posting.NotBefore = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	if job := k.post(posting)[0]; job.State != jobs.StateClaimable {
		k.Errorf("got %s, want it claimable", render(job))
	}
}
