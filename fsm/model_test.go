package fsm_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/jobs/schedules"
	"github.com/conductord/conductord/logbook"
)

// model is the board as package jobs describes it, in plain Go: no tables, no indexes,
// no encoding. Every search goes through all jobs.
//
// It covers every command that a log can hold, and so everything that they make:
// postings of new and of saved books, with keys, front, priority, hold,
// times, deadlines, labels, tags and retry policies; claims, by job and next, with times of
// their own; their ends; orders, changes and bulk operations, which are one of
// these for each job; trash, restore and purge; books, flows, updates and
// interventions; boards with limits, pauses, ageing and what is counted of them; quotas;
// schedules with their slots; sessions, entities, drains, leaders, expiry,
// retention.
//
// Everything visible is compared line by line after each entry. Other tests hold events,
// records of errors, rates, how large values are cut, and bounds that a walk does not
// reach.
type model struct {
	index    uint64 // of the current entry
	now      time.Time
	epoch    uint64
	sequence uint64
	finishes uint64
	jobs     map[string]*modelJob
	books    map[string]*modelBook
	flows    map[string]*modelFlow
	boards   map[string]*modelBoard // stored boards
	sessions map[string]*modelSession
	entities map[string]*modelEntity
	drains   map[string]*jobs.Drain // by conductor name
	quotas   map[access.Subject]*modelQuota
	by       string // principal of the current command; for a slot, of its schedule
	slotOf   string // schedule of the slot that is being posted
	slot     time.Time

	schedules map[schedules.Ref]*modelSchedule
	vacated   []*modelSchedule // schedules whose last unfinished job the current command has finished

	published map[[4]string]string // first answers to publications: by board, topic, key and id
	kept      []modelKept          // in order

	keyed     map[[3]string]string     // job that received a signal by key: by board, key and id
	ended     map[string]bool          // ended sessions
	tokens    map[string]logbook.Token // the last token of each job and flow, and of each intervention in a flow
	taken     int                      // finished jobs that cannot be reopened because another job has their key
	aged      int                      // requests whose jobs were chosen by ageing
	reminders int                      // reminders of approvals whose time has come
}

type modelJob struct {
	jobs.Job // as listed
	posting  *v1.Posting
	nonce    string          // of the present claim
	ended    string          // how its last claim ended, and with what; empty: it has not
	cooled   time.Time       // until when it cools; zero: it does not
	waits    bool            // it cools because its flow waits
	changes  []*v1.Change    // that had an id
	gaveUp   bool            // an operator cancelled it while it was parked and half reverted
	watched  bool            // its deadline has not been dealt with
	finish   uint64          // the number of its finish
	signals  map[string]bool // ids that it has received
	unread   []modelSignal   // in order
	hurried  bool            // waits of its steps were ended during its claim
	lag      *int64          // the steps that its board had raised others by when it was claimable first; nil: not yet
}

type modelSession struct {
	name, principal string
	nonces          map[string]bool // of requests that got jobs
}

func newModel() *model {
	return &model{
		jobs: map[string]*modelJob{}, books: map[string]*modelBook{}, flows: map[string]*modelFlow{}, boards: map[string]*modelBoard{},
		sessions: map[string]*modelSession{}, entities: map[string]*modelEntity{}, drains: map[string]*jobs.Drain{}, schedules: map[schedules.Ref]*modelSchedule{},
		quotas: map[access.Subject]*modelQuota{},
		ended:  map[string]bool{}, tokens: map[string]logbook.Token{}, keyed: map[[3]string]string{},
	}
}

// apply applies a command to the model, and returns the answer as text.
func (m *model) apply(c *v1.Command) string {
	var said string
	var err error
	m.by = c.Principal
	switch kind := c.Kind.(type) {
	case *v1.Command_Post:
		said = m.post(kind.Post)
	case *v1.Command_Claim:
		said, err = m.claim(kind.Claim)
	case *v1.Command_ClaimNext:
		said, err = m.claimNext(kind.ClaimNext)
	case *v1.Command_Consume:
		err = m.end("consumed", kind.Consume)
	case *v1.Command_Abandon:
		err = m.end("abandoned", kind.Abandon)
	case *v1.Command_Trash:
		err = m.end("trashed", kind.Trash)
	case *v1.Command_OpenSession:
		said, err = m.open(kind.OpenSession)
	case *v1.Command_CloseSession:
		err = m.close(kind.CloseSession.Session)
	case *v1.Command_ExpireSession:
		err = m.expire(kind.ExpireSession)
	case *v1.Command_ExtendClaim:
		err = m.extend(kind.ExtendClaim)
	case *v1.Command_ExpireClaim:
		err = m.expireClaim(kind.ExpireClaim)
	case *v1.Command_UpdateFlow:
		err = m.update(kind.UpdateFlow)
	case *v1.Command_Transfer:
		err = m.transfer(kind.Transfer)
	case *v1.Command_Unreserve:
		err = m.unreserve(kind.Unreserve)
	case *v1.Command_RetryNow:
		err = m.retryNow(kind.RetryNow)
	case *v1.Command_Signal, *v1.Command_Publish, *v1.Command_Decide, *v1.Command_Override:
		said, err = m.hears(c)
	case *v1.Command_Suspend:
		err = m.suspend(kind.Suspend)
	case *v1.Command_Resume:
		err = m.resume(kind.Resume)
	case *v1.Command_Cancel:
		err = m.cancel(kind.Cancel)
	case *v1.Command_Change:
		err = m.change(kind.Change)
	case *v1.Command_Retry:
		err = m.retry(kind.Retry)
	case *v1.Command_Purge:
		err = m.purge(kind.Purge)
	case *v1.Command_Intervene:
		said, err = m.intervene(kind.Intervene)
	case *v1.Command_BeginLeadership:
		m.epoch = m.index
	case *v1.Command_WakeDue:
		said, err = m.wake(kind.WakeDue)
	case *v1.Command_Sweep:
		said, err = m.sweep(kind.Sweep)
	default:
		said, err = m.applyOther(c)
	}
	m.postWaiting()
	m.age()
	if err != nil {
		return command.ErrorToProto(err).GetCode()
	}
	return cmp.Or(said, "done")
}

