package raftboard_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/jobs/schedules"
	"github.com/conductord/conductord/jobs/steplog"
	"github.com/conductord/conductord/jobs/steps"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/raftboard/node/backup"
	"github.com/conductord/conductord/raftboard/node/nodetest"
	"github.com/conductord/conductord/topology"
	"github.com/conductord/conductord/valuekeys"
)

// startOne runs a cluster of one node for an example, and returns its endpoint.
func startOne() (endpoint string, stop func()) {
	cluster, err := nodetest.Open(1)
	if err != nil {
		log.Fatal(err)
	}
	return cluster.Endpoints[0], func() { _ = cluster.Close() }
}

// dial connects to such a cluster.
func dial(ctx context.Context) (client *raftboard.Client, done func()) {
	endpoint, stop := startOne()
	client, err := raftboard.Dial(ctx, endpoint)
	if err != nil {
		log.Fatal(err)
	}
	return client, func() {
		client.Close()
		stop()
	}
}

// must ends an example after an error. A real program checks the kind of the error.
func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func value[T any](v T, err error) T {
	must(err)
	return v
}

// The endpoints are some nodes of one cluster. The client learns the other nodes from them.
func ExampleDial() {
	endpoint, stop := startOne()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := raftboard.Dial(ctx, endpoint)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	for _, node := range client.Cluster(ctx) {
		fmt.Println(node.Status.Node, node.Status.State, node.Err)
	}
	status, err := client.Status(ctx, endpoint)
	fmt.Println(status.Leader, err)
	_, err = client.TransferLeader(ctx, "")
	fmt.Println(errors.Is(err, jobs.ErrConflict)) // there is no other node
	// Output:
	// n1 leader <nil>
	// n1 <nil>
	// true
}

// A machine is admitted to a cluster, gets new addresses, and is removed. The command "conductord
// cluster join" also creates its data directory.
func ExampleClient_AddMember() {
	ctx := context.Background()
	client, done := dial(ctx)
	defer done()
	node := raftboard.NewMember{Cluster: "test", Name: "n2", Instance: uuid.New(), RaftAddress: "127.0.0.1:1", APIAddress: "127.0.0.1:2"}
	fmt.Println("version:", value(client.Upgrade(ctx)))
	fmt.Println("the same:", value(client.Verify(ctx)).Members[0].Same)
	admission := value(client.AddMember(ctx, node))
	fmt.Println("began with", admission.Founders[0].Name)
	_, err := client.SetVote(ctx, "n2", true)
	fmt.Println("it runs:", !errors.Is(err, jobs.ErrConflict))
	_, err = client.MoveMember(ctx, "n2", "127.0.0.1:3", "127.0.0.1:4")
	fmt.Println("it runs elsewhere:", !errors.Is(err, jobs.ErrConflict))
	for _, member := range value(client.RemoveMember(ctx, "n2")) {
		fmt.Println("left:", member.Name, member.Voter)
	}
	// Output:
	// version: 1
	// the same: true
	// began with n1
	// it runs: false
	// it runs elsewhere: false
	// left: n1 true
}

// A program of the team "orders" gets a token. With it, the program can post to boards whose names
// begin with "orders/", and nothing else. This example's node does not authenticate its callers.
func ExampleClient_AddAccessToken() {
	ctx := context.Background()
	client, done := dial(ctx)
	defer done()
	fmt.Println("callers are asked who they are:", value(client.WhoAmI(ctx)).Enforced)
	shop := access.Principal{Name: "shop", Grants: []access.Grant{{Role: access.Poster, Boards: "orders/*"}}}
	fmt.Println(client.SavePrincipal(ctx, shop))
	text, token := access.Draw(time.Now().AddDate(1, 0, 0)) // the text is for the program: raftboard.Options.Token
	fmt.Println(text[:4], client.AddAccessToken(ctx, "shop", token))
	for _, principal := range value(client.Principals(ctx, "")).Items {
		fmt.Println(principal.Name, principal.Grants, len(principal.Tokens))
		principal.HideValues = true
		first, second := client.UpdatePrincipal(ctx, principal), client.UpdatePrincipal(ctx, shop) // shop was never read
		fmt.Println(first, errors.Is(second, jobs.ErrConflict))
	}
	records := value(client.Audit(ctx, access.RecordQuery{Principal: "ann"})).Items
	fmt.Println(len(records), "deeds of ann,", len(value(client.Refusals(ctx))), "refusals")
	fmt.Println(client.RevokeAccessToken(ctx, "shop", token.ID), client.DeletePrincipal(ctx, "shop"))
	// Output:
	// callers are asked who they are: false
	// <nil>
	// cdt_ <nil>
	// shop [poster=orders/*] 1
	// <nil> true
	// 0 deeds of ann, 0 refusals
	// <nil> <nil>
}

