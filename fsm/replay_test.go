package fsm_test

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// author writes a log. It draws commands from small sets of names, so that commands concern
// the same objects. It takes tokens and numbers from a machine that has applied the log so
// far, so most of them are valid.
type author struct {
	*rapid.T
	machine *fsm.Machine
	index   uint64
	now     time.Time
	people  []string // names of the sessions; nil: the three defaults
}

func (a *author) draw(label string, most int) int { return rapid.IntRange(0, most).Draw(a.T, label) }

func (a *author) oneOf(label string, words ...string) string {
	return rapid.SampledFrom(words).Draw(a.T, label)
}

func (a *author) session() string {
	if a.people != nil {
		return a.oneOf("session", a.people...)
	}
	return a.oneOf("session", "ann", "bob", "eve")
}

// next draws one command.
func (a *author) next() *v1.Command {
	draws := []func() *v1.Command{
		a.post, a.post, a.post, a.claim, a.claimNext, a.claimNext, a.claimNext, a.ending, a.ending, a.ending,
		a.update, a.update, a.update, a.open, a.open, a.close, a.register, a.saveBook, a.destroyBook, a.leader, a.leader, a.order, a.order, a.order, a.change, a.change,
		a.intervention, a.intervention, a.correction, a.correction,
		a.extend,
		a.schedule, a.fire, a.fire, a.fire,
		a.boards, a.drains, a.age, a.quotas,
	}
	return draws[a.draw("command", len(draws)-1)]()
}

// boards draws an operator's command about a board, with limits that are reached.
func (a *author) boards() *v1.Command {
	c := &v1.BoardCommand{Board: a.oneOf("board", "", "night", "other")}
	switch a.draw("about a board", 5) {
	case 0:
		return &v1.Command{Kind: &v1.Command_CreateBoard{CreateBoard: c}}
	case 1:
		return &v1.Command{Kind: &v1.Command_LimitBoard{LimitBoard: &v1.LimitBoardCommand{Board: c.Board, Limits: &v1.BoardLimits{
			Jobs: uint64(a.draw("jobs", 5)), Bytes: uint64(100 * a.draw("bytes", 3)), PostingsPerSecond: uint64(a.draw("rate", 2)),
		}}}}
	case 2:
		c.By = "ann"
		return &v1.Command{Kind: &v1.Command_PauseBoard{PauseBoard: c}}
	case 3:
		return &v1.Command{Kind: &v1.Command_DeleteBoard{DeleteBoard: c}}
	}
	return &v1.Command{Kind: &v1.Command_ResumeBoard{ResumeBoard: c}}
}

// age draws a board's ageing step.
func (a *author) age() *v1.Command {
	step := time.Duration(a.draw("step", 2)) * time.Second
	return &v1.Command{Kind: &v1.Command_AgeBoard{AgeBoard: &v1.AgeBoardCommand{Board: a.oneOf("board", "", "other"), Step: lasting(step)}}}
}

// drains draws a drain of conductors, one of which is live.
func (a *author) drains() *v1.Command {
	c := &v1.DrainCommand{Conductor: a.oneOf("conductor", "one", "two", "three")}
	if a.draw("undrain", 1) == 0 {
		return &v1.Command{Kind: &v1.Command_UndrainConductor{UndrainConductor: c}}
	}
	c.Finish, c.Absent = a.draw("finish", 1) == 0, a.draw("absent", 1) == 0
	return &v1.Command{Kind: &v1.Command_DrainConductor{DrainConductor: c}}
}