// applyOther applies the commands that do not concern jobs.
func (m *model) applyOther(c *v1.Command) (said string, err error) {
	switch kind := c.Kind.(type) {
	case *v1.Command_Register:
		err = m.register(kind.Register)
	case *v1.Command_SaveBook:
		err = m.saveBook(kind.SaveBook)
	case *v1.Command_DestroyBook:
		err = m.destroyBook(kind.DestroyBook.Book)
	case *v1.Command_CreateBoard:
		m.stored(boardNamed(kind.CreateBoard.Board))
	case *v1.Command_LimitBoard:
		err = m.limitBoard(kind.LimitBoard)
	case *v1.Command_AgeBoard:
		err = m.ageBoard(kind.AgeBoard)
	case *v1.Command_PauseBoard:
		err = m.pauseBoard(kind.PauseBoard)
	case *v1.Command_ResumeBoard:
		err = m.resumeBoard(kind.ResumeBoard)
	case *v1.Command_DeleteBoard:
		err = m.deleteBoard(boardNamed(kind.DeleteBoard.Board))
	case *v1.Command_DrainConductor:
		err = m.drain(kind.DrainConductor)
	case *v1.Command_UndrainConductor:
		err = m.undrain(kind.UndrainConductor.Conductor)
	case *v1.Command_SaveQuota:
		m.saveQuota(kind.SaveQuota)
	case *v1.Command_DeleteQuota:
		err = m.deleteQuota(kind.DeleteQuota)
	case *v1.Command_SaveSchedule:
		said, err = m.saveSchedule(kind.SaveSchedule)
	case *v1.Command_DeleteSchedule:
		err = m.deleteSchedule(kind.DeleteSchedule)
	case *v1.Command_PauseSchedule:
		err = m.pauseSchedule(kind.PauseSchedule)
	case *v1.Command_ResumeSchedule:
		err = m.resumeSchedule(kind.ResumeSchedule)
	case *v1.Command_FireSchedule:
		err = m.fire(kind.FireSchedule)
	case *v1.Command_RunSchedule:
		said, err = m.runSchedule(kind.RunSchedule)
	case *v1.Command_BackfillSchedule:
		said, err = m.backfill(kind.BackfillSchedule)
	default:
		panic("internal error: the model does not know " + command.Name(c))
	}
	return said, err
}

func (m *model) token() logbook.Token { return logbook.Token{Generation: 1, Index: m.index} }

// Posting.

func (m *model) post(c *v1.PostCommand) string {
	var verdicts []string
	for _, p := range c.Postings {
		job, existed, signalled, err := m.postSignal(p)
		verdicts = append(verdicts, verdict(job, existed, signalled, command.ErrorToProto(err)))
	}
	return strings.Join(verdicts, ", ")
}

func verdict(job string, existed bool, signalled string, err *v1.Error) string {
	return strings.TrimSpace(fmt.Sprint(job, map[bool]string{true: " existed"}[existed], strings.TrimRight(" "+signalled, " "), " ", err.GetCode()))
}

