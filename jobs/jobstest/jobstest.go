// Package jobstest checks that a board keeps the promises of jobs.Board, and of
// schedules.Scheduler. Every implementation runs Exercise and ExerciseScheduler: the state machine
// alone, one node, and clusters through the client.
//
// Every row has its own boards, kinds and sessions, so runs can share a cluster. Nothing depends on
// the speed of a board. A row waits minutes for an event that must happen. To check that an event
// does not happen, it waits for the event that happens instead. Only sessions that expire in a row
// are short.
//
// The suite requires the limits logbook.MaxLimits, a cool-down above zero, and a board that keeps
// all events from the first one on.
package jobstest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/schedules"
	"github.com/conductord/conductord/logbook"
)

// Harness is a board under test.
type Harness struct {
	Board   jobs.Board
	Logbook logbook.Connection // of the same cluster
	// Lapse makes the session expire as if its client had died, and waits
	// until it has. The suite has stopped its keep-alives before.
	Lapse func(jobs.SessionID)
	// LapseClaim ends a claim as if its own TTL were over. Nil: the suite waits until the TTL has
	// passed.
	LapseClaim func(jobs.JobID, jobs.Token)
	// TTL is the TTL of the sessions that the suite lets expire; zero means jobs.DefaultTTL. A
	// machine may pause for this time before a row loses one of these sessions too early.
	TTL time.Duration
	// Encrypted: the client encrypts values, so the board cannot read the definitions of flows.
	Encrypted bool

	// Scheduler is the scheduler of the same cluster. Dormant saves a schedule as if at a past
	// time, and as if no node had led since then. ExerciseScheduler needs both, Exercise
	// neither.
	Scheduler schedules.Scheduler
	Dormant   func(schedule schedules.Schedule, since time.Time) (schedules.Schedule, error)
}

// patience limits one row. It is far longer than any row needs, so only a hanging board exceeds it.
const patience = 3 * time.Minute

// parked is the wait of calls that a row wakes: far longer than the wake-up takes.
const parked = 2 * time.Minute

// promptly limits the time until a waiting call is answered, once there is a reason for the answer.
// It is long enough for a loaded machine, and shorter than the call's own wait.
const promptly = 30 * time.Second

// lasting is the TTL of sessions that must not expire: even on a busy machine, their claims
// exist until the row ends them.
const lasting = 2 * time.Minute

type row struct {
	name string
	run  func(k *kit)
}

// Exercise runs the suite. Open is called once for each row, from parallel subtests. It can return
// the same board for all of them.
func Exercise(t *testing.T, open func(t *testing.T) Harness) {
	t.Helper()
	exercise(t, open, []group{
		{"posting", postingRows},
		{"reading", readingRows},
		{"claiming", claimingRows},
		{"waking", wakingRows},
		{"expiries", expiryRows},
		{"endings", endingRows},
		{"flows", flowRows},
		{"beginnings", beginRows},
		{"stop requests", stopRows},
		{"changes", changeRows},
		{"signals", signalRows},
		{"approvals", approvalRows},
		{"labels", labelRows},
		{"interventions", interventionRows},
		{"renames", renameRows},
		{"retries", retryRows},
		{"history", historyRows},
		{"boards", boardRows},
		{"quotas", quotaRows},
		{"sessions", sessionRows},
		{"conductors", conductorRows},
		{"watching", watchRows},
		{"awaiting", awaitRows},
		{"steps", stepRows},
		{"limits", limitRows},
	})
}

// group is a group of rows about one subject.
type group struct {
	name string
	rows []row
}

func exercise(t *testing.T, open func(t *testing.T) Harness, groups []group) {
	t.Helper()
	for _, group := range groups {
		t.Run(group.name, func(t *testing.T) {
			t.Parallel()
			for _, r := range group.rows {
				t.Run(r.name, func(t *testing.T) {
					t.Parallel()
					r.run(newKit(t, open(t)))
				})
			}
		})
	}
}

// kit has the helpers of a row, with a board and a kind that no other row uses.
type kit struct {
	*testing.T
	Harness
	ctx   context.Context
	board string
	kind  string

	mu      sync.Mutex
	keepers map[jobs.SessionID]*keeper // guarded by mu
}

