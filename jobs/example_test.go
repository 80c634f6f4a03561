package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/await"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/node/boardtest"
)

// openBoard returns a board for examples. A real program dials a cluster with raftboard.Dial.
func openBoard() (board *boardtest.Board, done func()) {
	board, err := boardtest.Open("", boardtest.Options{})
	if err != nil {
		log.Fatal(err)
	}
	return board, func() { _ = board.Close() }
}

// Many jobs are posted in one call, and each posting has its own result.
func Example_postMany() {
	ctx := context.Background()
	board, done := openBoard()
	defer done()
	posted, err := board.Post(ctx,
		jobs.Posting{Name: "first", Kind: "mail"},
		jobs.Posting{Name: "second", Kind: "mail", Tags: []string{"eu", "eu"}},
	)
	if err != nil {
		log.Fatal(err) // of the whole call; repeating it with the same ids is harmless
	}
	for _, p := range posted {
		fmt.Println(p.Job.State, p.Err)
	}
	// Output:
	// claimable <nil>
	//  posting tags is invalid: "eu" occurs twice
}

// A program posts two jobs: one with a flow, which it names by kind without having the flow's code,
// and one without a flow. The values are Go values.
func ExampleNewPosting() {
	ctx := context.Background()
	board, done := openBoard()
	defer done()
	type trip struct {
		Guest  string `json:"guest"`
		Nights int    `json:"nights"`
	}
	job, err := jobs.PostOne(ctx, board, jobs.NewPosting("travel", nil, trip{Guest: "Ada", Nights: 3}))
	fmt.Println(job.Kind, string(job.Store["guest"]), err)

	posting := jobs.NewPlainPosting("mail", map[string]any{"to": "Ada"})
	posting.Priority, posting.Retry = jobs.High, &jobs.RetryPolicy{Backoff: logbook.Backoff{Attempts: 5}}
	job, err = jobs.PostOne(ctx, board, posting)
	fmt.Println(job.Kind, string(job.Details), err)

	_, err = jobs.PostOne(ctx, board, jobs.NewPlainPosting("mail", func() {}))
	fmt.Println(err)
	// Output:
	// travel "Ada" <nil>
	// mail {"to":"Ada"} <nil>
	// posting details is invalid: cannot be encoded as JSON: json: unsupported type: func()
}

type order struct {
	Number int `json:"number"`
}

// postOrder posts the flow of an order. After an error, call it again with the same id.
func postOrder(ctx context.Context, client jobs.Board, id jobs.JobID, o order) (jobs.Job, error) {
	posting := jobs.NewPosting("order", nil, o)
	posting.ID = id
	job, err := jobs.PostOne(ctx, client, posting)
	if errors.Is(err, jobs.ErrConflict) {
		return client.Job(ctx, id) // an earlier call has posted the job
	}
	return job, err
}

// A program chooses the id of a job before it posts the job, and can repeat the posting after a
// restart.
func Example_postOnce() {
	ctx := context.Background()
	client, done := openBoard()
	defer done()
	id := jobs.NewJobID() // a real program stores the id with the order
	for range 2 {
		job, err := postOrder(ctx, client, id, order{Number: 17})
		fmt.Println(job.ID == id, job.Kind, err)
	}
	page, err := client.Jobs(ctx, jobs.Query{Kind: "order"})
	fmt.Println(len(page.Items), err)
	// Output:
	// true order <nil>
	// true order <nil>
	// 1 <nil>
}

// A program sends a signal to the job with a key, and publishes to a topic.
func Example_signals() {
	ctx := context.Background()
	client, done := openBoard()
	defer done()
	if _, err := jobs.PostOne(ctx, client, jobs.Posting{Name: "order", Kind: "order", Key: "order-17"}); err != nil {
		log.Fatal(err)
	}
	amount := json.RawMessage(`{"amount": 100}`)
	signal, err := client.SignalKey(ctx, "default", "order-17", logbook.Signal{Name: "paid", ID: "evt_17", Data: amount})
	fmt.Println(signal.Answer, err)

	published, err := client.Publish(ctx, jobs.Publication{
		Topic: "payments", Key: "17", Keep: 24 * time.Hour,
		Signal: logbook.Signal{ID: "evt_17", Data: amount},
	})
	fmt.Println(published.Answer, err)
	// Output:
	// kept <nil>
	// kept <nil>
}