func (m *model) postOne(p *v1.Posting) (job string, existed bool, err error) {
	if known := m.jobs[p.Id]; known != nil {
		if !proto.Equal(known.posting, p) {
			return p.Id, false, jobs.ErrConflict
		}
		return p.Id, true, nil
	}
	posting, err := command.PostingFromProto(p)
	if err != nil {
		panic(err)
	}
	posting.Board = boardNamed(posting.Board)
	if holder := m.holder(posting.Board, posting.Key); holder != nil && m.keyHolder(posting.Board, posting.Key, posting.Sends()) == holder {
		m.raise(holder, &posting)
		return holder.ID.String(), true, nil
	}
	work, err := m.planWork(p)
	if err != nil {
		return p.Id, false, err
	}
	if !posting.Deadline.IsZero() && !posting.Deadline.After(m.now) {
		return p.Id, false, jobs.ErrInvalid
	}
	if err := m.admit(posting.Board, uint64(proto.Size(p))); err != nil {
		return p.Id, false, err
	}
	m.sequence++
	posting.Deadline = m.deadlineOf(&posting)
	j := &modelJob{posting: p, watched: !posting.Deadline.IsZero(), Job: jobs.Job{
		ID: posting.ID, Board: posting.Board, Name: posting.Name, Kind: posting.Kind, Priority: posting.Priority,
		Sequence: m.sequence, NotBefore: posting.NotBefore, Held: posting.Hold, Key: posting.Key, Tags: posting.Tags,
		MaxCrashes: posting.MaxCrashes, Labels: slices.Sorted(slices.Values(posting.Labels)), Deadline: posting.Deadline,
		PostedAt: m.now, PostedBy: m.by, ModifiedAt: m.now, Retry: posting.Retry, Retention: posting.Retention, DeadlineAfter: posting.DeadlineAfter,
		Schedule: m.slotOf, Slot: m.slot,
	}}
	if posting.Front {
		j.Front = m.index
	}
	j.Size = uint64(proto.Size(p))
	m.attach(j, work)
	m.jobs[p.Id] = j
	m.place(j)
	return p.Id, false, nil
}

func (m *model) raise(j *modelJob, p *jobs.Posting) {
	higher, front := p.Priority > j.Priority, p.Front && j.Front == 0
	if higher {
		j.Priority = p.Priority
	}
	if front {
		j.Front = m.index
	}
	if higher || front {
		m.touch(j)
	}
}

// States of jobs.

func under(j *modelJob, kind jobs.RequestKind) bool {
	return j.StopRequest != nil && j.StopRequest.Kind == kind
}

// place sets the state of an unowned job by its stop request, its hold and its times.
func (m *model) place(j *modelJob) {
	j.ModifiedAt = m.now
	if !j.cooled.After(m.now) {
		j.cooled = time.Time{}
	}
	m.reserve(j)
	j.State, j.DueAt = jobs.StateCooling, j.cooled
	if j.waits {
		j.State = jobs.StateWaiting
	}
	if !under(j, jobs.RequestCancel) && !j.NotBefore.Before(j.cooled) {
		j.State, j.DueAt = jobs.StateDelayed, j.NotBefore
	}
	if !j.DueAt.After(m.now) {
		j.State, j.DueAt = jobs.StateClaimable, time.Time{}
	}
	switch {
	case under(j, jobs.RequestSuspend):
		j.State = jobs.StateSuspended
	case j.Held:
		j.State = jobs.StateHeld
	}
}

// touch applies the effects of a job's change.
func (m *model) touch(j *modelJob) {
	j.ModifiedAt = m.now
	if j.State != jobs.StateClaimed {
		m.place(j)
	}
}

// finish ends a job permanently.
func (m *model) finish(j *modelJob, state jobs.State) {
	m.finishes++
	j.State, j.DueAt, j.cooled, j.ModifiedAt, j.FinishedAt = state, time.Time{}, time.Time{}, m.now, m.now
	j.finish, j.watched = m.finishes, false
	if j.Reserved = nil; under(j, jobs.RequestTransfer) {
		j.StopRequest = nil
	}
	if flow := m.flowOf(j); flow != nil {
		flow.busy = nil
	}
	m.leaveSchedule(j)
}

// letGo ends the claim of a job, and leaves its next state to the caller.
func (m *model) letGo(j *modelJob, how string) {
	j.Claim, j.LastOwner, j.nonce, j.ended = nil, j.Claim.Owner, "", how
}

// mayHaveBegun notes that the flow of a job may have started under the claim that is about to end,
// if the flow has no record.
func (m *model) mayHaveBegun(j *modelJob) {
	if flow := m.flowOf(j); flow != nil && j.Claim.Begins && flow.Fence != j.Claim.Token && (flow.State == logbook.FlowPending || flow.State == logbook.FlowRunning) && flow.Begun.IsZero() {
		flow.Begun = j.Claim.Token
	}
}

// settle places a job that has lost its owner, or completes it.
func (m *model) settle(j *modelJob, delay time.Duration) {
	j.cooled, j.hurried = time.Time{}, false
	if delay > 0 {
		j.cooled = m.now.Add(delay)
	}
	if under(j, jobs.RequestCancel) && m.remains(j, j.StopRequest.Revert) == "nothing" {
		m.closeCancelled(j)
		return
	}
	m.place(j)
}

// remains is the remaining work of a job with a request to cancel.
func (m *model) remains(j *modelJob, revert bool) string {
	flow := m.flowOf(j)
	switch {
	case flow == nil:
	case flow.State == logbook.FlowSuccess, flow.State == logbook.FlowFailure:
		return "to consume"
	case revert && (len(flow.Atoms) > 0 || !flow.Begun.IsZero()) && flow.State != logbook.FlowReverted:
		return "to undo"
	}
	return "nothing"
}