// A quota limits the unfinished jobs of the team "orders" on its boards. A posting over a quota is
// refused and has no effect.
func ExampleClient_SaveQuota() {
	ctx := context.Background()
	client, done := dial(ctx)
	defer done()
	orders := access.Subject{Boards: "orders/*"}
	fmt.Println(client.SaveQuota(ctx, access.Quota{Subject: orders, Limits: access.Amounts{Jobs: 1, PostingsPerSecond: 50}}))
	for _, board := range []string{"orders/eu", "orders/us"} {
		_, err := jobs.PostOne(ctx, client, jobs.Posting{Board: board, Name: "n", Kind: "k"})
		fmt.Println(board, "over the limit:", errors.Is(err, jobs.ErrLimit))
	}
	for _, quota := range value(client.Quotas(ctx, "")).Items {
		fmt.Println(quota.Subject, quota.Used.Jobs, "of", quota.Limits.Jobs)
	}
	fmt.Println(client.DeleteQuota(ctx, orders))
	// Output:
	// <nil>
	// orders/eu over the limit: false
	// orders/us over the limit: true
	// boards "orders/*" 1 of 1
	// <nil>
}

// A backup is a tar archive. Its reader must keep only a complete file: package
// raftboard/node/backup checks this.
func ExampleClient_Backup() {
	ctx := context.Background()
	client, done := dial(ctx)
	defer done()
	reader := value(client.Backup(ctx))
	defer reader.Close()
	manifest, err := backup.Read(reader, func(_ backup.Manifest, state io.Reader) error {
		_, err := io.Copy(io.Discard, state)
		return err
	})
	fmt.Println(manifest.Cluster, manifest.Generation, err)
	// Output: test 1 <nil>
}

// With a short Patience, Open soon reports that no node answers.
func ExampleOpen() {
	ctx := context.Background()
	_, err := raftboard.Open(ctx, raftboard.Options{Endpoints: []string{"127.0.0.1:1"}, Patience: 100 * time.Millisecond})
	fmt.Println(errors.Is(err, jobs.ErrUnavailable)) // the call had no effect
	// Output: true
}

// With a key file, the cluster and its backups contain no value in plain text. A client without the
// key gets values as they are stored.
func ExampleClient_PlainLimits() {
	ctx := context.Background()
	endpoint, stop := startOne()
	defer stop()
	dir := value(os.MkdirTemp("", "example"))
	defer os.RemoveAll(dir)
	keys := value(valuekeys.Add(dir+"/keys", "2026-11")) // later: valuekeys.Open
	client := value(raftboard.Open(ctx, raftboard.Options{Endpoints: []string{endpoint}, ValueKeys: keys}))
	defer client.Close()
	plain := value(raftboard.Dial(ctx, endpoint))
	defer plain.Close()
	job := value(jobs.PostOne(ctx, client, jobs.Posting{Kind: "pay", Name: "pay", Details: json.RawMessage(`"card 4711"`)}))
	fmt.Println(string(value(client.Job(ctx, job.ID)).Details))
	fmt.Println(valuekeys.KeyID(value(plain.Job(ctx, job.ID)).Details))
	// Encrypted values are longer, so the limits for plain values are lower.
	fmt.Println(client.PlainLimits(logbook.MaxLimits).Value, "of", logbook.MaxLimits.Value)
	// Output:
	// "card 4711"
	// 2026-11 true
	// 196541 of 262144
}

// A job is posted together with its book. The program chooses the id first, so a posting that is
// repeated after an error is the same job.
func ExampleClient_Post() {
	ctx := context.Background()
	client, done := dial(ctx)
	defer done()
	posting := jobs.Posting{
		ID:   jobs.NewJobID(),
		Name: "trip of Ann",
		Book: &logbook.Book{ID: logbook.NewBookID(), Name: "trip of Ann", Flows: []logbook.FlowDetail{{
			ID:      logbook.NewFlowID(),
			Name:    "travel",
			Factory: logbook.Factory{Name: "travel"},
			Store:   logbook.Values{"customer": json.RawMessage(`"Ann"`)},
		}}},
	}
	for range 2 {
		posted, err := client.Post(ctx, posting)
		if err != nil {
			log.Fatal(err) // errors.Is(err, jobs.ErrUncertain): post it again
		}
		if posted[0].Err != nil {
			log.Fatal(posted[0].Err) // this posting was refused; Err is the reason
		}
		fmt.Println(posted[0].Job.Name, posted[0].Job.State, posted[0].Existed)
	}
	book := value(client.Book(ctx, posting.Book.ID))
	fmt.Println(book.Name, len(book.Flows))
	// Output:
	// trip of Ann claimable false
	// trip of Ann claimable true
	// trip of Ann 1
}

