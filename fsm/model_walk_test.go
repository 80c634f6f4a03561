package fsm_test

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// The visible state, one line per object, in the same form from the model and from the machine.
// Sentences for operators can differ, but both must have one.

func jobLine(j jobs.Job) string {
	owner, order := "nobody", "none"
	if j.Claim != nil {
		owner = fmt.Sprint(j.Claim.Owner, " since ", ago(j.Claim.Since), " under ", j.Claim.Token, " for ", j.Claim.Expiry, " after ", j.Claim.Extensions, " begins=", j.Claim.Begins)
	}
	if j.StopRequest != nil {
		order = fmt.Sprint(j.StopRequest.Kind, " revert=", j.StopRequest.Revert, " by ", j.StopRequest.By, " at ", ago(j.StopRequest.At), " to ", j.StopRequest.To, " within ", j.StopRequest.Within)
	}
	if j.Reserved != nil {
		order += fmt.Sprint(", reserved for ", j.Reserved.Conductor, " until ", ago(j.Reserved.Until))
	}
	return fmt.Sprintf("%s #%d on %s, %s, priority %d, front %d, key %q, labels %v, is %s for %s; not before %s, held=%t, deadline %s, due %s; "+
		"posted %s by %q, %d bytes, modified %s, started %s, finished %s; token %s, %d claims, %d crashes of %d, %d failures; outcome %q, order %s, reason=%t, evidence=%t; %d attempts, the last %q, parked=%t, %d unread signals, iteration %d",
		j.Name, j.Sequence, j.Board, j.Kind, j.Priority, j.Front, j.Key, j.Labels, j.State, owner, ago(j.NotBefore), j.Held, ago(j.Deadline), ago(j.DueAt),
		ago(j.PostedAt), j.PostedBy, j.Size, ago(j.ModifiedAt), ago(j.StartedAt), ago(j.FinishedAt), j.Token, j.Claims, j.Crashes, j.MaxCrashes, j.Failures,
		j.Outcome, order, j.Reason != "", j.Failure != nil, j.Attempts, j.Attempted, j.Parked, j.UnreadSignals, j.Iteration)
}

func flowLine(f *logbook.FlowDetail) string {
	var atoms []string
	for i := range f.Atoms {
		taken := ""
		if n := len(f.Atoms[i].Attempts); n > 0 && f.Atoms[i].Attempts[n-1].Wait != nil && f.Atoms[i].Attempts[n-1].Wait.Signal != nil {
			taken = f.Atoms[i].Attempts[n-1].Wait.Signal.ID
		}
		atoms = append(atoms, fmt.Sprint(f.Atoms[i].Name, " ", f.Atoms[i].State, " ", len(f.Atoms[i].Attempts), f.Atoms[i].RetryAt, " ", taken))
	}
	return fmt.Sprintf("%s is %s after update %d under %s, begun under %s, with %v and %d interventions, iteration %d after %s",
		f.Name, f.State, f.Sequence, f.Fence, f.Begun, atoms, len(f.Interventions), f.Iteration, f.Previous)
}

func boardLine(b jobs.BoardStatus) string {
	pause := "-"
	if b.Pause != nil {
		pause = fmt.Sprint(b.Pause.By, " at ", ago(b.Pause.At))
	}
	slices.SortFunc(b.Kinds, func(a, b jobs.BoardKind) int { return cmp.Compare(a.Kind, b.Kind) })
	slices.SortFunc(b.Holders, func(a, b jobs.BoardHolder) int { return cmp.Compare(a.Owner, b.Owner) })
	var kinds, holders []string
	for _, kind := range b.Kinds {
		kinds = append(kinds, fmt.Sprint(kind.Kind, " ", kind.Jobs))
	}
	for _, holder := range b.Holders {
		holders = append(holders, fmt.Sprint(holder.Owner, " ", holder.Jobs))
	}
	return fmt.Sprintf("board %s, made %s, limits %v, %d steps until %s and one each %s, paused by %s, holds %v, %d bytes, next due %s, of kinds %v, held by %v",
		b.Name, ago(b.CreatedAt), b.Limits, b.Ageing.Steps, ago(b.Ageing.Since), b.Ageing.Step, pause, b.Jobs, b.Bytes, ago(b.NextDue), kinds, holders)
}