// A worker that is not a conductor claims a job with its own TTL, works, extends the claim, and
// completes the job. Other callers wait until no job is left.
func Example_workByHand() {
	ctx := context.Background()
	board, done := openBoard()
	defer done()
	if _, err := jobs.PostOne(ctx, board, jobs.Posting{Name: "paint", Kind: "paint"}); err != nil {
		log.Fatal(err)
	}
	session, err := board.OpenSession(ctx, jobs.Opening{ID: jobs.NewSessionID(), Name: "painter", TTL: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	// A real program sends keep-alives every fifth of the TTL, in its own goroutine.
	if err := board.KeepAlive(ctx, session.ID); err != nil {
		log.Fatal(err) // jobs.ErrSessionExpired: stop the work, its claims are over
	}
	claimed, err := board.ClaimNext(ctx, jobs.ClaimRequest{
		Session: session.ID, Nonce: jobs.NewNonce(), Kinds: []string{"paint"}, Expiry: time.Minute, Wait: 10 * time.Second,
	})
	if err != nil || len(claimed) == 0 {
		log.Fatal("nothing to do: ", err)
	}
	job := claimed[0].Job
	if err := board.Extend(ctx, job.ID, job.Token, time.Hour); err != nil {
		log.Fatal(err) // jobs.ErrFenced: another worker has the job
	}
	if err := board.Consume(ctx, jobs.Ending{Job: job.ID, Token: job.Token, Outcome: jobs.OutcomeSuccess}); err != nil {
		log.Fatal(err)
	}
	status, err := await.Jobs(ctx, board, await.Waiting{Kind: "paint"})
	fmt.Println(job.Name, status.Left, err)
	// Output: paint 0 <nil>
}

// A watch resumes after the last event that its reader has seen.
func Example_watchAndResume() {
	ctx := context.Background()
	board, done := openBoard()
	defer done()
	for _, name := range []string{"first", "second"} {
		if _, err := jobs.PostOne(ctx, board, jobs.Posting{Name: name, Kind: "mail"}); err != nil {
			log.Fatal(err)
		}
	}
	last := jobs.Position{} // before all events; a real program stores the last position that it has seen
	for range 2 {
		for event, err := range board.Watch(ctx, jobs.Watch{After: &last, JobKind: "mail"}) {
			var compacted *jobs.CompactedError
			if errors.As(err, &compacted) {
				last = compacted.Since // and read the jobs to get the earlier changes
				break
			}
			if err != nil {
				log.Fatal(err)
			}
			fmt.Println(event.Kind, event.Name)
			last = event.Position
			break
		}
	}
	// Output:
	// posted first
	// posted second
}

// An operator suspends a job with a reason, and resumes it.
func Example_steer() {
	ctx := context.Background()
	board, done := openBoard()
	defer done()
	job, err := jobs.PostOne(ctx, board, jobs.Posting{Name: "paint", Kind: "paint"})
	if err != nil {
		log.Fatal(err)
	}
	if err := board.Suspend(ctx, jobs.JobCommand{Job: job.ID, By: "ann", Reason: "it rains"}); err != nil {
		log.Fatal(err)
	}
	why, err := board.Explain(ctx, job.ID)
	fmt.Println(why.Cause, err)
	if err := board.Resume(ctx, jobs.JobCommand{Job: job.ID, By: "ann"}); err != nil {
		log.Fatal(err)
	}
	for job, err := range jobs.All(ctx, board, jobs.Query{Kind: "paint"}) {
		fmt.Println(job.Name, job.State, err)
	}
	// Output:
	// suspended <nil>
	// paint claimable <nil>
}
