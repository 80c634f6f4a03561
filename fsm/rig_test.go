package fsm_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/durationpb"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// start is the start of every test's clock.
var start = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// rig is a machine with its own log and a clock that tests move.
type rig struct {
	testing.TB
	*fsm.Machine
	index   uint64
	now     time.Time
	changes []fsm.Changes
	path    string // path of the database
}

func newRig(t testing.TB) *rig { return newRigWith(t, fsm.Options{Generation: 1}) }

func newRigWith(t testing.TB, options fsm.Options) *rig {
	t.Helper()
	r := &rig{TB: t, now: start}
	options.Path = filepath.Join(t.TempDir(), "state.db")
	options.MmapSize = 1 << 20
	if _, measures := t.(*testing.B); !measures && options.MemoryRows == 0 {
		options.MemoryRows = 30 // so that a test's rows are in memory and in the file
	}
	r.path = options.Path
	options.Changed = func(c fsm.Changes) { r.changes = append(r.changes, c) }
	m, err := fsm.Open(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	r.Machine = m
	return r
}

// entry encodes commands as the next entry of the log.
func (r *rig) entry(commands ...*v1.Command) fsm.Entry {
	r.Helper()
	r.index++
	return encodeEntry(r, r.index, r.now, commands...)
}

func encodeEntry(t interface {
	Helper()
	Fatal(...any)
}, index uint64, now time.Time, commands ...*v1.Command) fsm.Entry {
	t.Helper()
	data, err := command.EncodeEntry(&v1.Entry{TimeUnixNano: now.UnixNano(), Commands: commands})
	if err != nil {
		t.Fatal(err)
	}
	return fsm.Entry{Index: index, Term: 1, Data: data}
}

// do applies commands in one entry.
func (r *rig) do(commands ...*v1.Command) []*v1.Result {
	r.Helper()
	results, err := r.Apply([]fsm.Entry{r.entry(commands...)})
	if err != nil {
		r.Fatal(err)
	}
	return results[0]
}

// ok applies one command that must not be refused.
func (r *rig) ok(c *v1.Command) *v1.Result {
	r.Helper()
	result := r.do(c)[0]
	if result.GetError() != nil {
		r.Fatalf("%s was refused: %v", command.Name(c), result.GetError())
	}
	if err := fsm.Verify(r.Machine); err != nil {
		r.Fatalf("after %s: %v", command.Name(c), err)
	}
	return result
}

// refused applies one command that must be refused with a code and must change nothing.
func (r *rig) refused(c *v1.Command, code string) string {
	r.Helper()
	before, err := fsm.DigestBut(r.Machine)
	if err != nil {
		r.Fatal(err)
	}
	result := r.do(c)[0]
	if result.GetError().GetCode() != code {
		r.Fatalf("%s was answered with %v, not with %s", command.Name(c), result, code)
	}
	if after, err := fsm.DigestBut(r.Machine); err != nil || after != before {
		r.Fatalf("the refused %s has changed the state (%v)", command.Name(c), err)
	}
	return result.GetError().GetMessage()
}

// harmless applies a command that must be accepted and change nothing.
func (r *rig) harmless(c *v1.Command) *v1.Result {
	r.Helper()
	before, err := fsm.DigestBut(r.Machine)
	if err != nil {
		r.Fatal(err)
	}
	result := r.ok(c)
	if after, err := fsm.DigestBut(r.Machine); err != nil || after != before {
		r.Fatalf("the repeated %s has changed the state (%v)", command.Name(c), err)
	}
	return result
}

// job reads an existing job.
func (r *rig) job(id string) jobs.Job {
	r.Helper()
	job, err := r.Job(jobID(id))
	if err != nil {
		r.Fatal(err)
	}
	return job
}

// claimed posts a job, claims it, and answers with the token.
func (r *rig) claimed(session string, p *v1.Posting) logbook.Token {
	r.Helper()
	r.posted(p)
	return r.claimedAgain(session, p.Id)
}

// claimedAgain claims a job that is claimable.
func (r *rig) claimedAgain(session, job string) logbook.Token {
	r.Helper()
	result := r.ok(claim(session, job, fmt.Sprintf("nonce of %s %d", job, r.index)))
	return command.TokenFromProto(result.GetClaim().Granted[0].Token)
}

// posted posts a job that must be accepted.
func (r *rig) posted(p *v1.Posting) {
	r.Helper()
	if posted := r.ok(post(p)).GetPost().Posted[0]; posted.Error != nil {
		r.Fatalf("posting %s was refused: %v", p.Id, posted.Error)
	}
}

// events are all stored events of jobs, as "kind job state".
func (r *rig) events() []string {
	r.Helper()
	events, err := r.Events(jobs.Position{}, 0)
	if err != nil {
		r.Fatal(err)
	}
	var words []string
	for _, event := range events {
		if event.Kind.OfSessions() {
			continue
		}
		words = append(words, fmt.Sprintf("%s %s %s", event.Kind, event.Name, event.State))
	}
	return words
}

// id makes an id from a word, so that rows read as words.
func id(word string) string { return uuid.NewSHA1(uuid.NameSpaceOID, []byte(word)).String() }

func jobID(text string) jobs.JobID                 { return jobs.JobID{UUID: uuid.MustParse(text)} }
func sessionID(word string) jobs.SessionID         { return jobs.SessionID{UUID: uuid.MustParse(id(word))} }
func flowID(word string) logbook.FlowID            { return logbook.FlowID{UUID: uuid.MustParse(id(word))} }
func bookID(word string) logbook.BookID            { return logbook.BookID{UUID: uuid.MustParse(id(word))} }
func value(json string) *v1.Value                  { return &v1.Value{Json: []byte(json)} }
func lasting(d time.Duration) *durationpb.Duration { return durationpb.New(d) }

// posting is a job without a flow. Its id follows from its name.
func posting(name, kind string) *v1.Posting {
	return &v1.Posting{Id: id(name), Name: name, Kind: kind}
}

// flowPosting is a job with a book of one flow, whose ids follow from its name.
func flowPosting(name string) *v1.Posting {
	return &v1.Posting{Id: id(name), Name: name, Book: book("book of "+name, "flow of "+name)}
}

func book(name string, flows ...string) *v1.Book {
	b := &v1.Book{Id: id(name), Name: name}
	for _, flow := range flows {
		b.Flows = append(b.Flows, &v1.FlowDetail{
			Id: id(flow), Name: flow, Factory: &v1.Factory{Name: "test", Args: value(`{"of":"` + flow + `"}`)},
			Store: []*v1.NamedValue{{Name: "a", Value: value(` 1`)}, {Name: "b", Value: value(`2`)}},
		})
	}
	return b
}

func post(postings ...*v1.Posting) *v1.Command {
	return &v1.Command{Kind: &v1.Command_Post{Post: &v1.PostCommand{Postings: postings}}}
}

func open(session string) *v1.Command {
	return &v1.Command{Kind: &v1.Command_OpenSession{OpenSession: &v1.Opening{Id: id(session), Name: session}}}
}

func closing(session string) *v1.Command {
	return &v1.Command{Kind: &v1.Command_CloseSession{CloseSession: &v1.CloseSessionCommand{Session: id(session)}}}
}

func claim(session, job, nonce string) *v1.Command {
	return &v1.Command{Kind: &v1.Command_Claim{Claim: &v1.ClaimCommand{Session: id(session), Job: job, Nonce: id(nonce)}}}
}

func claimNext(session, nonce string, most uint32, boards, kinds []string) *v1.Command {
	return &v1.Command{Kind: &v1.Command_ClaimNext{ClaimNext: &v1.ClaimNextCommand{
		Session: id(session), Nonce: id(nonce), Max: most, Boards: boards, Kinds: kinds,
	}}}
}

func consume(e *v1.Ending) *v1.Command { return &v1.Command{Kind: &v1.Command_Consume{Consume: e}} }
func abandon(e *v1.Ending) *v1.Command { return &v1.Command{Kind: &v1.Command_Abandon{Abandon: e}} }
func trash(e *v1.Ending) *v1.Command   { return &v1.Command{Kind: &v1.Command_Trash{Trash: e}} }

func suspend(o *v1.JobCommand) *v1.Command {
	return &v1.Command{Kind: &v1.Command_Suspend{Suspend: o}}
}

func resume(o *v1.JobCommand) *v1.Command {
	return &v1.Command{Kind: &v1.Command_Resume{Resume: o}}
}

func cancel(o *v1.JobCommand) *v1.Command {
	return &v1.Command{Kind: &v1.Command_Cancel{Cancel: o}}
}

func retry(o *v1.JobCommand) *v1.Command {
	return &v1.Command{Kind: &v1.Command_Retry{Retry: o}}
}

func purge(o *v1.JobCommand) *v1.Command {
	return &v1.Command{Kind: &v1.Command_Purge{Purge: o}}
}

func change(c *v1.Change) *v1.Command {
	return &v1.Command{Kind: &v1.Command_Change{Change: c}}
}

func intervene(i *v1.Intervention) *v1.Command {
	return &v1.Command{Kind: &v1.Command_Intervene{Intervene: i}}
}

func ending(job string, token logbook.Token) *v1.Ending {
	return &v1.Ending{Job: id(job), Token: command.TokenToProto(token)}
}

func success(job string, token logbook.Token) *v1.Ending {
	e := ending(job, token)
	e.Outcome = "success"
	return e
}

func register(session string, entity *v1.Entity) *v1.Command {
	return &v1.Command{Kind: &v1.Command_Register{Register: &v1.RegisterCommand{Session: id(session), Entity: entity}}}
}

func saveBook(b *v1.Book) *v1.Command { return &v1.Command{Kind: &v1.Command_SaveBook{SaveBook: b}} }
func destroyBook(name string) *v1.Command {
	return &v1.Command{Kind: &v1.Command_DestroyBook{DestroyBook: &v1.DestroyBookCommand{Book: id(name)}}}
}
func updateFlow(u *v1.Update) *v1.Command {
	return &v1.Command{Kind: &v1.Command_UpdateFlow{UpdateFlow: u}}
}

// update is an update with a sequence number under a token; atoms are given as "name STATE".
func update(flow string, token logbook.Token, sequence uint64, state string, atoms ...*v1.AtomChange) *v1.Update {
	return &v1.Update{
		Flow: id(flow), Token: command.TokenToProto(token), Sequence: sequence, State: state, Atoms: atoms,
	}
}

func task(name, state string, attempts ...*v1.Attempt) *v1.AtomChange {
	return &v1.AtomChange{Name: name, Kind: "task", State: state, Attempts: attempts}
}

func beginLeadership() *v1.Command {
	return &v1.Command{Kind: &v1.Command_BeginLeadership{BeginLeadership: &v1.BeginLeadershipCommand{Node: "n1"}}}
}

func expire(session string, epoch uint64, coolDown time.Duration, maxCrashes uint32) *v1.Command {
	return &v1.Command{Kind: &v1.Command_ExpireSession{ExpireSession: &v1.ExpireSessionCommand{
		Session: id(session), TimerEpoch: epoch, CoolDown: lasting(coolDown), MaxCrashes: maxCrashes,
	}}}
}

func wake(epoch uint64, most uint32) *v1.Command {
	return &v1.Command{Kind: &v1.Command_WakeDue{WakeDue: &v1.WakeDueCommand{TimerEpoch: epoch, Max: most}}}
}

func sweep(epoch uint64, age time.Duration, keep uint64, most uint32) *v1.Command {
	return &v1.Command{Kind: &v1.Command_Sweep{Sweep: &v1.SweepCommand{
		TimerEpoch: epoch, MaxAge: lasting(age), Keep: keep, Max: most,
	}}}
}

// snapshot is the stream of a snapshot taken now.
func snapshot(t testing.TB, m *fsm.Machine) []byte {
	t.Helper()
	s, err := m.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var out bytes.Buffer
	if n, err := s.WriteTo(&out); err != nil || n != int64(out.Len()) {
		t.Fatalf("wrote %d bytes of %d: %v", n, out.Len(), err)
	}
	return out.Bytes()
}

func digest(t interface {
	Helper()
	Fatal(...any)
}, m *fsm.Machine) [32]byte {
	t.Helper()
	sum, err := m.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return sum
}