// Boards whose names begin with "mail/" are in a separate cluster. The program reads the topology
// file, and calls the cluster of each board.
func ExampleOpenRouted() {
	ctx := context.Background()
	main, stopMain := startOne()
	defer stopMain()
	mail, stopMail := startOne()
	defer stopMail()
	dir := value(os.MkdirTemp("", "topology"))
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "topology.toml")
	must(os.WriteFile(file, fmt.Appendf(nil, `
default = "main"
[clusters.main]
servers = [%q]
[clusters.mail]
servers = [%q]
[boards]
"mail/*" = "mail"
`, main, mail), 0o600))
	clusters := value(raftboard.OpenRouted(value(topology.Open(topology.Options{File: file})), raftboard.Options{}))
	defer clusters.Close()
	posted := value(clusters.Post(ctx, jobs.Posting{Board: "mail/eu", Name: "n", Kind: "k"}, jobs.Posting{Board: "orders", Name: "n", Kind: "k"}))
	for _, one := range posted {
		must(one.Err) // each posting has its own result
	}
	client := value(clusters.For(ctx, "mail/eu"))
	fmt.Println("in the cluster of its board:", len(value(client.Jobs(ctx, jobs.Query{})).Items))
	client = value(clusters.Find(ctx, posted[1].Job.ID)) // a job's id does not tell its cluster
	fmt.Println("found:", value(client.Job(ctx, posted[1].Job.ID)).Board)
	// Output:
	// in the cluster of its board: 1
	// found: orders
}

// Wait returns when the job is finished.
func ExampleClient_Wait() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, done := dial(ctx)
	defer done()
	job := value(jobs.PostOne(ctx, client, jobs.Posting{Name: "paint", Kind: "paint"}))
	var person sync.WaitGroup
	person.Go(func() { must(client.Cancel(ctx, jobs.JobCommand{Job: job.ID, By: "ann"})) })
	finished, err := client.Wait(ctx, job.ID)
	person.Wait()
	fmt.Println(finished.State, finished.Outcome, err)
	// Output: completed cancelled <nil>
}

// WaitStep returns when a step has ended. It can be called before the flow starts. Step returns at once.
func ExampleClient_WaitStep() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, done := dial(ctx)
	defer done()
	book := logbook.Book{ID: logbook.NewBookID(), Name: "trip", Flows: []logbook.FlowDetail{{ID: logbook.NewFlowID(), Name: "trip", Factory: logbook.Factory{Name: "trip"}}}}
	job := value(jobs.PostOne(ctx, client, jobs.Posting{Name: "trip", Book: &book}))
	before := value(client.Step(ctx, job.ID, "fly"))
	fmt.Println("ended:", before.Settled())
	var conductor sync.WaitGroup
	conductor.Go(func() { // a conductor of package conductor does this
		session := value(client.OpenSession(ctx, jobs.Opening{ID: jobs.NewSessionID(), Name: "c"}))
		claimed := value(client.Claim(ctx, session.ID, job.ID, jobs.NewNonce()))
		flight := logbook.Attempt{Action: logbook.ActionExecute, Number: 1, StartedAt: time.Now(), EndedAt: time.Now(), Result: []byte(`"LH1"`)}
		fly := logbook.AtomChange{Name: "fly", Kind: logbook.KindTask, State: logbook.AtomSuccess, Attempts: []logbook.Attempt{flight}}
		_ = value(client.Update(ctx, logbook.Update{Flow: job.Flow, Token: claimed.Job.Token, Sequence: 1, State: logbook.FlowRunning, Atoms: []logbook.AtomChange{fly}}))
	})
	step := value(client.WaitStep(ctx, job.ID, "fly"))
	conductor.Wait()
	result, _ := step.Atom.Result()
	fmt.Println(step.Outcome, string(result))
	// Output:
	// ended: false
	// success "LH1"
}