func entityLine(e jobs.Entity) string {
	return fmt.Sprintf("%s %s of %s, %d jobs, since %s", e.Kind, e.Name, e.Session, e.MaxJobs, ago(e.RegisteredAt))
}

func sessionLine(s jobs.Session) string { return fmt.Sprintf("%s holds %d", s.Name, s.Claims) }

// ago is a time as a duration since the start.
func ago(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return at.Sub(start).String()
}

func parsedBook(text string) logbook.BookID { return logbook.BookID{UUID: uuid.MustParse(text)} }

func parsedSession(text string) jobs.SessionID { return jobs.SessionID{UUID: uuid.MustParse(text)} }

// answerText formats the answer of the machine like the model's answer.
func answerText(result *v1.Result) string {
	if err := result.GetError(); err != nil {
		return err.Code
	}
	var words []string
	switch kind := result.Kind.(type) {
	case *v1.Result_Post:
		for _, posted := range kind.Post.Posted {
			words = append(words, verdict(posted.Job, posted.Existed, posted.Signal.GetAnswer(), posted.Error))
		}
	case *v1.Result_Claim:
		for _, g := range kind.Claim.Granted {
			words = append(words, fmt.Sprint(g.Job, " under ", command.TokenFromProto(g.Token)))
		}
	case *v1.Result_Session:
		return fmt.Sprint("session with ", kind.Session.Claims, " claims")
	case *v1.Result_Count:
		return count(int(kind.Count.Done), kind.Count.More)
	case *v1.Result_Signal:
		return kind.Signal.Answer
	case *v1.Result_Publish:
		return strings.TrimSpace(fmt.Sprint(kind.Publish.Answer, " ", kind.Publish.First)) + fmt.Sprint(" by ", kind.Publish.Waits)
	case *v1.Result_Intervene:
		return kind.Intervene.Job
	case *v1.Result_Schedule:
		if s := kind.Schedule.Schedule; s != nil {
			return fmt.Sprint("schedule ", s.Name, " ", s.Revision)
		}
		records, err := command.SlotRecordsFromProto(kind.Schedule.Slots)
		if err != nil {
			panic(err)
		}
		for i := range records {
			words = append(words, slotWord(&records[i]))
		}
	}
	if len(words) == 0 {
		return "done"
	}
	return strings.Join(words, ", ")
}

// names replaces ids by the words from which they were made.
var names = func() *strings.Replacer {
	var words []string
	for n := range 300 {
		words = append(words, person(n))
	}
	for n := range 12 {
		job := fmt.Sprint("job ", n)
		words = append(words, job, "flow of "+job, "book of "+job, "second flow of "+job, fmt.Sprint("saved ", n))
	}
	words = append(words, "flow of loose", "book of loose", "second flow of loose", "book of slots", "flow of slots")
	var pairs []string
	for _, word := range words {
		pairs = append(pairs, id(word), word)
	}
	return strings.NewReplacer(pairs...)
}()

// readable formats a command for a failure message.
func readable(c *v1.Command) string {
	short := proto.Clone(c).(*v1.Command)
	for _, p := range short.GetPost().GetPostings() {
		if p.Book != nil {
			p.Book = &v1.Book{Name: p.Book.Name}
		}
	}
	if e := short.GetConsume(); e != nil && len(e.GetReason()) > 10 {
		e.Reason = "long"
	}
	return names.Replace(prototext.MarshalOptions{}.Format(short))
}

// walker draws commands, and tries each on the model and on the machine.
type walker struct {
	author
	model *model
	crowd []string      // live sessions, and one that has ended
	came  int           // number of sessions so far
	said  []string      // the walk so far, one line per command
	sent  []*v1.Command // the latest commands, for repeats
	seen  *coverage
}