func newKit(t *testing.T, harness Harness) *kit {
	if harness.TTL == 0 {
		harness.TTL = jobs.DefaultTTL
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	own := uuid.NewString()
	k := &kit{
		T: t, Harness: harness, ctx: ctx,
		board: "board " + own, kind: "kind " + own,
		keepers: make(map[jobs.SessionID]*keeper),
	}
	t.Cleanup(func() {
		k.closeAll()
		cancel()
	})
	return k
}

// keeper keeps one session alive until it is stopped.
type keeper struct {
	stop context.CancelFunc
	done chan struct{}
}

// keep starts a goroutine that sends four keep-alives in each TTL. It ends with
// halt, at the latest with the row, or when the session is over.
func (k *kit) keep(id jobs.SessionID, ttl time.Duration) {
	ctx, stop := context.WithCancel(context.WithoutCancel(k.ctx))
	made := &keeper{stop: stop, done: make(chan struct{})}
	k.mu.Lock()
	k.keepers[id] = made
	k.mu.Unlock()
	go func() {
		defer close(made.done)
		ticker := time.NewTicker(ttl / 4)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			if err := k.Board.KeepAlive(ctx, id); errors.Is(err, jobs.ErrSessionExpired) {
				return
			}
		}
	}()
}

// halt stops the keep-alives of a session, and returns when the last one is complete.
func (k *kit) halt(id jobs.SessionID) {
	k.mu.Lock()
	found := k.keepers[id]
	delete(k.keepers, id)
	k.mu.Unlock()
	if found != nil {
		found.stop()
		<-found.done
	}
}

// closeAll closes the remaining sessions of a row, so that they do not accumulate in a shared
// cluster.
func (k *kit) closeAll() {
	k.mu.Lock()
	var open []jobs.SessionID
	for id := range k.keepers {
		open = append(open, id)
	}
	k.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), promptly)
	defer cancel()
	for _, id := range open {
		k.halt(id)
		if err := k.Board.CloseSession(ctx, id); err != nil && !errors.Is(err, jobs.ErrSessionExpired) {
			k.Logf("cannot close session %s: %v", id, err)
		}
	}
}

// session opens a session and keeps it alive.
func (k *kit) session(name string) jobs.SessionID {
	k.Helper()
	return k.opened(name, lasting)
}

// mortal opens a session that will expire, and keeps it alive until then.
func (k *kit) mortal(name string) jobs.SessionID {
	k.Helper()
	return k.opened(name, k.TTL)
}

// doomed opens a session that will end in one of the possible ways.
func (k *kit) doomed(how, name string) jobs.SessionID {
	k.Helper()
	if how == "lapsed" {
		return k.mortal(name)
	}
	return k.session(name)
}

func (k *kit) opened(name string, ttl time.Duration) jobs.SessionID {
	k.Helper()
	id := jobs.NewSessionID()
	if _, err := k.Board.OpenSession(k.ctx, jobs.Opening{ID: id, Name: name, TTL: ttl}); err != nil {
		k.Fatalf("OpenSession: %v", err)
	}
	k.keep(id, ttl)
	return id
}

// close ends a session like its owner.
func (k *kit) close(id jobs.SessionID) {
	k.Helper()
	k.halt(id)
	if err := k.Board.CloseSession(k.ctx, id); err != nil {
		k.Fatalf("CloseSession: %v", err)
	}
}

// lapse ends a session like the death of its owner.
func (k *kit) lapse(id jobs.SessionID) {
	k.Helper()
	k.halt(id)
	k.Lapse(id)
}

// posting makes a posting of a job without a flow.
func (k *kit) posting(name string) jobs.Posting {
	return jobs.Posting{ID: jobs.NewJobID(), Board: k.board, Name: name, Kind: k.kind}
}

// withFlow makes a posting of a job with a book of one flow.
func (k *kit) withFlow(name string) jobs.Posting {
	book := journey("out")
	return jobs.Posting{ID: jobs.NewJobID(), Board: k.board, Name: name, Book: &book}
}

// journey makes a book of flows with the given names.
func journey(flows ...string) logbook.Book {
	book := logbook.Book{ID: logbook.NewBookID(), Name: "a journey", Meta: logbook.Values{"customer": json.RawMessage(`"Ann"`)}}
	for _, name := range flows {
		book.Flows = append(book.Flows, logbook.FlowDetail{
			ID: logbook.NewFlowID(), Name: name,
			Factory: logbook.Factory{Name: "test", Args: json.RawMessage(`{"rooms": 2}`)},
			Store:   logbook.Values{"city": json.RawMessage(`"Oslo"`)},
		})
	}
	return book
}