func (m *model) closeCancelled(j *modelJob) {
	j.Outcome, j.Reason, j.gaveUp = jobs.OutcomeCancelled, j.StopRequest.Reason, true
	j.Held, j.Parked = j.Held && !j.Parked, false
	if flow := m.flowOf(j); flow != nil {
		switch {
		case flow.State == logbook.FlowRunning, flow.State == logbook.FlowReverting:
			flow.State = logbook.FlowSuspended
		case flow.State == logbook.FlowFailure:
			j.Outcome = jobs.OutcomeFailed
		}
		if len(flow.Pending()) > 0 {
			m.takeBack(flow)
		}
	}
	m.finish(j, jobs.StateCompleted)
}

func (m *model) takeBack(flow *modelFlow) {
	flow.Interventions = append(slices.Clone(flow.Interventions), logbook.Intervention{Kind: logbook.InterveneTakeBack, Token: m.token()})
	m.said(flow)
}

// Claims.

func (m *model) overdue(j *modelJob) bool { return j.watched && !j.Deadline.After(m.now) }

func (m *model) claim(c *v1.ClaimCommand) (string, error) {
	s, j := m.sessions[c.Session], m.jobs[c.Job]
	switch {
	case s == nil:
		return "", jobs.ErrSessionExpired
	case j == nil:
		return "", jobs.ErrNotFound
	case j.Claim != nil && j.Claim.Session.String() == c.Session && j.nonce == c.Nonce:
		return grants(j), nil
	case s.nonces[c.Nonce], j.State != jobs.StateClaimable, m.drained(c.Session), m.paused(j.Board), m.overdue(j), m.isSpent(j), !m.mayTake(j, c.Session):
		return "", jobs.ErrUnclaimable
	}
	m.grant(c.Session, c.Nonce, 0, false, j)
	return grants(j), nil
}

func (m *model) claimNext(c *v1.ClaimNextCommand) (string, error) {
	s := m.sessions[c.Session]
	if s == nil {
		return "", jobs.ErrSessionExpired
	}
	if s.nonces[c.Nonce] {
		held := m.list(func(j *modelJob) bool {
			return j.Claim != nil && j.Claim.Session.String() == c.Session && j.nonce == c.Nonce
		}, bySequence)
		if len(held) == 0 {
			return "", jobs.ErrUnclaimable
		}
		return grants(held...), nil
	}
	if m.drained(c.Session) {
		return "", nil
	}
	boards := c.Boards
	if len(boards) == 0 {
		boards = []string{jobs.DefaultBoard}
	}
	found := m.list(func(j *modelJob) bool {
		lacks := slices.ContainsFunc(j.Labels, func(label string) bool { return !slices.Contains(c.Labels, label) })
		return j.State == jobs.StateClaimable && !lacks && !m.paused(j.Board) && slices.Contains(boards, j.Board) &&
			(len(c.Kinds) == 0 || slices.Contains(c.Kinds, j.Kind)) && !m.overdue(j) && !m.isSpent(j)
	}, m.inLine)
	reserved := slices.DeleteFunc(slices.Clone(found), func(j *modelJob) bool { return j.Reserved == nil || !m.mayTake(j, c.Session) })
	found = slices.DeleteFunc(found, func(j *modelJob) bool { return j.Reserved != nil })
	if len(reserved) > 0 {
		found = []*modelJob{slices.MinFunc(reserved, byReservation)}
	}
	most := min(len(found), max(int(c.Max), 1))
	if unaged := slices.SortedFunc(slices.Values(found), inLine); !slices.Equal(unaged[:most], found[:most]) {
		m.aged++
	}
	found = found[:most]
	m.grant(c.Session, c.Nonce, c.Expiry.AsDuration(), c.Begins, found...)
	return grants(found...), nil
}

// isSpent reports whether a job cannot be claimed in the current entry, because an owner of the job
// or its flow, or an intervention in the flow, already has the entry's token.
func (m *model) isSpent(j *modelJob) bool {
	return m.tokens[j.ID.String()] == m.token() || m.isOwned(j) || m.tokens["said of "+j.Flow.String()] == m.token()
}

// isOwned reports whether the flow of a job has been claimed in the current entry.
func (m *model) isOwned(j *modelJob) bool {
	return !j.Flow.IsZero() && m.tokens[j.Flow.String()] == m.token()
}

// said notes that the current entry contains an intervention in a flow.
func (m *model) said(flow *modelFlow) { m.tokens["said of "+flow.ID.String()] = m.token() }

// inLine is the claim order on boards without ageing.
func inLine(a, b *modelJob) int {
	return cmp.Or(-cmp.Compare(a.Priority, b.Priority), -cmp.Compare(a.Front, b.Front), cmp.Compare(a.Sequence, b.Sequence))
}