// coverage counts the cases that all walks have met.
type coverage struct {
	answers   map[string]int // commands and postings, by code of the answer
	moves     map[string]int // changes of state
	slots     map[string]int // decisions of slots, with the principal
	sequences int
}

// answer counts the answers to a command.
func (c *coverage) answer(name string, result *v1.Result) {
	c.answers[strings.TrimSpace(name+" "+result.GetError().GetCode())]++
	if signalled := result.GetSignal(); signalled != nil {
		c.answers["signal "+signalled.Answer]++
	}
	if published := result.GetPublish(); published != nil {
		c.answers[fmt.Sprint("publish ", published.Answer, " by ", min(published.Waits, 2))]++
	}
	for _, posted := range result.GetPost().GetPosted() {
		c.answers[verdict("posting", posted.Existed, posted.Signal.GetAnswer(), posted.Error)]++
	}
}

// move counts the changes of jobs' states.
func (c *coverage) move(before, after map[string]jobs.State) {
	const nothing = jobs.State("nothing")
	for job, state := range after {
		if was := cmp.Or(before[job], nothing); was != state {
			c.moves[fmt.Sprint(was, " ", state)]++
		}
	}
	for job, was := range before {
		if after[job] == "" {
			c.moves[fmt.Sprint(was, " ", nothing)]++
		}
	}
}

// begun counts, by state, the jobs whose flows may have started without a record.
func (c *coverage) begun(m *model) {
	for _, j := range m.jobs {
		if flow := m.flowOf(j); flow != nil && !flow.Begun.IsZero() {
			c.moves[strings.TrimSpace(fmt.Sprint("may have begun ", j.State, " ", map[bool]string{true: "to be undone"}[under(j, jobs.RequestCancel) && j.StopRequest.Revert]))]++
		}
	}
}

// end counts the slots at the end of a walk.
func (c *coverage) end(m *model) {
	c.sequences++
	c.answers["claim_next by age"] += m.aged
	c.answers["the key of a finished job is taken"] += m.taken
	c.answers["reminder"] += m.reminders
	for _, s := range m.schedules {
		for _, r := range s.records {
			why, _, _ := strings.Cut(r.Reason, ":") // numbers follow the colon
			if strings.Contains(why, "has the key") {
				why = "has the key"
			}
			c.slots[strings.TrimSpace(fmt.Sprint(r.State, " by ", r.Trigger, " ", why))]++
		}
	}
}

// repeatable is the maximum age of a repeated command, in commands.
const repeatable = 20

func (w *walker) next() *v1.Command {
	draws := []func() *v1.Command{
		w.post, w.post, w.post, w.claim, w.claim, w.claimNext, w.claimNext, w.claimNext, w.claimNext, w.ending, w.ending, w.ending, w.ending,
		w.update, w.update, w.open, w.open, w.open, w.open, w.close, w.leader, w.leader, w.leader, w.leader, w.leader,
		w.order, w.order, w.order, w.approval, w.approval, w.approval, w.approval, w.undo, w.change, w.change, w.intervention, w.intervention, w.correction, w.correction, w.extend, w.extend, w.again, w.again, w.failed, w.failed,
		w.savedPost, w.saveBook, w.destroyBook, w.register, w.boards, w.boards, w.quotas, w.quotas, w.age, w.age, w.drains, w.planned, w.planned, w.planned, w.planned, w.planned,
	}
	return draws[w.draw("command", len(draws)-1)]()
}

// gather prefers the sessions that are open.
func (w *walker) gather() {
	w.people = slices.Clone(w.crowd)
	for _, who := range w.crowd {
		if w.model.sessions[id(who)] != nil {
			w.people = append(w.people, who, who, who)
		}
	}
}