// Checkpoints reads what a running step has recorded for its next attempt.
func ExampleClient_Checkpoints() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, done := dial(ctx)
	defer done()
	book := logbook.Book{ID: logbook.NewBookID(), Name: "import", Flows: []logbook.FlowDetail{{ID: logbook.NewFlowID(), Name: "import", Factory: logbook.Factory{Name: "import"}}}}
	job := value(jobs.PostOne(ctx, client, jobs.Posting{Name: "import", Book: &book}))
	session := value(client.OpenSession(ctx, jobs.Opening{ID: jobs.NewSessionID(), Name: "c"}))
	claimed := value(client.Claim(ctx, session.ID, job.ID, jobs.NewNonce()))
	// A conductor of package conductor makes these changes for flow.Call.Checkpoint.
	begun := logbook.AtomChange{Name: "rows", Kind: logbook.KindTask, State: logbook.AtomRunning, Attempts: []logbook.Attempt{{Action: logbook.ActionExecute, Number: 1, StartedAt: time.Now()}}}
	recorded := logbook.AtomChange{Name: "rows", Checkpoints: []logbook.Checkpoint{{Name: "row", Value: []byte(`2000`), At: time.Now()}}}
	_ = value(client.Update(ctx, logbook.Update{Flow: job.Flow, Token: claimed.Job.Token, Sequence: 1, State: logbook.FlowRunning, Atoms: []logbook.AtomChange{begun, recorded}}))
	fmt.Println(string(value(client.Checkpoints(ctx, job.Flow, "rows"))["row"]))
	// Output: 2000
}

// Transfer reserves a job for the conductors of a name. Unreserve ends the reservation.
func ExampleClient_Transfer() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, done := dial(ctx)
	defer done()
	session := value(client.OpenSession(ctx, jobs.Opening{ID: jobs.NewSessionID(), Name: "worker-2"}))
	must(client.Register(ctx, session.ID, jobs.Entity{Kind: jobs.EntityConductor, Name: "worker-2"}))
	job := value(jobs.PostOne(ctx, client, jobs.Posting{Name: "paint", Kind: "paint"}))
	must(client.Transfer(ctx, jobs.JobCommand{Job: job.ID, To: "worker-2", Within: time.Minute, By: "ann"}))
	fmt.Println(value(client.Job(ctx, job.ID)).Reserved.Conductor)
	must(client.Unreserve(ctx, jobs.JobCommand{Job: job.ID, By: "ann"}))
	fmt.Println(value(client.Job(ctx, job.ID)).Reserved == nil)
	// Output:
	// worker-2
	// true
}

// RetryNow ends the wait of a job for its next attempt, when its cause is mended.
func ExampleClient_RetryNow() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, done := dial(ctx)
	defer done()
	session := value(client.OpenSession(ctx, jobs.Opening{ID: jobs.NewSessionID(), Name: "worker-1"}))
	job := value(jobs.PostOne(ctx, client, jobs.Posting{Name: "paint", Kind: "paint"}))
	claimed := value(client.Claim(ctx, session.ID, job.ID, jobs.NewNonce()))
	must(client.Abandon(ctx, jobs.Ending{Job: job.ID, Token: claimed.Job.Token, Delay: time.Hour, Reason: "the paint is wet"}))
	fmt.Println(value(client.Job(ctx, job.ID)).State)
	must(client.RetryNow(ctx, jobs.JobCommand{Job: job.ID, By: "ann", Reason: "it is dry"}))
	fmt.Println(value(client.Job(ctx, job.ID)).State)
	// Output:
	// cooling
	// claimable
}

// Publish reaches the steps that wait for a topic and a key. Without such a step, the board can keep the publication.
func ExampleClient_Publish() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, done := dial(ctx)
	defer done()
	paid := jobs.Publication{Topic: "payments", Key: "order-7", Signal: logbook.Signal{ID: "evt_17"}}
	_, err := client.Publish(ctx, paid)
	fmt.Println(errors.Is(err, jobs.ErrNobodyWaits))
	paid.Keep = 24 * time.Hour
	fmt.Println(value(client.Publish(ctx, paid)).Answer)
	repeat := value(client.Publish(ctx, paid))
	fmt.Println(repeat.Answer, repeat.First)
	// Output:
	// true
	// kept
	// repeated kept
}