func bySequence(a, b *modelJob) int { return cmp.Compare(a.Sequence, b.Sequence) }

// list returns the matching jobs, in an order.
func (m *model) list(meant func(*modelJob) bool, order func(a, b *modelJob) int) []*modelJob {
	var found []*modelJob
	for _, j := range m.jobs {
		if meant(j) {
			found = append(found, j)
		}
	}
	slices.SortFunc(found, order)
	return found
}

// grants is the answer that names the claimed jobs.
func grants(found ...*modelJob) string {
	var said []string
	for _, j := range found {
		said = append(said, fmt.Sprint(j.ID, " under ", j.Token))
	}
	return strings.Join(said, ", ")
}

func (m *model) grant(session, nonce string, expiry time.Duration, begins bool, found ...*modelJob) {
	s := m.sessions[session]
	for _, j := range found {
		if last := m.tokens[j.ID.String()]; m.token().Compare(last) <= 0 {
			panic(fmt.Sprintf("internal error: job %s gets token %s after %s", j.ID, m.token(), last))
		}
		if last := m.tokens[j.Flow.String()]; !j.Flow.IsZero() && m.token().Compare(last) <= 0 {
			panic(fmt.Sprintf("internal error: flow %s gets token %s after %s", j.Flow, m.token(), last))
		}
		m.tokens[j.ID.String()], m.tokens[j.Flow.String()] = m.token(), m.token()
		j.Claim = &jobs.Claim{Session: parsedSession(session), Owner: s.name, Token: m.token(), Since: m.now, Expiry: expiry, Begins: begins}
		j.Token, j.nonce, j.ended = m.token(), nonce, ""
		j.Reserved, j.waits = nil, false
		j.State, j.DueAt, j.cooled, j.ModifiedAt = jobs.StateClaimed, time.Time{}, time.Time{}, m.now
		j.Claims++
		if j.StartedAt.IsZero() {
			j.StartedAt = m.now
		}
		s.nonces[nonce] = true
	}
}

// end is the end of a claim by its owner.
func (m *model) end(how string, c *v1.Ending) error {
	j, token, full := m.jobs[c.Job], command.TokenFromProto(c.Token), how+c.GetOutcome()
	switch {
	case j == nil:
		return jobs.ErrNotFound
	case j.Claim == nil && j.Token == token && (j.ended == full || c.GetAgain() != nil && j.ended == "continued"):
		return nil
	case j.Claim == nil || j.Claim.Token != token:
		return jobs.ErrFenced
	}
	flow := m.flowOf(j)
	after := flow
	if u := c.Update; u != nil {
		var err error
		if after, err = m.planEnding(j, flow, token, u); err != nil {
			return err
		}
	}
	if how == "consumed" {
		if err := outcomeFits(j, after, c); err != nil {
			return err
		}
		if next, due := m.goesOn(j, after, c); next != "" {
			if next == jobs.FailureRetries && flow != nil && m.isOwned(j) {
				return jobs.ErrConflict
			}
			if flow != nil {
				m.adopt(flow, after)
			}
			j.Failure = command.FailureFromProto(c.Failure)
			m.tryAgain(j, flow, c.Outcome, next, due)
			return nil
		}
		if c.Again != nil && !under(j, jobs.RequestCancel) {
			return m.beginIteration(j, flow, after, c)
		}
		if j.Outcome = jobs.Outcome(c.Outcome); j.Retry != nil && (j.Outcome == jobs.OutcomeReverted || j.Outcome == jobs.OutcomeFailed) {
			j.Attempts++
		}
	}
	if flow != nil {
		m.adopt(flow, after)
	}
	delay := c.GetDelay().AsDuration()
	if under(j, jobs.RequestCancel) && j.StopRequest.Revert && !j.StopRequest.At.Before(j.Claim.Since) {
		delay = 0 // its owner may not have known of the request to revert
	} else if j.hurried {
		delay = 0
	}
	if !c.GetRecorded() {
		m.mayHaveBegun(j)
	}
	m.letGo(j, full)
	j.Reason, j.Failure, j.waits = c.GetReason(), command.FailureFromProto(c.Failure), c.GetWaits()
	switch how {
	case "consumed":
		if (j.Outcome == jobs.OutcomeCancelled || c.Again != nil) && j.Reason == "" {
			j.Reason = j.StopRequest.Reason
		}
		m.finish(j, jobs.StateCompleted)
	case "trashed":
		m.finish(j, jobs.StateTrashed)
	case "abandoned":
		if j.Failure != nil {
			j.Failures++
		}
		m.settle(j, delay)
	}
	return nil
}

func (m *model) planEnding(j *modelJob, flow *modelFlow, token logbook.Token, u *v1.Update) (*modelFlow, error) {
	if flow == nil || u.Flow != j.Flow.String() {
		return nil, jobs.ErrInvalid
	}
	if command.TokenFromProto(u.Token) != token {
		return nil, jobs.ErrFenced
	}
	return m.advanced(flow, u)
}