// meeting draws a command that concerns the same object as an earlier command of its entry, under
// the same token.
func (w *walker) meeting(first *v1.Command) *v1.Command {
	job := ""
	switch kind := first.Kind.(type) {
	case *v1.Command_Intervene:
		if flow := w.model.flows[kind.Intervene.Flow]; flow != nil && flow.last != nil {
			job = flow.last.ID.String()
		}
	case *v1.Command_Change:
		job = kind.Change.Job
	case *v1.Command_Claim, *v1.Command_ClaimNext:
		return w.intervention()
	case *v1.Command_Abandon, *v1.Command_Consume, *v1.Command_CloseSession, *v1.Command_ExpireSession, *v1.Command_Post:
		return w.claimNext()
	}
	if job == "" {
		return w.next()
	}
	return claim(w.session(), job, fmt.Sprint("nonce of meeting ", w.index))
}

// intervention draws an intervention, usually in a failed or reverted flow that has a job.
func (w *walker) intervention() *v1.Command {
	c := w.author.intervention()
	var ended []string
	for flow, f := range w.model.flows {
		if f.last != nil && (f.State == logbook.FlowFailure || f.State == logbook.FlowReverted) {
			ended = append(ended, flow)
		}
	}
	slices.Sort(ended)
	if len(ended) > 0 && w.draw("any flow", 4) > 0 {
		c.GetIntervene().Flow = ended[w.draw("ended flow", len(ended)-1)]
		c.GetIntervene().Id = id(fmt.Sprint("said at ", w.index/4))
	}
	return c
}

// correction draws a retry or a purge, sometimes of a job whose key another job has now.
func (w *walker) correction() *v1.Command {
	c := w.author.correction()
	var taken []string
	for job, j := range w.model.jobs {
		if w.model.holder(j.Board, j.Key) != nil && j.State.Finished() && j.Outcome != jobs.OutcomeSuccess && j.Outcome != jobs.OutcomeCancelled {
			taken = append(taken, job)
		}
	}
	if slices.Sort(taken); len(taken) > 0 && w.draw("any job", 1) == 0 {
		return retry(&v1.JobCommand{Job: taken[w.draw("taken", len(taken)-1)]})
	}
	return c
}

// undo draws a cancel with revert, usually of a job whose flow may have started without a record.
func (w *walker) undo() *v1.Command {
	c := w.order()
	var begun []string
	for job, j := range w.model.jobs {
		if flow := w.model.flowOf(j); flow != nil && !flow.Begun.IsZero() && !j.State.Finished() {
			begun = append(begun, job)
		}
	}
	if slices.Sort(begun); len(begun) > 0 {
		return cancel(&v1.JobCommand{Job: begun[w.draw("begun", len(begun)-1)], Revert: true})
	}
	return c
}

// failed lets the work of a job fail, usually of a claimed one.
func (w *walker) failed() *v1.Command {
	job := w.held()
	if !job.Flow.IsZero() && job.State == jobs.StateClaimed {
		return w.failing(job)
	}
	return consume(&v1.Ending{Job: job.ID.String(), Token: command.TokenToProto(job.Token), Outcome: w.oneOf("outcome", "reverted", "failed")})
}

// again repeats a command as it was sent.
func (w *walker) again() *v1.Command {
	if len(w.sent) == 0 {
		return w.open()
	}
	return proto.Clone(w.sent[w.draw("which", len(w.sent)-1)]).(*v1.Command)
}

// step runs the next entry, of one command or two.
func (w *walker) step(most int) (done int) {
	w.index++
	w.now = w.now.Add(time.Duration(w.draw("passing", 3)) * 400 * time.Millisecond)
	var commands []*v1.Command
	w.gather()
	for n := range min(1+w.draw("more commands", 3)/3, most) {
		if n > 0 && w.draw("meeting", 1) == 0 {
			commands = append(commands, w.meeting(commands[0]))
			continue
		}
		commands = append(commands, w.next())
	}
	results, err := w.machine.Apply([]fsm.Entry{encodeEntry(w.T, w.index, w.now, commands...)})
	if err != nil {
		w.Fatal(err)
	}
	w.model.index, w.model.now = w.index, w.now
	before := w.states()
	for i, c := range commands {
		want, got := w.model.apply(c), answerText(results[0][i])
		w.said = append(w.said, fmt.Sprintf("%d at %s: %s → %s", w.index, ago(w.now), readable(c), names.Replace(got)))
		if got != want {
			w.Fatalf("the model says %q after\n%s", names.Replace(want), strings.Join(w.said, "\n"))
		}
		w.seen.answer(command.Name(c), results[0][i])
		w.sent = append(w.sent, c)
	}
	w.sent = w.sent[max(0, len(w.sent)-repeatable):]
	w.replace()
	w.compare()
	w.seen.move(before, w.states())
	w.seen.begun(w.model)
	return len(commands)
}