// SignalKey tells the job of an order that something has happened outside, without its id. A posting with a signal does
// the same, and posts the job if it does not exist.
func ExampleClient_SignalKey() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, done := dial(ctx)
	defer done()
	paid := &logbook.Signal{Name: "paid", ID: "evt_17"}
	posted := value(client.Post(ctx, jobs.Posting{Name: "order", Kind: "order", Key: "order-7", Signal: paid}))
	fmt.Println(posted[0].Existed, posted[0].Signal.Answer)
	receipt := value(client.SignalKey(ctx, jobs.DefaultBoard, "order-7", logbook.Signal{Name: "sent"}))
	fmt.Println(receipt.Answer, receipt.Job == posted[0].Job.ID)
	// Output:
	// false kept
	// kept true
}

// Signal tells a job that something has happened outside. The answer comes after the commit.
func ExampleClient_Signal() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, done := dial(ctx)
	defer done()
	job := value(jobs.PostOne(ctx, client, jobs.Posting{Name: "order", Kind: "order"}))
	paid := logbook.Signal{Name: "paid", ID: "evt_17", Data: json.RawMessage(`{"amount": 100}`)}
	fmt.Println(value(client.Signal(ctx, job.ID, paid)).Answer)
	fmt.Println(value(client.Signal(ctx, job.ID, paid)).Answer)
	fmt.Println(value(client.Job(ctx, job.ID)).UnreadSignals)
	// Output:
	// kept
	// repeated
	// 1
}

// A step waits for the approval of two people. Decide records what each says, and Approvals lists the open approvals.
func ExampleClient_Decide() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, done := dial(ctx)
	defer done()
	job := asks(ctx, client, "approvals", logbook.Need{Role: "dba", Count: 2})
	for _, approval := range value(client.Approvals(ctx, jobs.ApprovalQuery{Board: "approvals"})).Items {
		fmt.Println(approval.Step, "asks:", approval.Wait.Approval.Text)
	}
	for _, person := range []string{"ann", "bob"} {
		receipt := value(client.Decide(ctx, jobs.DecisionCommand{Job: job, Step: "ask", Decision: logbook.Decision{Kind: logbook.Approve, By: person}}))
		fmt.Printf("%s: %q, missing %q\n", person, receipt.Outcome, logbook.NeedText(receipt.Missing))
	}
	fmt.Println(value(client.Approval(ctx, job, "ask")).Outcome)
	// Output:
	// ask asks: Delete the disk?
	// ann: "", missing "1 of dba"
	// bob: "approved", missing ""
	// approved
}

// Override decides an approval alone.
func ExampleClient_Override() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, done := dial(ctx)
	defer done()
	job := asks(ctx, client, "overrides", logbook.Need{Role: "dba", Count: 2})
	override := logbook.Decision{Kind: logbook.Reject, By: "ann", Reason: "the disk is in use"}
	fmt.Println(value(client.Override(ctx, jobs.DecisionCommand{Job: job, Step: "ask", Decision: override})).Outcome)
	// Output:
	// rejected
}

// asks posts a job whose flow waits for an approval, as a conductor records it.
func asks(ctx context.Context, client *raftboard.Client, board string, needs ...logbook.Need) jobs.JobID {
	flow := logbook.FlowDetail{ID: logbook.NewFlowID(), Name: "delete", Factory: logbook.Factory{Name: "document"}}
	book := &logbook.Book{ID: logbook.NewBookID(), Name: "delete", Flows: []logbook.FlowDetail{flow}}
	job := value(jobs.PostOne(ctx, client, jobs.Posting{Board: board, Name: "delete", Book: book}))
	session := value(client.OpenSession(ctx, jobs.Opening{ID: jobs.NewSessionID(), Name: "worker-1"}))
	claimed := value(client.Claim(ctx, session.ID, job.ID, jobs.NewNonce()))
	now := time.Now()
	wait := &logbook.Wait{Since: now, Until: now.Add(time.Hour), Approval: &logbook.Approval{Text: "Delete the disk?", Need: needs}}
	must(errors.Join(value(client.Update(ctx, logbook.Update{Flow: claimed.Job.Flow, Token: claimed.Job.Token, Sequence: 1, State: logbook.FlowRunning, Atoms: []logbook.AtomChange{
		{Name: "ask", Kind: logbook.KindTask, State: logbook.AtomPending, RetryAt: wait.Until, Attempts: []logbook.Attempt{
			{Action: logbook.ActionExecute, Number: 1, Token: claimed.Job.Token, StartedAt: now, Asked: 1, Wait: wait},
		}},
	}}))...))
	return job.ID
}

