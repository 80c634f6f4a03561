package command

import (
	"fmt"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/logbook"
)

// AtomDetailToProto converts an atom and its attempts; nil stays nil.
func AtomDetailToProto(a *logbook.AtomDetail) *v1.AtomDetail {
	if a == nil {
		return nil
	}
	message := new(v1.AtomDetail)
	FillAtomDetail(message, a)
	return message
}

// FillAtomDetail makes a message that was used for something else, with all in it, that of an atom.
func FillAtomDetail(message *v1.AtomDetail, a *logbook.AtomDetail) {
	*message = v1.AtomDetail{
		Name:      a.Name,
		Kind:      string(a.Kind),
		Version:   a.Version,
		State:     string(a.State),
		Intention: string(a.Intention),
		RetryAt:   TimeInto(message.RetryAt, a.RetryAt),
		Attempts:  attemptsInto(message.Attempts, a.Attempts),
		Progress:  progressToProto(a.Progress),
		Folded:    foldedToProto(a.Folded),
	}
}

// AtomDetailFromProto converts an atom and its attempts. Nil is the zero atom.
func AtomDetailFromProto(message *v1.AtomDetail) (logbook.AtomDetail, error) {
	var r reader
	a := logbook.AtomDetail{
		Name:      message.GetName(),
		Kind:      word(&r, "atom kind", message.GetKind(), knownAtomKind),
		Version:   message.GetVersion(),
		State:     word(&r, "atom state", message.GetState(), knownAtomState),
		Intention: word(&r, "atom intention", message.GetIntention(), knownIntention),
		RetryAt:   r.time("atom retry_at", message.GetRetryAt()),
		Attempts:  r.attempts(message.GetAttempts()),
		Progress:  r.progress(message.GetProgress()),
		Folded:    r.folded(message.GetFolded()),
	}
	if r.err != nil {
		return logbook.AtomDetail{}, inAtom(message.GetName(), r.err)
	}
	return a, nil
}

// AttemptToProto converts an attempt; nil stays nil.
func AttemptToProto(a *logbook.Attempt) *v1.Attempt {
	if a == nil {
		return nil
	}
	message := new(v1.Attempt)
	FillAttempt(message, a)
	return message
}

// FillAttempt makes a message that was used for something else, with all in it, that of an attempt.
func FillAttempt(message *v1.Attempt, a *logbook.Attempt) {
	*message = v1.Attempt{
		Action:          string(a.Action),
		Number:          countOf(a.Number),
		Token:           TokenInto(message.Token, a.Token),
		Owner:           a.Owner,
		StartedAt:       TimeInto(message.StartedAt, a.StartedAt),
		EndedAt:         TimeInto(message.EndedAt, a.EndedAt),
		Result:          ValueToProto(a.Result),
		Failure:         FailureToProto(a.Failure),
		Stderr:          text(a.Stderr),
		StderrTruncated: a.StderrTruncated,
		Failures:        failuresToProto(a.Failures),
		Asked:           countOf(a.Asked),
		Shortened:       a.Shortened,
		Offered:         a.Offered,
		Worker:          a.Worker,
		WorkerName:      a.WorkerName,
		Unbegun:         a.Unbegun,
	}
}

// AttemptFromProto converts an attempt. Nil is the zero attempt.
func AttemptFromProto(message *v1.Attempt) (logbook.Attempt, error) {
	var r reader
	a := logbook.Attempt{
		Action:          word(&r, "attempt action", message.GetAction(), knownAction),
		Number:          r.count("attempt number", message.GetNumber()),
		Token:           TokenFromProto(message.GetToken()),
		Owner:           message.GetOwner(),
		StartedAt:       r.time("attempt started_at", message.GetStartedAt()),
		EndedAt:         r.time("attempt ended_at", message.GetEndedAt()),
		Result:          ValueFromProto(message.GetResult()),
		Failure:         FailureFromProto(message.GetFailure()),
		Stderr:          message.GetStderr(),
		StderrTruncated: message.GetStderrTruncated(),
		Failures:        failuresFromProto(message.GetFailures()),
		Asked:           r.count("attempt asked", message.GetAsked()),
		Shortened:       message.GetShortened(),
		Offered:         message.GetOffered(),
		Worker:          message.GetWorker(),
		WorkerName:      message.GetWorkerName(),
		Unbegun:         message.GetUnbegun(),
	}
	if r.err != nil {
		return logbook.Attempt{}, r.err
	}
	return a, nil
}

func foldedToProto(f logbook.Folded) *v1.Folded {
	if f.Len() == 0 {
		return nil
	}
	return &v1.Folded{
		Executions: countOf(f.Executions), Reverts: countOf(f.Reverts), Resets: countOf(f.Resets), Rounds: countOf(f.Rounds), Undone: f.Undone,
	}
}

func (r *reader) folded(message *v1.Folded) logbook.Folded {
	return logbook.Folded{
		Executions: r.count("folded executions", message.GetExecutions()), Reverts: r.count("folded reverts", message.GetReverts()),
		Resets: r.count("folded resets", message.GetResets()), Rounds: r.count("folded rounds", message.GetRounds()), Undone: message.GetUndone(),
	}
}

func progressToProto(p *logbook.Progress) *v1.Progress {
	if p == nil {
		return nil
	}
	return &v1.Progress{Done: p.Done, Total: p.Total, Details: ValueToProto(p.Details), At: TimeToProto(p.At)}
}

func (r *reader) progress(message *v1.Progress) *logbook.Progress {
	if message == nil {
		return nil
	}
	return &logbook.Progress{
		Done: message.GetDone(), Total: message.GetTotal(),
		Details: ValueFromProto(message.GetDetails()), At: r.time("progress at", message.GetAt()),
	}
}

// attemptsInto fills the given messages first, and adds what is missing.
func attemptsInto(messages []*v1.Attempt, attempts []logbook.Attempt) []*v1.Attempt {
	messages = messages[:min(len(messages), len(attempts))]
	for i := range attempts {
		if i == len(messages) {
			messages = append(messages, new(v1.Attempt))
		}
		FillAttempt(messages[i], &attempts[i])
	}
	return messages
}

func (r *reader) attempts(messages []*v1.Attempt) []logbook.Attempt {
	if len(messages) == 0 {
		return nil
	}
	attempts := make([]logbook.Attempt, 0, len(messages))
	for _, message := range messages {
		converted, err := AttemptFromProto(message)
		attempts = append(attempts, keep(r, converted, err))
	}
	return attempts
}

// inAtom says in which of perhaps thousands of atoms the fault is.
func inAtom(name string, err error) error { return fmt.Errorf("atom %.64q: %w", name, err) }

func knownAtomKind(k logbook.AtomKind) bool { return k.Known() }

// knownAtomState asks the table of transitions, as knownFlowState does.
func knownAtomState(s logbook.AtomState) bool { return s.Move(s) == nil }

func knownIntention(i logbook.Intention) bool {
	switch i {
	case logbook.IntendExecute, logbook.IntendRevert, logbook.IntendRetry, logbook.IntendIgnore:
		return true
	}
	return false
}

func knownAction(a logbook.Action) bool { return a.Known() }