func (a *author) post() *v1.Command {
	c := &v1.PostCommand{}
	for range 1 + a.draw("more postings", 2) {
		number := a.draw("job", 11)
		name := fmt.Sprint("job ", number)
		p := posting(name, a.oneOf("kind", "k", "l"))
		if number%2 == 0 {
			p = flowPosting(name)
		}
		p.Priority = int32(a.draw("priority", 2))
		p.Board = a.oneOf("board", "", "other")
		if a.draw("delayed", 3) == 0 {
			p.NotBefore = timestamppb.New(a.now.Add(time.Second))
		}
		p.Hold = a.draw("held", 5) == 0
		p.Key = a.oneOf("key", "", "", "red", "blue")
		if p.Key != "" && a.draw("with a signal", 1) == 0 {
			p.Signal = &v1.Signal{Name: "paid", Id: a.oneOf("signal id", "", "a", "b", "c")}
		}
		p.Front = a.draw("front", 3) == 0
		p.Tags = [][]string{nil, {"wet"}, {"wet", "cold"}}[a.draw("tags", 2)]
		if a.draw("deadline", 3) == 0 {
			p.Deadline = timestamppb.New(a.now.Add(time.Duration(1+a.draw("until", 3)) * 900 * time.Millisecond))
		}
		if p.Deadline == nil && a.draw("deadline after", 3) == 0 {
			p.DeadlineAfter = lasting(time.Duration(1+a.draw("time until", 3)) * time.Second)
		}
		p.Labels = [][]string{nil, nil, {"big"}, {"red", "big"}}[a.draw("labels", 3)]
		p.MaxCrashes = uint32(a.draw("max crashes", 1))
		if a.draw("with a retention", 3) == 0 {
			p.Retention = lasting(time.Duration(1+a.draw("kept for", 3)) * time.Second)
		}
		if a.draw("with a retry policy", 2) == 0 {
			p.Retry = &v1.RetryPolicy{
				Attempts: uint32(a.draw("attempts", 3)), Delay: lasting(time.Duration(1+a.draw("retry delay", 9)) * 100 * time.Millisecond),
				JitterPercent: 50, PriorityStep: int32(a.draw("step", 2)), OnFailure: a.oneOf("on failure", "", "retry", "park", "park"),
			}
		}
		c.Postings = append(c.Postings, p)
	}
	return a.as(&v1.Command{Kind: &v1.Command_Post{Post: c}})
}

func (a *author) claim() *v1.Command {
	return claim(a.session(), id(fmt.Sprint("job ", a.draw("job", 11))), fmt.Sprint("nonce ", a.index))
}

func (a *author) claimNext() *v1.Command {
	var kinds []string
	if a.draw("kinds", 1) == 0 {
		kinds = []string{"test", a.oneOf("kind", "k", "l")}
	}
	most := uint32(a.draw("max", 3))
	c := claimNext(a.session(), fmt.Sprint("nonce ", a.index), most, []string{"default", "other"}, kinds)
	c.GetClaimNext().Expiry = lasting(time.Duration(a.draw("expiry", 1)) * time.Minute)
	c.GetClaimNext().Begins = a.draw("begins", 1) == 0
	c.GetClaimNext().Labels = [][]string{nil, {"big"}, {"big", "red"}}[a.draw("offered", 2)]
	return c
}

// held draws a job, usually a claimed one.
func (a *author) held() jobs.Job {
	query := jobs.Query{States: []jobs.State{jobs.StateClaimed}}
	if a.draw("any state", 4) == 0 {
		query.States = nil
	}
	page, err := a.machine.Jobs(query)
	if err != nil {
		a.Fatal(err)
	}
	if len(page.Items) == 0 {
		return jobs.Job{ID: jobID(id("job 1"))}
	}
	return page.Items[a.draw("held job", len(page.Items)-1)]
}

func (a *author) ending() *v1.Command {
	job := a.held()
	if a.draw("packed", 5) == 0 {
		job.Token = logbook.Token{Generation: 1, Index: a.index} // of a claim in this entry
	}
	if !job.Flow.IsZero() && job.State == jobs.StateClaimed && a.draw("failed", 2) == 0 {
		return a.failing(job)
	}
	e := &v1.Ending{Job: job.ID.String(), Token: command.TokenToProto(job.Token), Reason: a.oneOf("reason", "", "tired", strings.Repeat("tired ", 1_000))}
	e.Recorded = a.draw("recorded", 1) == 0
	if e.Reason != "" {
		e.Failure = &v1.Failure{Kind: "error", Message: "so it went"}
	}
	if !job.Flow.IsZero() && a.draw("with update", 1) == 0 {
		e.Update = a.updateOf(job.Flow, job.Token)
	}
	switch a.draw("verb", 2) {
	case 0:
		e.Outcome = a.oneOf("outcome", "success", "reverted", "failed", "cancelled")
		if e.Outcome == "success" && a.draw("continues", 1) == 0 {
			e.Again = &v1.Continuation{Store: []*v1.NamedValue{{Name: "month", Value: value(`2`)}}, Delay: lasting(time.Duration(a.draw("pause", 1)) * time.Second)}
		}
		return consume(e)
	case 1:
		e.Delay = lasting(time.Duration(a.draw("delay", 1)) * time.Second)
		e.Waits = a.draw("waits", 1) == 0
		return abandon(e)
	}
	return trash(e)
}