// outcomeFits returns an error unless the job may end in this way.
func outcomeFits(j *modelJob, flow *modelFlow, c *v1.Ending) error {
	outcome := jobs.Outcome(c.Outcome)
	unrecorded := flow != nil && flow.Sequence == 0 && (!flow.Begun.IsZero() || j.Claim.Begins && !c.Recorded)
	fits := map[jobs.Outcome][]logbook.FlowState{
		jobs.OutcomeSuccess: {logbook.FlowSuccess}, jobs.OutcomeReverted: {logbook.FlowReverted}, jobs.OutcomeFailed: {logbook.FlowFailure},
		jobs.OutcomeCancelled: {logbook.FlowReverted, logbook.FlowSuspended, logbook.FlowPending},
	}
	uncalled := !under(j, jobs.RequestCancel) || unrecorded && j.StopRequest.Revert
	if outcome == jobs.OutcomeCancelled && uncalled || flow != nil && !slices.Contains(fits[outcome], flow.State) {
		return jobs.ErrInvalid
	}
	return nil
}

// Flows. Package logbook decides the effect of an update.

func (m *model) update(u *v1.Update) error {
	flow, token := m.flows[u.Flow], command.TokenFromProto(u.Token)
	if flow == nil {
		return jobs.ErrNotFound
	}
	update, err := command.UpdateFromProto(u)
	if err != nil {
		panic(err)
	}
	if verdict, err := flow.Judge(&update); flow.Fence == token && err == nil && verdict == logbook.Repeat {
		return nil
	}
	owned := flow.busy != nil && flow.busy.Claim != nil && flow.busy.Claim.Token == token
	if free := flow.busy == nil && token.IsZero(); !owned && !free {
		return jobs.ErrFenced
	}
	after, err := m.advanced(flow, u)
	if err == nil {
		m.adopt(flow, after)
	}
	return err
}

// definition finds the definition with an id; nil if no flow has it.
func (m *model) definition(id command.DefinitionID) *logbook.Definition {
	for _, flow := range m.flows {
		if flow.Definition != nil && command.DefinitionIDOf(flow.Definition) == id {
			return flow.Definition
		}
	}
	return nil
}

// advanced is the flow after an update.
func (m *model) advanced(flow *modelFlow, u *v1.Update) (*modelFlow, error) {
	update, err := command.UpdateFromProto(u)
	if err != nil {
		panic(err)
	}
	after := *flow
	after.changed = nil
	verdict, err := after.Judge(&update)
	if err != nil || verdict == logbook.Repeat {
		return &after, err
	}
	if id, err := command.ParseDefinitionID(u.DefinitionId); err != nil {
		return nil, err
	} else if !id.IsZero() {
		if update.Definition = m.definition(id); update.Definition == nil {
			return nil, logbook.ErrInvalid
		}
	}
	if err := after.Advance(&update, m.now); err != nil {
		return nil, err
	}
	after.Atoms = slices.Clone(after.Atoms)
	for i := range after.Atoms {
		after.Atoms[i].Attempts = slices.Clone(after.Atoms[i].Attempts)
	}
	for i := range update.Atoms {
		change := &update.Atoms[i]
		atom, found := after.Atom(change.Name)
		if !found {
			if change.Kind == "" {
				return nil, jobs.ErrInvalid
			}
			after.Atoms = append(after.Atoms, logbook.NewAtom(change.Name, change.Kind))
			atom = &after.Atoms[len(after.Atoms)-1]
		}
		if err := joinWaits(atom, change); err != nil {
			return nil, err
		}
		if err := atom.Advance(change); err != nil {
			return nil, err
		}
		after.changed = append(after.changed, change.Name)
	}
	return &after, nil
}

func (m *model) intervene(c *v1.Intervention) (string, error) {
	intervention, err := command.InterventionFromProto(c)
	if err != nil {
		return "", err
	}
	flow := m.flows[c.Flow]
	if flow == nil {
		return "", jobs.ErrNotFound
	}
	job := ""
	if flow.last != nil && m.jobs[flow.last.ID.String()] == flow.last {
		job = flow.last.ID.String()
	}
	switch repeated, err := flow.Admit(&intervention); {
	case err != nil:
		return "", err
	case repeated:
		return job, nil
	case flow.last == nil:
		return "", jobs.ErrConflict
	case job == "": // the job is no longer stored
		return "", jobs.ErrNotFound
	case flow.last.Claim != nil, m.isOwned(flow.last):
		return "", jobs.ErrConflict
	}
	intervention.At, intervention.Token = m.now, m.token()
	j, released := flow.last, flow.Resumable()
	all := append(slices.Clone(flow.Interventions), intervention)
	if opens := intervention.Kind != logbook.InterveneTakeBack && !intervention.Hold; opens && j.State.Finished() {
		if err := m.roomAgain(j, m.onlyUndone(j, flow, all)); err != nil {
			return "", err
		}
	}
	flow.Interventions = all
	m.said(flow)
	switch back := intervention.Kind == logbook.InterveneTakeBack; {
	case back && released && !j.State.Finished() && !flow.Resumable():
		j.gaveUp = true
		if j.Outcome = jobs.OutcomeFailed; flow.State == logbook.FlowReverted {
			j.Outcome = jobs.OutcomeReverted
		}
		j.Reason = strings.TrimSpace(string(intervention.Kind) + " " + intervention.Step)
		m.finish(j, jobs.StateCompleted)
	case !back && !intervention.Hold:
		m.steer(j, flow)
	}
	return job, nil
}