// replace opens a new session for each ended session, whose id cannot be used again. One ended
// session stays, to be refused.
func (w *walker) replace() {
	const present = 3
	for i, who := range w.crowd[:present] {
		if w.model.ended[id(who)] {
			w.came++
			w.crowd = append(w.crowd[:present], who)
			w.crowd[i] = person(w.came)
		}
	}
}

func person(n int) string { return fmt.Sprintf("person %03d", n) }

func (w *walker) states() map[string]jobs.State {
	states := map[string]jobs.State{}
	for job, j := range w.model.jobs {
		states[job] = j.State
	}
	return states
}

// compare compares the whole listing with the model, and checks the invariants of the machine.
func (w *walker) compare() {
	got, want := w.listing(), w.model.listing()
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			w.Fatalf("the model and the machine say\n%s\n%s\nafter\n%s", strings.Join(want[min(i, len(want)):], "\n"),
				strings.Join(got[min(i, len(got)):], "\n"), strings.Join(w.said, "\n"))
		}
	}
	w.findIDs()
	w.orders()
	if err := fsm.Verify(w.machine); err != nil {
		w.Fatalf("%v after\n%s", err, strings.Join(w.said, "\n"))
	}
	counted := map[jobs.State]uint64{}
	for _, state := range w.states() {
		counted[state]++
	}
	for state, n := range w.machine.Counts() {
		if counted[state] != n {
			w.Fatalf("%d jobs are counted as %s, and %d are, after\n%s", n, state, counted[state], strings.Join(w.said, "\n"))
		}
	}
}

// orders compares the other orders of the listing, in small pages.
func (w *walker) orders() {
	board := []string{"default", "other", "night"}[w.index%3]
	for order, want := range map[jobs.Order][]*modelJob{
		jobs.OrderNewest: w.model.list(func(j *modelJob) bool { return j.Board == board }, func(a, b *modelJob) int { return bySequence(b, a) }),
		jobs.OrderClaim:  w.model.list(func(j *modelJob) bool { return j.Board == board && j.State == jobs.StateClaimable && j.Reserved == nil }, w.model.inLine),
	} {
		query := jobs.Query{Board: board, Order: order, Limit: 1 + int(w.index%4)}
		var got, wanted []string
		for more := true; more; more = query.After != "" {
			page, err := w.machine.Jobs(query)
			if err != nil {
				w.Fatal(err)
			}
			for i := range page.Items {
				got = append(got, page.Items[i].Name)
			}
			query.After = page.Next
		}
		for _, j := range want {
			wanted = append(wanted, j.Name)
		}
		if !slices.Equal(got, wanted) {
			w.Fatalf("in the order %s, board %s has %q, and the model %q after\n%s", order, board, got, wanted, strings.Join(w.said, "\n"))
		}
	}
}