// post posts jobs, which must be accepted.
func (k *kit) post(postings ...jobs.Posting) []jobs.Job {
	k.Helper()
	answers, err := k.Board.Post(k.ctx, postings...)
	if err != nil || len(answers) != len(postings) {
		k.Fatalf("Post of %d: %d answers, %v", len(postings), len(answers), err)
	}
	posted := make([]jobs.Job, len(answers))
	for i := range answers {
		if answers[i].Err != nil {
			k.Fatalf("Post of %q: %v", postings[i].Name, answers[i].Err)
		}
		posted[i] = answers[i].Job
	}
	return posted
}

// posted posts one plain job.
func (k *kit) posted(name string) jobs.Job {
	k.Helper()
	return k.post(k.posting(name))[0]
}

// verdict posts one posting and returns its verdict.
func (k *kit) verdict(posting jobs.Posting) error {
	k.Helper()
	answers, err := k.Board.Post(k.ctx, posting)
	if err != nil {
		return err
	}
	if len(answers) != 1 {
		k.Fatalf("Post of 1: %d answers", len(answers))
	}
	return answers[0].Err
}

func (k *kit) job(id jobs.JobID) jobs.Job {
	k.Helper()
	job, err := k.Board.Job(k.ctx, id)
	if err != nil {
		k.Fatalf("Job: %v", err)
	}
	return job
}

func (k *kit) claim(session jobs.SessionID, job jobs.JobID) jobs.Claimed {
	k.Helper()
	claimed, err := k.Board.Claim(k.ctx, session, job, jobs.NewNonce())
	if err != nil {
		k.Fatalf("Claim: %v", err)
	}
	return claimed
}

// request requests one job of the row's board, of any kind.
func (k *kit) request(session jobs.SessionID) jobs.ClaimRequest {
	return jobs.ClaimRequest{Session: session, Nonce: jobs.NewNonce(), Boards: []string{k.board}}
}

func (k *kit) next(request jobs.ClaimRequest) []jobs.Claimed {
	k.Helper()
	claimed, err := k.Board.ClaimNext(k.ctx, request)
	if err != nil {
		k.Fatalf("ClaimNext: %v", err)
	}
	return claimed
}

// soon claims one job of the row's board, and waits until there is one.
func (k *kit) soon(session jobs.SessionID) jobs.Claimed {
	k.Helper()
	request := k.request(session)
	request.Wait = parked
	claimed := k.next(request)
	if len(claimed) != 1 {
		k.Fatalf("ClaimNext: got %d jobs, want 1", len(claimed))
	}
	return claimed[0]
}

// owned posts a plain job and claims it for a session.
func (k *kit) owned(session jobs.SessionID, name string) jobs.Claimed {
	k.Helper()
	return k.claim(session, k.posted(name).ID)
}

// success consumes a job that has no flow.
func success(claimed jobs.Claimed) jobs.Ending {
	return jobs.Ending{Job: claimed.Job.ID, Token: claimed.Job.Token, Outcome: jobs.OutcomeSuccess}
}

// release is a plain ending without an outcome.
func release(claimed jobs.Claimed) jobs.Ending {
	return jobs.Ending{Job: claimed.Job.ID, Token: claimed.Job.Token}
}

// wants checks the kind of an error; nil: no error.
func (k *kit) wants(what string, err, want error) {
	k.Helper()
	if !errors.Is(err, want) {
		k.Errorf("%s: got error %v, want %v", what, err, want)
	}
}

// wantsGone checks that the removal of an absent object fails. If an answer was lost, a client
// interprets "not found" as the success of its own earlier attempt. So wantsGone repeats a call
// that reports success.
func (k *kit) wantsGone(what string, remove func() error) {
	k.Helper()
	err := remove()
	for range 2 {
		if err == nil {
			err = remove()
		}
	}
	k.wants(what, err, jobs.ErrNotFound)
}

// same compares two values by their JSON forms.
func (k *kit) same(what string, got, want any) {
	k.Helper()
	if g, w := render(got), render(want); g != w {
		k.Errorf("%s:\n got %s\nwant %s", what, g, w)
	}
}

func render(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprintf("(%v) %+v", err, value)
	}
	return string(text)
}

// names lists the names of claimed jobs.
func names(claimed []jobs.Claimed) []string {
	list := []string{}
	for i := range claimed {
		list = append(list, claimed[i].Job.Name)
	}
	return list
}

// answer waits for the value that a goroutine sends.
func answer[T any](k *kit, what string, from <-chan T) T {
	k.Helper()
	timer := time.NewTimer(promptly)
	defer timer.Stop()
	select {
	case got := <-from:
		return got
	case <-timer.C:
		k.Fatalf("%s: no answer within %s", what, promptly)
		panic("unreachable")
	}
}