// onlyUndone reports whether a cancelled job is only reverted further after all the given
// interventions in its flow.
func (m *model) onlyUndone(j *modelJob, flow *modelFlow, all []logbook.Intervention) bool {
	said := logbook.FlowDetail{Fence: flow.Fence, Interventions: all}
	return under(j, jobs.RequestCancel) && j.StopRequest.Revert && !logbook.Forwards(said.Pending())
}

// steer applies the interventions in a job's flow.
func (m *model) steer(j *modelJob, flow *modelFlow) {
	if j.State != jobs.StateSuspended && !m.onlyUndone(j, flow, flow.Interventions) {
		if under(j, jobs.RequestCancel) && j.NotBefore.After(m.now) {
			j.NotBefore = time.Time{}
		}
		j.StopRequest = nil
	}
	j.ModifiedAt = m.now
	parked := j.Parked && j.State == jobs.StateHeld
	if j.Parked {
		j.unpark()
		j.ended = ""
	}
	if !j.State.Finished() && !parked {
		return
	}
	m.reopen(j)
	flow.busy = j
	if j.NotBefore.After(m.now) {
		j.NotBefore = time.Time{}
	}
	j.State, j.DueAt, j.cooled, j.ended = jobs.StateClaimable, time.Time{}, time.Time{}, ""
}

// reopen makes a finished job unfinished.
func (m *model) reopen(j *modelJob) {
	j.gaveUp = false
	m.ageAnew(j)
	j.Outcome, j.Reason, j.Failure, j.Crashes, j.Failures, j.Attempts, j.StartedAt, j.FinishedAt = "", "", nil, 0, 0, 0, time.Time{}, time.Time{}
}

func (m *model) restore(j *modelJob) error {
	flow := m.flowOf(j)
	if !j.Flow.IsZero() && (flow == nil || flow.busy != nil || !m.ownBook(j)) {
		return jobs.ErrConflict
	}
	if err := m.roomAgain(j, under(j, jobs.RequestCancel)); err != nil {
		return err
	}
	m.reopen(j)
	if strings.HasPrefix(j.ended, "consumed") {
		j.ended = "" // its outcome is gone, so a repeat of that ending is not recognised
	}
	if under(j, jobs.RequestSuspend) {
		j.StopRequest = nil
	}
	if flow != nil {
		flow.busy, flow.last = j, j
		m.moveSubscriptions(j, false)
	}
	m.settle(j, 0)
	j.watched = !j.State.Finished() && j.Deadline.After(m.now)
	return nil
}

func (m *model) purge(c *v1.JobCommand) error {
	j, _, err := m.ordered(c, jobs.RequestPurge)
	switch {
	case err != nil:
		return err
	case !j.State.Finished():
		return jobs.ErrConflict
	}
	m.forget(j)
	return nil
}

func (m *model) forget(j *modelJob) {
	delete(m.jobs, j.ID.String())
	m.forgetSignals(j)
	used := slices.ContainsFunc(slices.Collect(maps.Values(m.jobs)), func(other *modelJob) bool { return other.Book == j.Book })
	if !j.Book.IsZero() && !used && m.ownBook(j) {
		m.removeBook(j.Book.String())
	}
}

// Stop requests and changes.

func (m *model) ordered(c *v1.JobCommand, kind jobs.RequestKind) (*modelJob, *jobs.OperatorRequest, error) {
	order := &jobs.OperatorRequest{Kind: kind, Revert: c.Revert, By: c.By, Reason: c.Reason, At: m.now}
	if m.jobs[c.Job] == nil {
		return nil, nil, jobs.ErrNotFound
	}
	return m.jobs[c.Job], order, nil
}

func (m *model) suspend(c *v1.JobCommand) error {
	j, order, err := m.ordered(c, jobs.RequestSuspend)
	switch {
	case err != nil:
		return err
	case j.State.Finished(), under(j, jobs.RequestCancel):
		return jobs.ErrConflict
	case under(j, jobs.RequestSuspend):
		return nil
	}
	j.StopRequest, j.ModifiedAt = order, m.now
	m.touch(j)
	return nil
}