// Watch yields what happens on the boards, also over the fall of a node.
func ExampleClient_Watch() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, done := dial(ctx)
	defer done()
	job := value(jobs.PostOne(ctx, client, jobs.Posting{Name: "paint", Kind: "paint", Hold: true}))
	must(client.Change(ctx, jobs.Change{Job: job.ID, Release: true}))
	must(client.Suspend(ctx, jobs.JobCommand{Job: job.ID, By: "ann"}))
	must(client.Resume(ctx, jobs.JobCommand{Job: job.ID, By: "ann"}))
	for event, err := range client.Watch(ctx, jobs.Watch{After: &jobs.Position{}, Job: job.ID}) {
		if err != nil {
			log.Fatal(err) // a *jobs.CompactedError: list the jobs, and watch after its Since
		}
		fmt.Println(event.Kind, event.State)
		if event.Kind == jobs.EventResumed {
			break
		}
	}
	// Output:
	// posted held
	// changed claimable
	// suspended suspended
	// resumed claimable
}

// A session holds claims; each write under a claim shows its token.
func ExampleClient_ClaimNext() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, done := dial(ctx)
	defer done()
	session := value(client.OpenSession(ctx, jobs.Opening{ID: jobs.NewSessionID(), Name: "painter"}))
	must(client.Register(ctx, session.ID, jobs.Entity{Kind: "painter", Name: "p1"}))
	for _, name := range []string{"shed", "fence", "gate"} {
		value(jobs.PostOne(ctx, client, jobs.Posting{Name: name, Kind: "paint"}))
	}
	must(client.KeepAlive(ctx, session.ID)) // a real program sends one every fifth of the TTL
	claimed := value(client.ClaimNext(ctx, jobs.ClaimRequest{
		Session: session.ID, Nonce: jobs.NewNonce(), Kinds: []string{"paint"}, Max: 2, Wait: 10 * time.Second,
	}))
	third := value(client.Jobs(ctx, jobs.Query{States: []jobs.State{jobs.StateClaimable}})).Items[0]
	claimed = append(claimed, value(client.Claim(ctx, session.ID, third.ID, jobs.NewNonce())))
	must(client.Extend(ctx, third.ID, claimed[2].Job.Token, time.Hour))
	for held, err := range jobs.AllClaims(ctx, client, jobs.ClaimQuery{Owner: "painter"}) {
		fmt.Println(held.Name, held.Claim.Expiry, err)
	}
	under := func(i int) jobs.Ending {
		return jobs.Ending{Job: claimed[i].Job.ID, Token: claimed[i].Job.Token, Reason: "no paint"}
	}
	consumed := under(0)
	consumed.Outcome = jobs.OutcomeSuccess
	must(client.Consume(ctx, consumed))
	must(client.Abandon(ctx, under(1)))
	must(client.Trash(ctx, under(2)))
	err := client.Abandon(ctx, under(0))
	fmt.Println(errors.Is(err, jobs.ErrFenced))
	fmt.Println(len(value(client.Sessions(ctx))), len(value(client.Entities(ctx, "painter"))), len(value(client.Claims(ctx, jobs.ClaimQuery{})).Items))
	must(client.CloseSession(ctx, session.ID))
	// Output:
	// shed 0s <nil>
	// fence 0s <nil>
	// gate 1h0m0s <nil>
	// true
	// 1 1 0
}

// Find finished jobs, restore one, change many at once, and remove them.
func ExampleClient_Bulk() {
	ctx := context.Background()
	client, done := dial(ctx)
	defer done()
	var last jobs.Job
	for _, name := range []string{"a", "b", "c"} {
		last = value(jobs.PostOne(ctx, client, jobs.Posting{Name: name, Kind: "mail", Tags: []string{"eu"}}))
	}
	session := value(client.OpenSession(ctx, jobs.Opening{ID: jobs.NewSessionID(), Name: "clerk"}))
	claimed := value(client.Claim(ctx, session.ID, last.ID, jobs.NewNonce()))
	must(client.Trash(ctx, jobs.Ending{Job: last.ID, Token: claimed.Job.Token, Reason: "no stamp"}))
	for _, e := range value(client.Errors(ctx, jobs.ErrorQuery{Job: last.ID})).Items {
		fmt.Println(e.How, e.Owner)
	}
	must(client.Retry(ctx, jobs.JobCommand{Job: last.ID, By: "ann"}))
	report := value(client.Bulk(ctx, jobs.Bulk{Action: jobs.ActionCancel, Query: jobs.Query{Tags: []string{"eu"}}, By: "ann"}))
	fmt.Println(report.Done)
	must(client.Purge(ctx, jobs.JobCommand{Job: last.ID, By: "ann"}))
	_, err := client.Job(ctx, last.ID)
	fmt.Println(errors.Is(err, jobs.ErrNotFound))
	for job, err := range jobs.All(ctx, client, jobs.Query{Outcomes: []jobs.Outcome{jobs.OutcomeCancelled}}) {
		fmt.Println(job.Name, err)
	}
	// Output:
	// trashed clerk
	// 3
	// true
	// a <nil>
	// b <nil>
}

