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

// FillAtomDetail fills a reused message, with all its parts, with an atom.
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
		Folded:    foldedToProto(&a.Folded),

		Checkpoints: checkpointsToProto(a.Checkpoints),
	}
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

// FillAttempt fills a reused message, with all its parts, with an attempt.
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
		Wait:            WaitToProto(a.Wait),
		Sends:           sendsToProto(a.Sends),
	}
}

func sendsToProto(sends []logbook.Sending) []*v1.Sending {
	var messages []*v1.Sending
	for i := range sends {
		messages = append(messages, SendingToProto(&sends[i]))
	}
	return messages
}

// attemptsInto fills the given messages first, and adds the missing messages.
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

// inAtom adds the name of the faulty atom to an error, because a flow can have thousands of atoms.
func inAtom(name string, err error) error { return fmt.Errorf("atom %.64q: %w", name, err) }

func knownAtomKind(k logbook.AtomKind) bool { return k.Known() }

// knownAtomState uses the table of transitions, like knownFlowState.
func knownAtomState(s logbook.AtomState) bool { return s.Move(s) == nil }

func knownIntention(i logbook.Intention) bool {
	switch i {
	case logbook.IntendExecute, logbook.IntendRevert, logbook.IntendRetry, logbook.IntendIgnore, logbook.IntendDrop:
		return true
	}
	return false
}

func knownAction(a logbook.Action) bool { return a.Known() }