func (m *model) resume(c *v1.JobCommand) error {
	j, _, err := m.ordered(c, jobs.RequestResume)
	switch {
	case err != nil:
		return err
	case j.State.Finished(), under(j, jobs.RequestCancel):
		return jobs.ErrConflict
	case under(j, jobs.RequestSuspend):
		j.StopRequest = nil
		m.touch(j)
	}
	return nil
}

func (m *model) cancel(c *v1.JobCommand) error {
	j, order, err := m.ordered(c, jobs.RequestCancel)
	if err != nil {
		return err
	}
	again := under(j, jobs.RequestCancel) && j.StopRequest.Revert == order.Revert
	switch {
	case again && (!j.State.Finished() || j.Outcome == jobs.OutcomeCancelled || j.gaveUp):
		return nil
	case j.State.Finished():
		return jobs.ErrConflict
	case j.Parked && m.remains(j, order.Revert) == "to consume":
		j.StopRequest, j.Outcome, j.Held, j.Parked, j.gaveUp = order, jobs.OutcomeFailed, false, false, true
		if flow := m.flowOf(j); len(flow.Pending()) > 0 {
			m.takeBack(flow)
		}
		m.finish(j, jobs.StateCompleted)
		return nil
	}
	return m.carryOut(j, order)
}

// carryOut cancels a job: at once, by its owner, or by the next owner.
func (m *model) carryOut(j *modelJob, order *jobs.OperatorRequest) error {
	remains := m.remains(j, order.Revert)
	switch {
	case j.State == jobs.StateClaimed:
		j.StopRequest, j.ModifiedAt = order, m.now
	case remains == "to consume" && !m.reopened(j):
		return jobs.ErrConflict
	case remains == "to consume" && order.Revert && !logbook.Forwards(m.flowOf(j).Pending()):
		m.haveUndone(j, order)
	case remains == "nothing", remains == "to consume":
		j.StopRequest = order
		m.closeCancelled(j)
	default:
		m.haveUndone(j, order)
	}
	return nil
}

func (m *model) haveUndone(j *modelJob, order *jobs.OperatorRequest) {
	if j.ended != "lost" {
		j.cooled = time.Time{}
	}
	j.StopRequest, j.Held = order, false
	m.place(j)
}

// reopened reports whether the interventions in a job's flow reopen the job.
func (m *model) reopened(j *modelJob) bool {
	return m.flowOf(j).Resumable()
}

// Time.

func (m *model) wake(c *v1.WakeDueCommand) (string, error) {
	if c.TimerEpoch != m.epoch {
		return "", jobs.ErrConflict
	}
	late := m.list(m.overdue, func(a, b *modelJob) int { return cmp.Or(a.Deadline.Compare(b.Deadline), bySequence(a, b)) })
	most := int(c.Max)
	more := len(late) > most
	late = late[:min(len(late), most)]
	for _, j := range late {
		j.watched = false
		if !under(j, jobs.RequestCancel) {
			// A job whose flow has ended is left for its owner to consume.
			_ = m.carryOut(j, &jobs.OperatorRequest{Kind: jobs.RequestCancel, Revert: true, By: jobs.ByDeadline, Reason: "late", At: m.now})
		}
	}
	due := m.list(func(j *modelJob) bool {
		at := wakeAt(j)
		return !at.IsZero() && !at.After(m.now)
	}, func(a, b *modelJob) int { return cmp.Or(wakeAt(a).Compare(wakeAt(b)), bySequence(a, b)) })
	most -= len(late)
	more = more || len(due) > most
	due = due[:min(len(due), most)]
	for _, j := range due {
		j.State, j.DueAt, j.cooled, j.ModifiedAt = jobs.StateClaimable, time.Time{}, time.Time{}, m.now
		m.reserve(j)
	}
	reminded, moreReminders := m.remind(most - len(due))
	expired, moreKept := m.expireKept(most - len(due) - reminded)
	return count(len(late)+len(due)+reminded+expired, more || moreReminders || moreKept), nil
}

func count(done int, more bool) string { return fmt.Sprint(done, " jobs, more: ", more) }

func (m *model) sweep(c *v1.SweepCommand) (string, error) {
	if c.TimerEpoch != m.epoch {
		return "", jobs.ErrConflict
	}
	done, more := 0, false
	for _, kind := range []string{"done", "stuck", "own"} { // each state is counted separately
		finished := m.list(func(j *modelJob) bool { return j.State.Finished() && kind == j.keptAs() }, func(a, b *modelJob) int {
			if kind == "own" {
				return cmp.Or(a.keptUntil().Compare(b.keptUntil()), bySequence(a, b))
			}
			return cmp.Compare(a.finish, b.finish)
		})
		for n, j := range finished {
			young := m.now.Sub(j.FinishedAt) <= c.MaxAge.AsDuration()
			if kind == "own" {
				young = !j.keptUntil().Before(m.now)
			}
			if len(finished)-n <= int(c.Keep) && young {
				break
			}
			if more = more || done >= int(c.Max); more {
				break
			}
			done++
			m.forget(j)
		}
	}
	return count(done, more), nil
}