// order draws a stop request for any job, usually a claimed or suspended one.
func (a *author) order() *v1.Command {
	job := a.held()
	o := &v1.JobCommand{Job: job.ID.String(), By: a.oneOf("by", "", "ann"), Reason: a.oneOf("reason", "", "stop it")}
	if a.draw("publishes", 1) == 0 {
		return a.publication()
	}
	switch a.draw("order", 11) {
	case 9, 10:
		return a.decision(o.Job)
	case 8:
		sent := &v1.SignalCommand{Job: o.Job, Name: a.oneOf("signal", "paid", "sent"), Id: a.oneOf("signal id", "a", "b", "c", "d", "e", "f")}
		if a.draw("by key", 1) == 0 {
			sent.Job, sent.Board, sent.Key = "", a.oneOf("board", "", "other"), a.oneOf("key", "red", "blue")
		}
		return &v1.Command{Kind: &v1.Command_Signal{Signal: sent}}
	case 7:
		o.Step = a.oneOf("step", "", "x", "y")
		return &v1.Command{Kind: &v1.Command_RetryNow{RetryNow: o}}
	case 6:
		return &v1.Command{Kind: &v1.Command_Unreserve{Unreserve: o}}
	case 0, 1:
		return suspend(o)
	case 2:
		return resume(o)
	case 3, 4, 5:
		o.To, o.Within = a.oneOf("to", "one", "two", "three"), lasting(time.Duration(a.draw("within", 4))*time.Second)
		return &v1.Command{Kind: &v1.Command_Transfer{Transfer: o}}
	}
	o.Revert = a.draw("revert", 1) == 0
	return cancel(o)
}

// decision draws a decision about a job's approval.
func (a *author) decision(job string) *v1.Command {
	d := &v1.DecideCommand{Job: job, Id: a.oneOf("decision id", "a", "b", "c"), Kind: a.oneOf("decision", "approve", "approve", "reject"), By: a.oneOf("decides", "ann", "bob")}
	if a.draw("override", 2) == 0 {
		d.Reason = "outage"
		return &v1.Command{Kind: &v1.Command_Override{Override: d}}
	}
	return &v1.Command{Kind: &v1.Command_Decide{Decide: d}}
}