// findIDs searches ids of each noun by prefix, including removed ones.
func (w *walker) findIDs() {
	for noun, known := range map[jobs.IDNoun][]string{
		jobs.IDOfJob: slices.Sorted(maps.Keys(w.model.jobs)), jobs.IDOfBook: slices.Sorted(maps.Keys(w.model.books)),
		jobs.IDOfFlow: slices.Sorted(maps.Keys(w.model.flows)), jobs.IDOfSession: slices.Sorted(maps.Keys(w.model.sessions)),
	} {
		beginning := id(fmt.Sprint("job ", w.index%12))
		if len(known) > 0 && w.index%3 > 0 {
			beginning = known[int(w.index)%len(known)]
		}
		part := beginning[:jobs.MinIDPrefix+int(w.index)%(len(beginning)-jobs.MinIDPrefix+1)]
		if w.index%2 == 0 {
			part = beginning[int(w.index)%(len(beginning)-jobs.MinIDEnd):] // the end of the id
		}
		prefix, err := jobs.ParseIDPrefix(noun, part)
		if err != nil {
			w.Fatal(err)
		}
		var want, got []string
		for _, text := range known {
			digits := strings.ReplaceAll(text, "-", "")
			if strings.HasPrefix(digits, prefix.Digits) || len(prefix.Digits) >= jobs.MinIDEnd && strings.HasSuffix(digits, prefix.Digits) {
				want = append(want, text)
			}
		}
		found, err := w.machine.FindIDs(prefix, func(string, string) bool { return true })
		for _, id := range found.IDs {
			got = append(got, id.String())
		}
		if err != nil || !slices.Equal(got, want) || found.More {
			w.Fatalf("the %s ids that begin or end with %s are %v, more: %v, %v; the model has %v after\n%s",
				noun, prefix.Digits, got, found.More, err, want, strings.Join(w.said, "\n"))
		}
	}
}

// listing is the expected listing.
func (w *walker) listing() []string {
	page, err := w.machine.Jobs(jobs.Query{})
	if err != nil || page.Next != "" {
		w.Fatal(page.Next, err)
	}
	var lines []string
	for _, j := range page.Items {
		lines = append(lines, jobLine(j))
	}
	lines = append(lines, w.bookLines()...)
	lines = append(lines, w.boardLines()...)
	lines = append(lines, w.scheduleLines()...)
	lines = append(lines, w.quotaLines()...)
	return append(lines, w.sessionLines()...)
}

func (w *walker) bookLines() (lines []string) {
	books, err := w.machine.Books("", 0)
	if err != nil {
		w.Fatal(err)
	}
	for _, b := range slices.Backward(books.Items) { // the model has the oldest first
		lines = append(lines, fmt.Sprintf("book %s, made %s", b.Name, ago(b.CreatedAt)))
		whole, err := w.machine.Book(b.ID)
		if err != nil {
			w.Fatal(err)
		}
		for i := range whole.Flows {
			flow, _, err := w.machine.Flow(whole.Flows[i].ID, fsm.Part{MaxBytes: fsm.Unbounded})
			if err != nil {
				w.Fatal(err)
			}
			lines = append(lines, flowLine(&flow))
		}
	}
	return lines
}

func (w *walker) boardLines() (lines []string) {
	boards, err := w.machine.BoardList("", 0, w.now)
	if err != nil {
		w.Fatal(err)
	}
	for _, b := range boards.Items {
		status, err := w.machine.BoardStatus(b.Name, w.now)
		if err != nil {
			w.Fatal(err)
		}
		lines = append(lines, boardLine(status))
	}
	return lines
}

func (w *walker) sessionLines() (lines []string) {
	sessions, err := w.machine.Sessions()
	if err != nil {
		w.Fatal(err)
	}
	for _, s := range sessions {
		lines = append(lines, sessionLine(s))
	}
	entities, err := w.machine.Entities("")
	if err != nil {
		w.Fatal(err)
	}
	for _, e := range entities {
		lines = append(lines, entityLine(e))
	}
	slices.Sort(lines[len(sessions):])
	drains, err := w.machine.Drains()
	if err != nil {
		w.Fatal(err)
	}
	for i := range drains {
		lines = append(lines, drainLine(&drains[i]))
	}
	return lines
}

// boards draws a command about a board, and sometimes deletes a board that is usually empty.
func (w *walker) boards() *v1.Command {
	if w.draw("empty board", 5) == 0 {
		return &v1.Command{Kind: &v1.Command_DeleteBoard{DeleteBoard: &v1.BoardCommand{Board: "night"}}}
	}
	return w.author.boards()
}