// A drained conductor gets no more jobs, and hands over its jobs.
func ExampleClient_DrainConductor() {
	ctx := context.Background()
	client, done := dial(ctx)
	defer done()
	order := jobs.DrainCommand{Conductor: "node7", Absent: true, By: "ann", Reason: "a new disk"}
	must(client.DrainConductor(ctx, order))
	for _, drain := range value(client.Drains(ctx)) {
		fmt.Println(drain.Conductor, drain.Reason)
	}
	must(client.UndrainConductor(ctx, jobs.DrainCommand{Conductor: "node7", By: "ann"}))
	fmt.Println(len(value(client.Drains(ctx))))
	// Output:
	// node7 a new disk
	// 0
}

// A board is created by its first job, or explicitly.
func ExampleClient_CreateBoard() {
	ctx := context.Background()
	client, done := dial(ctx)
	defer done()
	must(client.CreateBoard(ctx, "night"))
	must(client.LimitBoard(ctx, "night", jobs.BoardLimits{Jobs: 1}))
	job := value(jobs.PostOne(ctx, client, jobs.Posting{Name: "a", Kind: "k", Board: "night"}))
	_, err := jobs.PostOne(ctx, client, jobs.Posting{Name: "b", Kind: "k", Board: "night"})
	var limit *logbook.LimitError
	fmt.Println(errors.As(err, &limit), errors.Is(err, jobs.ErrLimit))
	must(client.PauseBoard(ctx, jobs.BoardCommand{Board: "night", By: "ann", Reason: "stocktaking"}))
	fmt.Println(value(client.Explain(ctx, job.ID)).Cause)
	must(client.ResumeBoard(ctx, jobs.BoardCommand{Board: "night", By: "ann"}))
	status := value(client.BoardStatus(ctx, "night"))
	fmt.Println(status.Unfinished(), len(value(client.BoardList(ctx, "", 0)).Items))
	fmt.Println(errors.Is(client.DeleteBoard(ctx, "night"), jobs.ErrConflict)) // it has a job
	// Output:
	// true true
	// board_paused
	// 1 2
	// true
}

// The output of steps can be read while they run, if the conductor of a node runs them.
func ExampleClient_ReadLogs() {
	ctx := context.Background()
	client, done := dial(ctx)
	defer done()
	job := value(jobs.PostOne(ctx, client, jobs.Posting{Name: "a", Kind: "k"}))
	page := value(client.ReadLogs(ctx, steplog.Query{Job: job.ID, Wait: time.Second}))
	for _, line := range page.Lines {
		fmt.Println(line.Step, line.Text)
	}
	fmt.Println(page.Running, client.EncryptText("kept as it is without keys"))
	// Output: false kept as it is without keys
}

// RunWorker in package conductor is a complete step worker in Go. This example makes its calls one
// by one.
func ExampleClient_PullSteps() {
	ctx := context.Background()
	client, done := dial(ctx)
	defer done()
	session := value(client.OpenSession(ctx, jobs.Opening{ID: jobs.NewSessionID(), Name: "w", TTL: jobs.MaxTTL}))
	must(client.Register(ctx, session.ID, jobs.Entity{Kind: jobs.EntityWorker, Name: "w", JobKinds: []string{"resize"}}))
	pulled := value(client.PullSteps(ctx, steps.Pull{Session: session.ID, Slots: 1}))
	id := steps.ID{Flow: logbook.NewFlowID(), Step: "a", Action: logbook.ActionExecute, Attempt: 1}
	_, reported := client.ReportStep(ctx, session.ID, steps.Outcome{ID: id, Done: true, Result: []byte("1")}, 0)
	_, offered := client.OfferStep(ctx, steps.Offer{Session: session.ID, Work: steps.Work{ID: id, Type: "resize", Job: jobs.NewJobID()}})
	fmt.Println(len(pulled.Work), errors.Is(reported, jobs.ErrFenced), errors.Is(offered, jobs.ErrNotFound))
	fmt.Println(value(client.Workers(ctx, jobs.DefaultBoard))[0].Name)
	// Output: 0 true true
	// w
}