// publication draws a publication, usually to a topic for which steps wait.
func (a *author) publication() *v1.Command {
	p := &v1.PublishCommand{Board: a.oneOf("board", "", "", "other"), Topic: "pay", Key: a.oneOf("topic key", "7", "7", "8"), To: a.oneOf("reaches", "", "all"),
		Id: a.oneOf("publication", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l")}
	if p.To == "" && a.draw("keep", 1) == 0 {
		p.Keep = lasting(time.Duration(1+a.draw("kept for", 20)) * time.Second)
	}
	return &v1.Command{Kind: &v1.Command_Publish{Publish: p}}
}

// change draws a change of any job.
func (a *author) change() *v1.Command {
	c := &v1.Change{Job: id(fmt.Sprint("job ", a.draw("job", 11))), By: a.oneOf("by", "", "ann"), Release: a.draw("release", 1) == 0}
	if a.draw("prefer", 1) == 0 {
		c.Priority = proto.Int32(int32(a.draw("priority", 2)))
	}
	if a.draw("delay", 1) == 0 {
		c.NotBefore = timestamppb.New(a.now.Add(time.Duration(a.draw("until", 3)-1) * time.Second))
	}
	switch a.draw("deadline", 5) {
	case 0:
		c.Deadline = timestamppb.New(a.now.Add(time.Duration(a.draw("deadline in", 4)-1) * 900 * time.Millisecond))
	case 1:
		c.NoDeadline = true
	}
	if a.draw("moves", 2) == 0 {
		c.Board = a.oneOf("to board", "default", "other", "night", "nowhere")
	}
	c.Front = a.draw("to the front", 4) == 0
	if a.draw("named", 1) == 0 {
		c.Id = id(fmt.Sprint("change ", a.draw("change", 20)))
	}
	return change(c)
}

// intervention draws an intervention in a flow, usually of a failed job.
func (a *author) intervention() *v1.Command {
	page, err := a.machine.Jobs(jobs.Query{States: []jobs.State{jobs.StateCompleted}})
	if err != nil {
		a.Fatal(err)
	}
	i := &v1.Intervention{Id: id(a.oneOf("intervention", "i", "j", "k", "l", "m")), Flow: id("flow of job 2"), By: "ann"}
	failed := slices.DeleteFunc(page.Items, func(j jobs.Job) bool { return j.Outcome != jobs.OutcomeFailed })
	if len(failed) > 0 {
		i.Flow = failed[a.draw("failed job", len(failed)-1)].Flow.String()
	}
	i.Kind = a.oneOf("intervention kind", "retry-revert", "complete", "rerun", "take-back")
	if i.Kind == "complete" {
		i.Step, i.Result, i.Hold = a.oneOf("atom", "x", "y", "z"), value("7"), a.draw("hold", 1) == 0
	}
	if i.Kind == "take-back" && a.draw("of a step", 1) == 0 {
		i.Step = a.oneOf("atom", "x", "y", "z")
	}
	return intervene(i)
}

// correction retries or purges a job, usually a trashed one.
func (a *author) correction() *v1.Command {
	page, err := a.machine.Jobs(jobs.Query{States: []jobs.State{jobs.StateTrashed}})
	if err != nil {
		a.Fatal(err)
	}
	o := &v1.JobCommand{Job: id(fmt.Sprint("job ", a.draw("job", 11))), By: a.oneOf("by", "", "ann"), Reason: a.oneOf("reason", "", "once more")}
	if len(page.Items) > 0 && a.draw("a trashed one", 3) > 0 {
		o.Job = page.Items[a.draw("trashed job", len(page.Items)-1)].ID.String()
	}
	if a.draw("purge", 4) == 0 {
		return purge(o)
	}
	return retry(o)
}

// failing starts the flow of a job, or fails it and ends the job: states drawn independently would
// hardly ever lead to this.
func (a *author) failing(job jobs.Job) *v1.Command {
	flow, _, err := a.machine.Flow(job.Flow, fsm.Part{MaxBytes: fsm.Unbounded})
	if err != nil {
		a.Fatal(err)
	}
	u := &v1.Update{Flow: job.Flow.String(), Token: command.TokenToProto(job.Token), Sequence: 1, State: "running"}
	if flow.Fence == job.Token {
		u.Sequence = flow.Sequence + 1
	}
	if flow.State != logbook.FlowRunning && flow.State != logbook.FlowReverting {
		return updateFlow(u)
	}
	outcome := "failed"
	switch u.State = "failure"; {
	case flow.State == logbook.FlowRunning && a.draw("reverts", 1) == 0:
		u.State = "reverting"
		return updateFlow(u)
	case flow.State == logbook.FlowReverting && a.draw("reverted", 3) > 0:
		u.State, outcome = "reverted", "reverted"
	}
	return consume(&v1.Ending{Job: job.ID.String(), Token: u.Token, Outcome: outcome, Update: u})
}

// extend changes the TTL of a claim, usually of an active one.
func (a *author) extend() *v1.Command {
	job := a.held()
	return &v1.Command{Kind: &v1.Command_ExtendClaim{ExtendClaim: &v1.ExtendClaimCommand{
		Job: job.ID.String(), Token: command.TokenToProto(job.Token), Expiry: lasting(time.Minute),
	}}}
}

// expireClaim ends a claim that usually has its own TTL.
func (a *author) expireClaim(epoch uint64) *v1.Command {
	job := a.held()
	c := &v1.ExpireClaimCommand{
		Job: job.ID.String(), Token: command.TokenToProto(job.Token), TimerEpoch: epoch,
		CoolDown: lasting(time.Duration(a.draw("cool", 1)) * time.Second), MaxCrashes: 3,
	}
	if job.Claim != nil {
		c.Extensions = uint32(job.Claim.Extensions)
	}
	return &v1.Command{Kind: &v1.Command_ExpireClaim{ExpireClaim: c}}
}

func (a *author) update() *v1.Command {
	job := a.held()
	if job.Flow.IsZero() {
		return updateFlow(a.updateOf(flowID("flow of loose"), logbook.Token{}))
	}
	return updateFlow(a.updateOf(job.Flow, job.Token))
}

// updateOf draws an update that the flow usually accepts.
func (a *author) updateOf(id logbook.FlowID, token logbook.Token) *v1.Update {
	u := &v1.Update{Flow: id.String(), Token: command.TokenToProto(token), Sequence: 1}
	flow, _, err := a.machine.Flow(id, fsm.Part{MaxBytes: fsm.Unbounded})
	if err != nil {
		return u
	}
	if flow.Fence == token {
		u.Sequence = flow.Sequence + uint64(a.draw("step", 5))/4 + 1 // sometimes a gap
	}
	u.State = a.oneOf("flow state", "", "running", "success", "reverting", "reverted", "suspended")
	if a.draw("cause", 3) == 0 {
		u.Cause = &v1.Failure{Kind: "error", Message: "why"}
	}
	if a.draw("definition", 3) == 0 {
		built := &v1.Definition{Hash: a.oneOf("hash", "one", "two"), Packed: []byte("steps")}
		if a.draw("named", 1) == 0 { // refused if no flow has this definition
			id := command.DefinitionIDOf(command.DefinitionFromProto(built))
			u.DefinitionId = id[:]
		} else {
			u.Definition = built
		}
	}
	name := a.oneOf("atom", "x", "y", "z")
	change := task(name, a.oneOf("atom state", "", "running", "success", "pending", "reverting"))
	number := uint32(1)
	if atom, ok := flow.Atom(name); ok && len(atom.Attempts) > 0 {
		number = uint32(len(atom.Attempts) + a.draw("attempt", 1))
	}
	var stored *logbook.Wait // of this attempt
	if atom, ok := flow.Atom(name); ok && int(number) == len(atom.Attempts) {
		stored = atom.Attempts[number-1].Wait
	}
	attempt := executing(number)
	if a.draw("ended", 1) == 0 {
		attempt = executed(number, `{"r":[1]}`)
	}
	change.Attempts = append(change.Attempts, attempt)
	switch a.draw("waits for a signal", 3) {
	case 0:
		attempt.EndedAt, attempt.Result = nil, nil
		change.State, attempt.Asked = "pending", 1
		attempt.Wait = &v1.Wait{Signals: []string{"paid"}, Since: timestamppb.New(start), Until: timestamppb.New(start.Add(time.Hour))}
		if stored != nil && stored.Approval != nil {
			attempt.Wait = command.WaitToProto(stored) // a wait keeps its kind
		} else if stored == nil && a.draw("approval", 2) == 0 {
			attempt.Wait.Signals, attempt.Wait.Approval = nil, a.need()
		} else if a.draw("two names", 1) == 0 {
			attempt.Wait.Signals = []string{"sent", "paid"}
		} else if a.draw("topic", 1) == 0 {
			attempt.Wait.Signals, attempt.Wait.Topic, attempt.Wait.Key = nil, "pay", a.oneOf("topic key", "7", "7", "8")
		}
	case 1:
		if atom, ok := flow.Atom(name); ok && len(atom.Attempts) > 0 && atom.Attempts[len(atom.Attempts)-1].Wait != nil {
			attempt.Wait = command.WaitToProto(atom.Attempts[len(atom.Attempts)-1].Wait)
		}
	}
	if a.draw("waits", 1) == 0 {
		change.RetryAt = timestamppb.New(start.Add(time.Hour))
	}
	u.Atoms = append(u.Atoms, change)
	if a.draw("again", 2) == 0 { // the same atom again, as when one attempt ends and the next starts
		u.Atoms = append(u.Atoms, task(name, a.oneOf("atom state", "", "success", "pending"), executing(number+1)))
	}
	return u
}

// need draws an approval by one or two people, with one to three reminders in the next three seconds.
func (a *author) need() *v1.Approval {
	asked := &v1.Approval{Text: "Go?", Need: []*v1.Need{{Role: "dba", Count: uint32(1 + a.draw("people", 1))}}}
	at := a.now
	for range 1 + a.draw("reminders", 2) {
		at = at.Add(time.Duration(1+a.draw("remind", 9)) * 100 * time.Millisecond)
		asked.Remind = append(asked.Remind, &v1.Reminder{At: timestamppb.New(at)})
	}
	return asked
}

func (a *author) open() *v1.Command  { return a.as(open(a.session())) }
func (a *author) close() *v1.Command { return closing(a.session()) }

func (a *author) register() *v1.Command {
	return register(a.session(), &v1.Entity{Kind: "conductor", Name: a.oneOf("entity", "one", "two"), MaxJobs: uint32(a.draw("max", 2))})
}

func (a *author) saveBook() *v1.Command {
	b := book("book of "+a.oneOf("book", "loose", "job 2", "job 4"), "flow of loose")
	b.Flows[0].Id = id("flow of " + b.Name[len("book of "):])
	b.Flows[0].Name = a.oneOf("flow name", "first", "second")
	return saveBook(b)
}

func (a *author) destroyBook() *v1.Command {
	return destroyBook("book of " + a.oneOf("book", "loose", "job 2", "job 4"))
}

func (a *author) leader() *v1.Command {
	epoch := a.machine.TimerEpoch()
	switch a.draw("leader", 8) {
	case 7, 8:
		return a.expireClaim(epoch)
	case 0:
		return beginLeadership()
	case 1, 2:
		return expire(a.session(), epoch, time.Duration(a.draw("cool", 1))*time.Second, 3)
	case 3:
		return sweep(epoch, 5*time.Second, 3, 2)
	}
	return wake(epoch, uint32(1+a.draw("max", 3)))
}

// write draws the next entry and applies it. Its index leaves room for a repeat after it.
func (a *author) write() (fsm.Entry, []*v1.Command, []*v1.Result) {
	a.index += 2
	a.now = a.now.Add(time.Duration(a.draw("passing", 3)) * 400 * time.Millisecond)
	var commands []*v1.Command
	for range 1 + a.draw("more commands", 2) {
		commands = append(commands, a.next())
	}
	entry := encodeEntry(a.T, a.index, a.now, commands...)
	results, err := a.machine.Apply([]fsm.Entry{entry})
	if err != nil {
		a.Fatal(err)
	}
	return entry, commands, results[0]
}

// tokensGrow compares the claims of the latest entry with all earlier claims.
func (a *author) tokensGrow(claims map[jobs.JobID]logbook.Token) {
	events, err := a.machine.Events(jobs.Position{Index: a.index - 1}, 0)
	if err != nil && !errors.Is(err, jobs.ErrCompacted) {
		a.Fatal(err)
	}
	for _, event := range events {
		if event.Kind != jobs.EventClaimed {
			continue
		}
		if last := claims[event.Job]; event.Token.Compare(last) <= 0 {
			a.Fatalf("job %s was claimed under token %s, and then under %s", event.Job, last, event.Token)
		}
		claims[event.Job] = event.Token
	}
}

// openMachines gives a rapid test machines that are closed with its run.
func openMachines(t *testing.T) func(*rapid.T) *fsm.Machine {
	dir, opened := t.TempDir(), 0
	return func(rt *rapid.T) *fsm.Machine {
		opened++
		m, err := fsm.Open(fsm.Options{
			Path: filepath.Join(dir, fmt.Sprint(opened%8)+".db"), MmapSize: 1 << 20, EventsKept: 20, Generation: 1,
			MemoryRows: []int{0, 1, 40, 7}[opened%4], // the time at which rows leave memory has no visible effect
		})
		if err != nil {
			rt.Fatal(err)
		}
		rt.Cleanup(func() { m.Close() })
		return m
	}
}

// TestReplayGivesTheSameState: the same entries give the same state, in any batches, with
// or without readers of the results, and with a snapshot anywhere between them. After
// each entry of the first run the whole state must be consistent.
func TestReplayGivesTheSameState(t *testing.T) {
	longtest.Checks(t, 15)
	openMachine := openMachines(t)
	rapid.Check(t, func(t *rapid.T) {
		a := &author{T: t, machine: openMachine(t), now: start}
		var log []fsm.Entry
		claims := make(map[jobs.JobID]logbook.Token)
		for range 5 + a.draw("entries", 40) {
			entry, commands, results := a.write()
			log = append(log, entry)
			a.tokensGrow(claims)
			if err := fsm.Verify(a.machine); err != nil {
				t.Fatalf("after %v, answered with %v: %v", commands, results, err)
			}
		}
		want := digest(t, a.machine)

		batched := openMachine(t)
		for rest := log; len(rest) > 0; {
			n := 1 + a.draw("batch", len(rest)-1)
			batch := slices.Clone(rest[:n])
			for i := range batch {
				batch[i].Unanswered = a.draw("unanswered", 2) > 0
			}
			results, err := batched.Apply(batch)
			if err != nil {
				t.Fatal(err)
			}
			for i := range batch {
				if (results[i] == nil) != batch[i].Unanswered {
					t.Fatalf("an entry that is unanswered (%t) has the results %v", batch[i].Unanswered, results[i])
				}
			}
			rest = rest[n:]
		}
		if digest(t, batched) != want {
			t.Fatal("the state depends on the batches, or on who reads the results")
		}

		cut := a.draw("snapshot after", len(log))
		before := openMachine(t)
		if _, err := before.Apply(log[:cut]); err != nil {
			t.Fatal(err)
		}
		s, err := before.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		var stream bytes.Buffer
		if _, err := s.WriteTo(&stream); err != nil {
			t.Fatal(err)
		}
		after := openMachine(t)
		if err := after.Restore(&stream); err != nil {
			t.Fatal(err)
		}
		if _, err := after.Apply(log); err != nil { // entries in the snapshot are skipped
			t.Fatal(err)
		}
		if digest(t, after) != want {
			t.Fatalf("the state depends on a snapshot after %d entries", cut)
		}
	})
}

// settled reports whether a command has happened, so that a repeat must change nothing. An
// empty claim is not settled: its repeat may find a job. Commands that replace or remove by
// name (books, entities) may be repeated at once, but not after other commands.
func settled(c *v1.Command, result *v1.Result) (atOnce, later bool) {
	if result.GetError() != nil {
		return false, false
	}
	switch kind := c.Kind.(type) {
	case *v1.Command_Post:
		for _, posted := range result.GetPost().Posted {
			if posted.Error != nil {
				return false, false
			}
		}
		return true, false // a swept job can be posted again
	case *v1.Command_ClaimNext:
		taken := len(result.GetClaim().Granted) > 0
		return taken, taken
	case *v1.Command_Claim, *v1.Command_Consume, *v1.Command_Abandon, *v1.Command_Trash,
		*v1.Command_OpenSession, *v1.Command_CloseSession:
		return true, true
	case *v1.Command_UpdateFlow:
		return true, kind.UpdateFlow.Token != nil
	case *v1.Command_Intervene: // until its flow is destroyed
		return true, false
	case *v1.Command_RunSchedule, *v1.Command_BackfillSchedule:
		return true, false // a job whose record and row are removed is created again
	case *v1.Command_Register, *v1.Command_SaveBook, *v1.Command_DestroyBook,
		*v1.Command_SaveSchedule, *v1.Command_PauseSchedule, *v1.Command_ResumeSchedule,
		*v1.Command_Transfer, *v1.Command_Unreserve, *v1.Command_RetryNow, *v1.Command_Signal, *v1.Command_Decide, *v1.Command_Override, *v1.Command_Suspend, *v1.Command_Resume, *v1.Command_Cancel, *v1.Command_Change, *v1.Command_Retry,
		*v1.Command_CreateBoard, *v1.Command_LimitBoard, *v1.Command_PauseBoard, *v1.Command_ResumeBoard, *v1.Command_AgeBoard,
		*v1.Command_DrainConductor, *v1.Command_UndrainConductor: // another request may have followed
		return true, false
	}
	return false, false
}

// TestRepeatsAreHarmless repeats commands that have happened, at once and later, each in its
// own entry. The state must not change, no event may appear twice, and no session may get a
// job.
func TestRepeatsAreHarmless(t *testing.T) {
	openMachine := openMachines(t)
	rapid.Check(t, func(t *rapid.T) {
		a := &author{T: t, machine: openMachine(t), now: start}
		var done []*v1.Command
		repeat := func(c *v1.Command, when string) {
			before, err := fsm.DigestBut(a.machine)
			if err != nil {
				t.Fatal(err)
			}
			entry := encodeEntry(t, a.machine.AppliedIndex()+1, a.now, proto.Clone(c).(*v1.Command))
			results, err := a.machine.Apply([]fsm.Entry{entry})
			if err != nil {
				t.Fatal(err)
			}
			if after, err := fsm.DigestBut(a.machine); err != nil || after != before {
				t.Fatalf("repeated %s, %v has changed the state; answered with %v (%v)", when, c, results, err)
			}
			a.index = max(a.index, a.machine.AppliedIndex())
		}
		for range 5 + a.draw("entries", 40) {
			_, commands, results := a.write()
			for i, c := range commands {
				atOnce, later := settled(c, results[i])
				if atOnce && len(commands) == 1 {
					repeat(c, "at once")
				}
				if later {
					done = append(done, c)
				}
			}
			if len(done) > 0 && a.draw("repeat", 2) == 0 {
				repeat(done[a.draw("which", len(done)-1)], "later")
			}
		}
	})
}