// savedPost posts a job of a book that usually is saved, and usually has a free flow.
func (w *walker) savedPost() *v1.Command {
	number := w.draw("job", 11)
	p := &v1.Posting{Id: id(fmt.Sprint("saved ", number)), Name: fmt.Sprint("saved ", number), Board: w.oneOf("board", "", "other")}
	name := w.oneOf("book", "loose", "loose", "job 2", "job 4")
	p.BookId, p.Flow = id("book of "+name), w.oneOf("flow", "", id("flow of "+name), id("second flow of "+name))
	return post(p)
}

// saveBook saves a book of one or two flows.
func (w *walker) saveBook() *v1.Command {
	c := w.author.saveBook()
	if b := c.GetSaveBook(); w.draw("two flows", 2) == 0 {
		second := book("", "second flow of "+b.Name[len("book of "):]).Flows[0]
		b.Flows = append(b.Flows, second)
	}
	return c
}

// walkTime limits the walks, also on a busy machine; longWalkTime applies when all tests run.
const walkTime, longWalkTime = 5 * time.Second, 20 * time.Second

// TestBoardAgreesWithItsModel applies random walks of 200 commands to a model of the board in
// plain maps and to the machine. After each entry, both have given the same answers and list
// the same. It makes 100 walks if there is time, or the number in -rapid.checks.
func TestBoardAgreesWithItsModel(t *testing.T) {
	const length = 200
	checks := flag.Lookup("rapid.checks")
	bounded := checks.Value.String() == checks.DefValue
	openMachine := openMachines(t)
	seen := &coverage{answers: map[string]int{}, moves: map[string]int{}, slots: map[string]int{}}
	began, failed, limit := time.Now(), false, walkTime
	if longtest.All() {
		limit = longWalkTime
	}
	rapid.Check(t, func(t *rapid.T) {
		if bounded && !failed && time.Since(began) > limit {
			return
		}
		whole := false
		defer func() { failed = failed || !whole }() // a failing walk is shortened, even after the time
		w := &walker{author: author{T: t, machine: openMachine(t), now: start}, model: newModel(), seen: seen, came: 2}
		w.crowd = []string{person(0), person(1), person(2)}
		for done := 0; done < length; {
			done += w.step(length - done)
		}
		seen.end(w.model)
		whole = true
	})
	if !t.Failed() {
		seen.check(t, length)
	}
}