// On a board with ageing, no job waits forever: here one hour counts as much as one step of
// priority.
func ExampleClient_AgeBoard() {
	ctx := context.Background()
	client, done := dial(ctx)
	defer done()
	must(client.AgeBoard(ctx, jobs.DefaultBoard, time.Hour))
	fmt.Println(value(client.BoardStatus(ctx, jobs.DefaultBoard)).Ageing.Step)
	must(client.AgeBoard(ctx, jobs.DefaultBoard, 0)) // turns ageing off
	// Output: 1h0m0s
}

// A schedule posts jobs at given times.
func ExampleClient_SaveSchedule() {
	ctx := context.Background()
	client, done := dial(ctx)
	defer done()
	name := schedules.Ref{Board: "default", Name: "report"}
	saved := value(client.SaveSchedule(ctx, schedules.Schedule{
		Board: name.Board, Name: name.Name, Rule: "0 6 * * *", Posting: jobs.Posting{Name: "report", Kind: "report"},
	}))
	order := schedules.Command{Ref: name, By: "ann"}
	must(client.PauseSchedule(ctx, order))
	must(client.ResumeSchedule(ctx, order))
	fmt.Println(saved.Name, value(client.RunSchedule(ctx, order)).State)
	day := time.Date(2020, 1, 2, 0, 0, 0, 0, time.UTC)
	for _, slot := range value(client.BackfillSchedule(ctx, schedules.Backfill{Ref: name, From: day, To: day.Add(48 * time.Hour), By: "ann"})) {
		fmt.Println(slot.Slot.Format(time.DateTime), slot.State)
	}
	fmt.Println(len(value(client.Schedule(ctx, name, schedules.Look{Upcoming: 5})).Upcoming), len(value(client.Schedules(ctx, schedules.Query{})).Items))
	must(client.DeleteSchedule(ctx, name))
	// Output:
	// report posted
	// 2020-01-02 06:00:00 waiting
	// 2020-01-03 06:00:00 waiting
	// 5 1
}

// A logbook can be kept without jobs.
func ExampleClient_SaveBook() {
	ctx := context.Background()
	client, done := dial(ctx)
	defer done()
	book := logbook.Book{ID: logbook.NewBookID(), Name: "b", Flows: []logbook.FlowDetail{{
		ID: logbook.NewFlowID(), Name: "f", Factory: logbook.Factory{Name: "mine"},
	}}}
	must(client.SaveBook(ctx, book))
	verdicts := value(client.Update(ctx, logbook.Update{Flow: book.Flows[0].ID, Sequence: 1, State: logbook.FlowRunning}))
	fmt.Println(verdicts, value(client.FlowDetail(ctx, book.Flows[0].ID)).State)
	_, err := client.Intervene(ctx, logbook.Intervention{ID: uuid.New(), Flow: book.Flows[0].ID, Kind: logbook.InterveneRerun, By: "ann"})
	fmt.Println(errors.Is(err, jobs.ErrConflict)) // it has not failed
	for book, err := range logbook.AllBooks(ctx, client) {
		fmt.Println(book.Name, err)
	}
	fmt.Println(len(value(client.Books(ctx, "", 10)).Items))
	unknown := value(jobs.ParseJobID("01890000-0000-7000-8000-000000000001"))
	fmt.Println(client.Cancel(ctx, jobs.JobCommand{Job: unknown, By: "ann"}))
	prefix := value(jobs.ParseIDPrefix(jobs.IDOfBook, book.ID.String()[:20]))
	fmt.Println(value(client.FindIDs(ctx, prefix)).IDs[0] == book.ID.UUID)
	stale, err := client.Stale().Book(ctx, book.ID) // the answering node's state, of any age
	fmt.Println(stale.Name, err)
	_, known := client.StaleAge() // how long that node has not heard from the leader
	fmt.Println(known)
	must(client.DestroyBook(ctx, book.ID))
	// Output:
	// [<nil>] running
	// true
	// b <nil>
	// 1
	// cannot cancel job 01890000-0000-7000-8000-000000000001: not found
	// true
	// b <nil>
	// true
}