// What a hundred walks must have met many times: answers by command and code, verdicts on postings,
// and transitions between states.
var (
	wantedAnswers = []string{
		"age_board", "age_board not_found", "claim_next by age", "intervene over_limit", "the key of a finished job is taken",
		"abandon", "abandon conflict", "abandon fenced", "abandon not_found", "begin_leadership", "cancel", "cancel conflict",
		"change", "change conflict", "change not_found", "change over_limit", "claim", "claim not_found", "claim session_expired", "claim unclaimable", "claim_next",
		"claim_next session_expired", "close_session", "close_session session_expired", "consume", "consume fenced", "consume invalid",
		"expire_claim", "expire_claim fenced", "expire_session", "expire_session session_expired", "extend_claim", "extend_claim fenced", "expire_claim", "expire_claim conflict", "expire_claim fenced", "extend_claim", "extend_claim fenced",
		"intervene", "intervene conflict", "intervene not_found",
		"delete_quota", "delete_quota not_found", "save_quota", "open_session over_limit", "open_session conflict",
		"open_session", "open_session session_expired", "post", "posting", "posting conflict", "posting existed", "posting kept", "posting existed kept", "posting existed repeated",
		"backfill_schedule", "backfill_schedule conflict", "backfill_schedule invalid", "create_board", "delete_board", "delete_board conflict", "delete_board not_found",
		"delete_schedule", "drain_conductor", "drain_conductor not_found", "undrain_conductor", "undrain_conductor not_found", "destroy_book", "destroy_book conflict", "destroy_book not_found", "fire_schedule", "fire_schedule conflict", "limit_board", "limit_board not_found",
		"pause_board", "pause_board not_found", "pause_schedule", "posting invalid", "posting not_found", "posting over_limit", "register", "register session_expired",
		"resume_board", "resume_board not_found", "resume_schedule", "run_schedule", "save_book", "save_book conflict", "save_schedule",
		"purge", "purge conflict", "purge not_found", "retry", "retry conflict", "retry not_found", "resume", "resume conflict", "suspend", "suspend conflict", "transfer", "transfer conflict", "transfer not_found", "unreserve", "unreserve conflict", "retry_now", "retry_now conflict", "retry_now not_found", "signal", "signal taken", "signal kept", "signal repeated", "signal job_over", "signal not_found", "publish taken by 1", "publish taken by 2", "publish kept by 0", "publish repeated by 0", "publish repeated by 1", "publish nobody_waits", "publish not_found", "decide", "decide conflict", "decide not_found", "decide job_over", "override", "override conflict", "override not_found", "reminder", "sweep", "trash", "trash fenced",
		"update_flow", "update_flow conflict", "update_flow signalled", "update_flow fenced", "update_flow not_found", "wake_due",
	}
	// oftenAnswers are answers that every tenth walk must have on average.
	oftenAnswers = []string{"decide", "decide conflict", "decide job_over", "override", "override conflict", "reminder"}
	wantedSlots  = []string{
		"posted by schedule", "posted by run", "posted by backfill", "waiting by schedule", "waiting by backfill",
		"skipped by schedule a job of the schedule is not finished", "skipped by schedule replaced by a later slot",
		"skipped by schedule has the key", "skipped by schedule missed", "skipped by schedule the schedule was paused",
	}
	wantedMoves = []string{
		"nothing claimable", "nothing delayed", "nothing held", "claimable claimed", "claimable completed", "claimable delayed", "claimable suspended",
		"claimed claimable", "claimed completed", "claimed cooling", "claimed held", "claimed suspended", "claimed trashed", "claimed waiting", "completed claimable", "completed nothing",
		"cooling claimable", "delayed claimable", "delayed completed", "delayed suspended", "held claimable", "held completed", "held suspended",
		"suspended claimable", "suspended completed", "trashed claimable", "trashed nothing", "waiting claimable",
		"may have begun claimable", "may have begun claimable to be undone", "may have begun claimed to be undone", "may have begun completed",
		"may have begun cooling to be undone", "may have begun suspended", "may have begun trashed",
	}
)

// check compares the coverage of the walks with the required coverage.
func (c *coverage) check(t *testing.T, length int) {
	t.Helper()
	t.Logf("%d walks of %d commands", c.sequences, length)
	for _, part := range []struct {
		seen   map[string]int
		wanted []string
	}{{c.answers, wantedAnswers}, {c.moves, wantedMoves}, {c.slots, wantedSlots}} {
		for _, what := range slices.Sorted(maps.Keys(part.seen)) {
			t.Logf("%7d %s", part.seen[what], what)
		}
		const enough = 1_000 // fewer walks can miss a case by chance: 300 walks have missed "may have begun completed"
		for _, what := range part.wanted {
			if part.seen[what] == 0 && c.sequences >= enough {
				t.Errorf("no walk has come by %q", what)
			}
		}
	}
	const few = 50 // fewer walks can miss an answer by chance
	for _, what := range oftenAnswers {
		if c.sequences >= few && c.answers[what]*10 < c.sequences {
			t.Errorf("%d walks have come by %q %d times; draw its commands more often", c.sequences, what, c.answers[what])
		}
	}
}

// listing is the visible state, one line per object.
func (m *model) listing() []string {
	var lines []string
	for _, j := range m.list(func(*modelJob) bool { return true }, bySequence) {
		lines = append(lines, jobLine(j.Job))
	}
	lines = append(lines, m.bookLines()...)
	lines = append(lines, m.boardLines()...)
	lines = append(lines, m.scheduleLines()...)
	lines = append(lines, m.quotaLines()...)
	return append(lines, m.sessionLines()...)
}
