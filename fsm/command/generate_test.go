package command_test

import (
	"encoding/json"
	"math"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// The generators draw any domain value that can cross the wire. Empty lists and maps are drawn as
// nil, because unset and empty are the same there.

func list[T any](one *rapid.Generator[T]) *rapid.Generator[[]T] {
	return rapid.Custom(func(t *rapid.T) []T {
		items := rapid.SliceOfN(one, 0, 3).Draw(t, "items")
		if len(items) == 0 {
			return nil
		}
		return items
	})
}

func optional[T any](one *rapid.Generator[T]) *rapid.Generator[*T] {
	return rapid.Ptr(one, true)
}

// orUnset draws one of the words or the empty string.
func orUnset[T ~string](words ...T) *rapid.Generator[T] {
	return rapid.SampledFrom(append([]T{""}, words...))
}

var ids = rapid.Custom(func(t *rapid.T) uuid.UUID {
	if rapid.Bool().Draw(t, "unset") {
		return uuid.Nil
	}
	var id uuid.UUID
	copy(id[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
	return id
})

var times = rapid.Custom(func(t *rapid.T) time.Time {
	if rapid.Bool().Draw(t, "unset") {
		return time.Time{}
	}
	return time.Unix(0, rapid.Int64Range(0, math.MaxInt64).Draw(t, "nanoseconds")).UTC()
})

var durations = rapid.Map(rapid.Int64(), func(n int64) time.Duration { return time.Duration(n) })

var rawValues = rapid.Custom(func(t *rapid.T) json.RawMessage {
	text := rapid.SampledFrom([]string{"", `null`, `1e3`, ` {"b":1, "a":[true]}`, `"Zürich"`}).Draw(t, "json")
	if text == "" {
		return nil
	}
	return json.RawMessage(text)
})

var values = rapid.Custom(func(t *rapid.T) logbook.Values {
	drawn := rapid.MapOfN(rapid.String(), rawValues, 0, 3).Draw(t, "values")
	if len(drawn) == 0 {
		return nil
	}
	return drawn
})

var tokens = rapid.Custom(func(t *rapid.T) logbook.Token {
	return logbook.Token{Generation: rapid.Uint64().Draw(t, "generation"), Index: rapid.Uint64().Draw(t, "index")}
})

var counts = rapid.IntRange(0, math.MaxInt32)

var numbers = rapid.Map(rapid.Int32(), func(n int32) int { return int(n) })

func failuresOfDepth(depth int) *rapid.Generator[logbook.Failure] {
	return rapid.Custom(func(t *rapid.T) logbook.Failure {
		f := logbook.Failure{
			Kind:      rapid.String().Draw(t, "kind"),
			Message:   rapid.String().Draw(t, "message"),
			Step:      rapid.String().Draw(t, "step"),
			Code:      numbers.Draw(t, "code"),
			Permanent: rapid.Bool().Draw(t, "permanent"),
			Stack:     rapid.String().Draw(t, "stack"),
			Details:   values.Draw(t, "details"),
		}
		if depth > 0 {
			f.Causes = list(failuresOfDepth(depth-1)).Draw(t, "causes")
		}
		return f
	})
}

var failures = failuresOfDepth(2)

var attempts = rapid.Custom(func(t *rapid.T) logbook.Attempt {
	return logbook.Attempt{
		Action:          orUnset(logbook.ActionExecute, logbook.ActionRevert, logbook.ActionReset).Draw(t, "action"),
		Number:          counts.Draw(t, "number"),
		Token:           tokens.Draw(t, "token"),
		Owner:           rapid.String().Draw(t, "owner"),
		StartedAt:       times.Draw(t, "started"),
		EndedAt:         times.Draw(t, "ended"),
		Result:          rawValues.Draw(t, "result"),
		Failure:         optional(failures).Draw(t, "failure"),
		Stderr:          rapid.String().Draw(t, "stderr"),
		StderrTruncated: rapid.Bool().Draw(t, "truncated"),
		Failures:        list(failuresOfDepth(1)).Draw(t, "failures"),
		Asked:           counts.Draw(t, "asked"),
		Unbegun:         rapid.Bool().Draw(t, "unbegun"),
		Offered:         rapid.Bool().Draw(t, "offered"),
		Worker:          rapid.String().Draw(t, "worker"),
		WorkerName:      rapid.String().Draw(t, "worker name"),
		Shortened:       rapid.Bool().Draw(t, "shortened"),
		Wait:            optional(waits).Draw(t, "wait"),
		Sends:           list(sendings).Draw(t, "sends"),
	}
})

var sendings = rapid.Custom(func(t *rapid.T) logbook.Sending {
	return logbook.Sending{
		Job:    rapid.String().Draw(t, "job"),
		Board:  rapid.String().Draw(t, "board"),
		Key:    rapid.String().Draw(t, "key"),
		Signal: optional(signals).Draw(t, "signal"),
		Answer: rapid.String().Draw(t, "answer"),
	}
})

var waits = rapid.Custom(func(t *rapid.T) logbook.Wait {
	return logbook.Wait{
		Signals: list(rapid.String()).Draw(t, "signals"),
		Topic:   rapid.String().Draw(t, "topic"),
		Key:     rapid.String().Draw(t, "key"),
		Since:   times.Draw(t, "since"),
		Until:   times.Draw(t, "until"),
		Number:  rapid.Uint64().Draw(t, "number"),
		Signal:  optional(signals).Draw(t, "signal"),

		Approval: optional(approvals).Draw(t, "approval"),
	}
})

var approvals = rapid.Custom(func(t *rapid.T) logbook.Approval {
	return logbook.Approval{
		Text:       rapid.String().Draw(t, "text"),
		Need:       list(needs).Draw(t, "need"),
		Self:       rapid.Bool().Draw(t, "self"),
		Fields:     rawValues.Draw(t, "fields"),
		AtDeadline: logbook.AtDeadline(rapid.String().Draw(t, "at deadline")),
		Decisions:  list(decisions).Draw(t, "decisions"),
		Remind:     list(reminders).Draw(t, "remind"),
	}
})

var reminders = rapid.Custom(func(t *rapid.T) logbook.Reminder {
	return logbook.Reminder{At: times.Draw(t, "at")}
})

var needs = rapid.Custom(func(t *rapid.T) logbook.Need {
	return logbook.Need{Role: rapid.String().Draw(t, "role"), Count: counts.Draw(t, "count")}
})

var decisions = rapid.Custom(func(t *rapid.T) logbook.Decision {
	return logbook.Decision{
		Kind:     logbook.DecisionKind(rapid.String().Draw(t, "kind")),
		Override: rapid.Bool().Draw(t, "override"),
		ID:       rapid.String().Draw(t, "id"),
		By:       rapid.String().Draw(t, "by"),
		Roles:    list(rapid.String()).Draw(t, "roles"),
		Reason:   rapid.String().Draw(t, "reason"),
		Answers:  rawValues.Draw(t, "answers"),
		At:       times.Draw(t, "at"),
	}
})

var signals = rapid.Custom(func(t *rapid.T) logbook.Signal {
	return logbook.Signal{
		Name:   rapid.String().Draw(t, "name"),
		ID:     rapid.String().Draw(t, "id"),
		Data:   rawValues.Draw(t, "data"),
		Reject: rapid.String().Draw(t, "reject"),
		By:     rapid.String().Draw(t, "by"),
		At:     times.Draw(t, "at"),
	}
})

var progress = rapid.Custom(func(t *rapid.T) logbook.Progress {
	return logbook.Progress{
		Done:    rapid.Int64().Draw(t, "done"),
		Total:   rapid.Int64().Draw(t, "total"),
		Details: rawValues.Draw(t, "details"),
		At:      times.Draw(t, "at"),
	}
})

var definitions = rapid.Custom(func(t *rapid.T) logbook.Definition {
	return logbook.Definition{
		Hash:   rapid.String().Draw(t, "hash"),
		Packed: rapid.SliceOfN(rapid.Byte(), 1, 20).Draw(t, "packed"),
	}
})

var interventions = rapid.Custom(func(t *rapid.T) logbook.Intervention {
	return logbook.Intervention{
		ID:     ids.Draw(t, "id"),
		Flow:   logbook.FlowID{UUID: ids.Draw(t, "flow")},
		Kind:   orUnset(logbook.InterveneSkip, logbook.InterveneRerun).Draw(t, "kind"),
		Step:   rapid.String().Draw(t, "step"),
		To:     rapid.String().Draw(t, "to"),
		Result: rawValues.Draw(t, "result"),
		By:     rapid.String().Draw(t, "by"),
		Reason: rapid.String().Draw(t, "reason"),
		Hold:   rapid.Bool().Draw(t, "hold"),
		At:     times.Draw(t, "at"),
		Token:  tokens.Draw(t, "token"),
	}
})

var (
	atomKinds  = orUnset(logbook.KindTask, logbook.KindRetry, logbook.KindEach)
	atomStates = orUnset(logbook.AtomPending, logbook.AtomRunning, logbook.AtomSuccess, logbook.AtomFailure,
		logbook.AtomReverting, logbook.AtomReverted, logbook.AtomRevertFailure, logbook.AtomRetrying, logbook.AtomIgnored)
	intentions = orUnset(logbook.IntendExecute, logbook.IntendRevert, logbook.IntendRetry, logbook.IntendIgnore)
	flowStates = orUnset(logbook.FlowPending, logbook.FlowRunning, logbook.FlowReverting, logbook.FlowSuspended,
		logbook.FlowSuccess, logbook.FlowReverted, logbook.FlowFailure)
	outcomes = orUnset(jobs.OutcomeSuccess, jobs.OutcomeReverted, jobs.OutcomeFailed, jobs.OutcomeCancelled)
)

var changes = rapid.Custom(func(t *rapid.T) logbook.AtomChange {
	return logbook.AtomChange{
		Name:      rapid.String().Draw(t, "name"),
		Kind:      atomKinds.Draw(t, "kind"),
		Version:   rapid.String().Draw(t, "version"),
		State:     atomStates.Draw(t, "state"),
		Intention: intentions.Draw(t, "intention"),
		RetryAt:   times.Draw(t, "retry at"),
		Attempts:  list(attempts).Draw(t, "attempts"),
		Progress:  optional(progress).Draw(t, "progress"),

		Checkpoints: list(checkpoints).Draw(t, "checkpoints"),
	}
})

var checkpoints = rapid.Custom(func(t *rapid.T) logbook.Checkpoint {
	return logbook.Checkpoint{Name: rapid.String().Draw(t, "name"), Value: rawValues.Draw(t, "value"), At: times.Draw(t, "at"), Number: counts.Draw(t, "number")}
})

var checkpointCounts = rapid.Custom(func(t *rapid.T) logbook.Checkpoints {
	return logbook.Checkpoints{Count: counts.Draw(t, "count"), Bytes: counts.Draw(t, "bytes"), Last: rapid.String().Draw(t, "last"), At: times.Draw(t, "at"), Number: counts.Draw(t, "number")}
})

var atoms = rapid.Custom(func(t *rapid.T) logbook.AtomDetail {
	c := changes.Draw(t, "change")
	return logbook.AtomDetail{
		Name: c.Name, Kind: c.Kind, Version: c.Version, State: c.State, Intention: c.Intention,
		RetryAt: c.RetryAt, Attempts: c.Attempts, Progress: c.Progress,
		Folded: optionalFolded(t), Checkpoints: optional(checkpointCounts).Draw(t, "checkpoint counts"),
	}
})

// optionalFolded draws the folded counts; rounds and the rest only if something is folded.
func optionalFolded(t *rapid.T) logbook.Folded {
	count := rapid.IntRange(0, math.MaxInt32)
	f := logbook.Folded{Executions: count.Draw(t, "executions"), Reverts: count.Draw(t, "reverts"), Resets: count.Draw(t, "resets")}
	if f.Len() > 0 {
		f.Rounds, f.Undone = count.Draw(t, "rounds"), rapid.Bool().Draw(t, "undone")
	}
	return f
}

var updates = rapid.Custom(func(t *rapid.T) logbook.Update {
	return logbook.Update{
		Flow:     logbook.FlowID{UUID: ids.Draw(t, "flow")},
		Token:    tokens.Draw(t, "token"),
		Sequence: rapid.Uint64().Draw(t, "sequence"),
		State:    flowStates.Draw(t, "state"),
		Cause:    optional(failures).Draw(t, "cause"),

		Definition: optional(definitions).Draw(t, "definition"),
		Atoms:      list(changes).Draw(t, "atoms"),
	}
})

var flows = rapid.Custom(func(t *rapid.T) logbook.FlowDetail {
	return logbook.FlowDetail{
		ID:        logbook.FlowID{UUID: ids.Draw(t, "id")},
		Book:      logbook.BookID{UUID: ids.Draw(t, "book")},
		Name:      rapid.String().Draw(t, "name"),
		Factory:   logbook.Factory{Name: rapid.String().Draw(t, "factory"), Args: rawValues.Draw(t, "args")},
		Store:     values.Draw(t, "store"),
		Meta:      values.Draw(t, "meta"),
		State:     flowStates.Draw(t, "state"),
		Cause:     optional(failures).Draw(t, "cause"),
		CreatedAt: times.Draw(t, "created"),
		UpdatedAt: times.Draw(t, "updated"),
		Fence:     tokens.Draw(t, "fence"),
		Ended:     tokens.Draw(t, "ended"),
		Begun:     tokens.Draw(t, "begun"),
		Sequence:  rapid.Uint64().Draw(t, "sequence"),
		Iteration: counts.Draw(t, "iteration"),
		Previous:  logbook.FlowID{UUID: ids.Draw(t, "previous")},
		Origin:    logbook.FlowID{UUID: ids.Draw(t, "origin")},
		Continued: rapid.Bool().Draw(t, "continued"),
		Atoms:     list(atoms).Draw(t, "atoms"),

		Targets:       list(rapid.String()).Draw(t, "targets"),
		OnChange:      orUnset(logbook.ChangePin, logbook.ChangeRefuse).Draw(t, "on change"),
		OnFailure:     orUnset(logbook.HoldOnFailure).Draw(t, "on failure"),
		Definition:    optional(definitions).Draw(t, "definition"),
		Interventions: list(interventions).Draw(t, "interventions"),
	}
})

var books = rapid.Custom(func(t *rapid.T) logbook.Book {
	return logbook.Book{
		ID:        logbook.BookID{UUID: ids.Draw(t, "id")},
		Name:      rapid.String().Draw(t, "name"),
		Meta:      values.Draw(t, "meta"),
		CreatedAt: times.Draw(t, "created"),
		UpdatedAt: times.Draw(t, "updated"),
		Board:     rapid.String().Draw(t, "board"),
		Flows:     list(flows).Draw(t, "flows"),
	}
})

var retryPolicies = rapid.Custom(func(t *rapid.T) jobs.RetryPolicy {
	return jobs.RetryPolicy{
		Backoff: logbook.Backoff{
			Attempts:       counts.Draw(t, "attempts"),
			Delay:          durations.Draw(t, "delay"),
			BackoffPercent: counts.Draw(t, "backoff"),
			MaxDelay:       durations.Draw(t, "max delay"),
			JitterPercent:  counts.Draw(t, "jitter"),
		},
		RetryFilter:  logbook.RetryFilter{Only: list(rapid.String()).Draw(t, "only"), Never: list(rapid.String()).Draw(t, "never")},
		PriorityStep: jobs.Priority(rapid.Int32().Draw(t, "step")),
		OnFailure:    jobs.OnFailure(rapid.String().Draw(t, "on failure")),
	}
})

var postings = rapid.Custom(func(t *rapid.T) jobs.Posting {
	return jobs.Posting{
		ID:        jobs.JobID{UUID: ids.Draw(t, "id")},
		Board:     rapid.String().Draw(t, "board"),
		Name:      rapid.String().Draw(t, "name"),
		Priority:  jobs.Priority(rapid.Int32().Draw(t, "priority")),
		Book:      optional(books).Draw(t, "book"),
		BookID:    logbook.BookID{UUID: ids.Draw(t, "book id")},
		Flow:      logbook.FlowID{UUID: ids.Draw(t, "flow")},
		Kind:      rapid.String().Draw(t, "kind"),
		Details:   rawValues.Draw(t, "details"),
		Store:     values.Draw(t, "store"),
		NotBefore: times.Draw(t, "not before"),
		Hold:      rapid.Bool().Draw(t, "hold"),

		Key:        rapid.String().Draw(t, "key"),
		Front:      rapid.Bool().Draw(t, "front"),
		Tags:       list(rapid.String()).Draw(t, "tags"),
		MaxCrashes: counts.Draw(t, "max crashes"),
		Deadline:   times.Draw(t, "deadline"),

		DeadlineAfter: durations.Draw(t, "deadline after"),
		Labels:        list(rapid.String()).Draw(t, "labels"),
		Retry:         optional(retryPolicies).Draw(t, "retry"),
		Retention:     durations.Draw(t, "retention"),

		Traceparent: rapid.String().Draw(t, "traceparent"),
		Signal:      optional(signals).Draw(t, "signal"),
	}
})

var claims = rapid.Custom(func(t *rapid.T) jobs.Claim {
	return jobs.Claim{
		Session: jobs.SessionID{UUID: ids.Draw(t, "session")},
		Owner:   rapid.String().Draw(t, "owner"),
		Token:   tokens.Draw(t, "token"),
		Since:   times.Draw(t, "since"),

		Expiry:     durations.Draw(t, "expiry"),
		Extensions: counts.Draw(t, "extensions"),
		Begins:     rapid.Bool().Draw(t, "begins"),
	}
})

var orders = rapid.Custom(func(t *rapid.T) jobs.JobCommand {
	return jobs.JobCommand{
		Job:    jobs.JobID{UUID: ids.Draw(t, "job")},
		Revert: rapid.Bool().Draw(t, "revert"),
		By:     rapid.String().Draw(t, "by"),
		Reason: rapid.String().Draw(t, "reason"),
		Steps:  orUnset(jobs.StepsInterrupt, jobs.StepsFinish).Draw(t, "steps"),
		Grace:  durations.Draw(t, "grace"),
		To:     rapid.String().Draw(t, "to"),
		Within: durations.Draw(t, "within"),
		Step:   rapid.String().Draw(t, "step"),
	}
})

var standingOrders = rapid.Custom(func(t *rapid.T) jobs.OperatorRequest {
	return jobs.OperatorRequest{
		Kind:   orUnset(jobs.RequestSuspend, jobs.RequestResume, jobs.RequestCancel, jobs.RequestTransfer, jobs.RequestChange).Draw(t, "kind"),
		Revert: rapid.Bool().Draw(t, "revert"),
		By:     rapid.String().Draw(t, "by"),
		Reason: rapid.String().Draw(t, "reason"),
		At:     times.Draw(t, "at"),
		Steps:  orUnset(jobs.StepsInterrupt, jobs.StepsFinish).Draw(t, "steps"),
		Grace:  durations.Draw(t, "grace"),
		To:     rapid.String().Draw(t, "to"),
		Within: durations.Draw(t, "within"),
	}
})

var jobChanges = rapid.Custom(func(t *rapid.T) jobs.Change {
	return jobs.Change{
		Job:       jobs.JobID{UUID: ids.Draw(t, "job")},
		Priority:  optional(rapid.Map(rapid.Int32(), func(n int32) jobs.Priority { return jobs.Priority(n) })).Draw(t, "priority"),
		NotBefore: times.Draw(t, "not before"),
		Release:   rapid.Bool().Draw(t, "release"),
		Board:     rapid.String().Draw(t, "board"), Front: rapid.Bool().Draw(t, "front"),
		Deadline: times.Draw(t, "deadline"), NoDeadline: rapid.Bool().Draw(t, "no deadline"), ID: ids.Draw(t, "id"),
		By:     rapid.String().Draw(t, "by"),
		Reason: rapid.String().Draw(t, "reason"),
	}
})

var explanations = rapid.Custom(func(t *rapid.T) jobs.Explanation {
	return jobs.Explanation{
		Job:   jobs.JobID{UUID: ids.Draw(t, "job")},
		State: orUnset(jobs.States...).Draw(t, "state"),
		Cause: orUnset(jobs.Causes...).Draw(t, "cause"),
		Text:  rapid.String().Draw(t, "text"),
		Until: times.Draw(t, "until"),
		Remedy: jobs.Remedy{
			Verb: orUnset(jobs.RemedyVerbs...).Draw(t, "remedy verb"), Target: rapid.String().Draw(t, "target"), Value: rapid.String().Draw(t, "value"),
			Name: rapid.String().Draw(t, "name"),
		},
	}
})

var boardJobs = rapid.Custom(func(t *rapid.T) jobs.Job {
	return jobs.Job{
		ID:          jobs.JobID{UUID: ids.Draw(t, "id")},
		Board:       rapid.String().Draw(t, "board"),
		Name:        rapid.String().Draw(t, "name"),
		Kind:        rapid.String().Draw(t, "kind"),
		Priority:    jobs.Priority(rapid.Int32().Draw(t, "priority")),
		Sequence:    rapid.Uint64().Draw(t, "sequence"),
		State:       orUnset(jobs.States...).Draw(t, "state"),
		Book:        logbook.BookID{UUID: ids.Draw(t, "book")},
		BookName:    rapid.String().Draw(t, "book name"),
		ClaimableAt: times.Draw(t, "claimable"), Size: rapid.Uint64().Draw(t, "size"),
		Flow:        logbook.FlowID{UUID: ids.Draw(t, "flow")},
		Details:     rawValues.Draw(t, "details"),
		Store:       values.Draw(t, "store"),
		NotBefore:   times.Draw(t, "not before"),
		Held:        rapid.Bool().Draw(t, "held"),
		Key:         rapid.String().Draw(t, "key"),
		Front:       rapid.Uint64().Draw(t, "front"),
		Tags:        list(rapid.String()).Draw(t, "tags"),
		MaxCrashes:  counts.Draw(t, "max crashes"),
		Deadline:    times.Draw(t, "deadline"),
		Labels:      list(rapid.String()).Draw(t, "labels"),
		PostedAt:    times.Draw(t, "posted"),
		PostedBy:    rapid.String().Draw(t, "posted by"),
		Schedule:    rapid.String().Draw(t, "schedule"),
		Slot:        times.Draw(t, "slot"),
		Traceparent: rapid.String().Draw(t, "traceparent"),
		ModifiedAt:  times.Draw(t, "modified"),
		StartedAt:   times.Draw(t, "started"),
		FinishedAt:  times.Draw(t, "finished"),
		DueAt:       times.Draw(t, "due"),
		Claim:       optional(claims).Draw(t, "claim"),
		Reserved: optional(rapid.Custom(func(t *rapid.T) jobs.Reservation {
			return jobs.Reservation{Conductor: rapid.String().Draw(t, "conductor"), Until: times.Draw(t, "until")}
		})).Draw(t, "reserved"),
		Token:     tokens.Draw(t, "token"),
		Claims:    counts.Draw(t, "claims"),
		LastOwner: rapid.String().Draw(t, "last owner"),
		Crashes:   counts.Draw(t, "crashes"),
		Failures:  counts.Draw(t, "failures"),
		Retry:     optional(retryPolicies).Draw(t, "retry"),
		Attempts:  counts.Draw(t, "attempts"),
		Attempted: outcomes.Draw(t, "attempted"),
		Retention: durations.Draw(t, "retention"),

		DeadlineAfter: durations.Draw(t, "deadline after"),

		UnreadSignals: counts.Draw(t, "unread signals"),
		Iteration:     counts.Draw(t, "iteration"),

		Parked:      rapid.Bool().Draw(t, "parked"),
		Effective:   optional(rapid.Map(rapid.Int32(), func(n int32) jobs.Priority { return jobs.Priority(n) })).Draw(t, "effective"),
		Outcome:     outcomes.Draw(t, "outcome"),
		StopRequest: optional(standingOrders).Draw(t, "order"),
		Reason:      rapid.String().Draw(t, "reason"),
		Failure:     optional(failures).Draw(t, "failure"),
	}
})

var jobErrors = rapid.Custom(func(t *rapid.T) jobs.JobError {
	return jobs.JobError{
		Position: positions.Draw(t, "position"),
		Job:      jobs.JobID{UUID: ids.Draw(t, "job")},
		Board:    rapid.String().Draw(t, "board"),
		Name:     rapid.String().Draw(t, "name"),
		Kind:     rapid.String().Draw(t, "kind"),
		Key:      rapid.String().Draw(t, "key"),
		Flow:     logbook.FlowID{UUID: ids.Draw(t, "flow")},
		At:       times.Draw(t, "at"),
		How:      orUnset(jobs.Hows...).Draw(t, "how"),
		Owner:    rapid.String().Draw(t, "owner"),
		Token:    tokens.Draw(t, "token"),
		Reason:   rapid.String().Draw(t, "reason"),
		Failure:  failures.Draw(t, "failure"),
		Abridged: rapid.Bool().Draw(t, "abridged"),
	}
})

var errorQueries = rapid.Custom(func(t *rapid.T) jobs.ErrorQuery {
	return jobs.ErrorQuery{
		Job:   jobs.JobID{UUID: ids.Draw(t, "job")},
		Board: rapid.String().Draw(t, "board"),
		Key:   rapid.String().Draw(t, "key"),
		Kind:  rapid.String().Draw(t, "kind"),
		Type:  rapid.String().Draw(t, "type"),
		Code:  optional(numbers).Draw(t, "code"),
		How:   orUnset(jobs.Hows...).Draw(t, "how"),
		From:  times.Draw(t, "from"),
		To:    times.Draw(t, "to"),
		After: rapid.String().Draw(t, "after"),
		Limit: counts.Draw(t, "limit"),
	}
})

var jobQueries = rapid.Custom(func(t *rapid.T) jobs.Query {
	return jobs.Query{
		Board:        rapid.String().Draw(t, "board"),
		States:       list(rapid.SampledFrom(jobs.States)).Draw(t, "states"),
		Kind:         rapid.String().Draw(t, "kind"),
		Key:          rapid.String().Draw(t, "key"),
		Tags:         list(rapid.String()).Draw(t, "tags"),
		Name:         rapid.String().Draw(t, "name"),
		Outcomes:     list(rapid.SampledFrom([]jobs.Outcome{jobs.OutcomeSuccess, jobs.OutcomeFailed})).Draw(t, "outcomes"),
		ErrorType:    rapid.String().Draw(t, "error type"),
		Order:        rapid.SampledFrom([]jobs.Order{jobs.OrderPosted, jobs.OrderNewest, jobs.OrderClaim}).Draw(t, "order"),
		After:        rapid.String().Draw(t, "after"),
		Limit:        counts.Draw(t, "limit"),
		PostedFrom:   times.Draw(t, "posted from"),
		PostedTo:     times.Draw(t, "posted to"),
		FinishedFrom: times.Draw(t, "finished from"),
		FinishedTo:   times.Draw(t, "finished to"),
	}
})

var bulks = rapid.Custom(func(t *rapid.T) jobs.Bulk {
	return jobs.Bulk{
		Action: orUnset(jobs.Actions...).Draw(t, "action"),
		Query:  jobQueries.Draw(t, "query"),
		Revert: rapid.Bool().Draw(t, "revert"),
		By:     rapid.String().Draw(t, "by"),
		Reason: rapid.String().Draw(t, "reason"),
		DryRun: rapid.Bool().Draw(t, "dry run"),
	}
})

var claimed = rapid.Custom(func(t *rapid.T) jobs.Claimed {
	return jobs.Claimed{
		Job:  boardJobs.Draw(t, "job"),
		Book: optional(books).Draw(t, "book"),
		Flow: optional(flows).Draw(t, "flow"),
	}
})

var heldClaims = rapid.Custom(func(t *rapid.T) jobs.HeldClaim {
	return jobs.HeldClaim{
		Job:     jobs.JobID{UUID: ids.Draw(t, "job")},
		Board:   rapid.String().Draw(t, "board"),
		Name:    rapid.String().Draw(t, "name"),
		Kind:    rapid.String().Draw(t, "kind"),
		Claim:   claims.Draw(t, "claim"),
		Left:    durations.Draw(t, "left"),
		Silent:  durations.Draw(t, "silent"),
		Suspect: rapid.Bool().Draw(t, "suspect"),
	}
})

var watches = rapid.Custom(func(t *rapid.T) jobs.Watch {
	return jobs.Watch{
		After:    optional(positions).Draw(t, "after"),
		Board:    rapid.String().Draw(t, "board"),
		Job:      jobs.JobID{UUID: ids.Draw(t, "job")},
		Flows:    rapid.Bool().Draw(t, "flows"),
		Owner:    rapid.String().Draw(t, "owner"),
		Boards:   list(rapid.String()).Draw(t, "boards"),
		Kinds:    list(rapid.SampledFrom(jobs.EventKinds)).Draw(t, "kinds"),
		JobKind:  rapid.String().Draw(t, "job kind"),
		Key:      rapid.String().Draw(t, "key"),
		Tags:     list(rapid.String()).Draw(t, "tags"),
		Sessions: rapid.Bool().Draw(t, "sessions"),
		Others:   rapid.Bool().Draw(t, "others"),
	}
})

// Wait is not drawn: it stays with the caller and is not part of the command.
var requests = rapid.Custom(func(t *rapid.T) jobs.ClaimRequest {
	return jobs.ClaimRequest{
		Session: jobs.SessionID{UUID: ids.Draw(t, "session")},
		Nonce:   jobs.Nonce{UUID: ids.Draw(t, "nonce")},
		Boards:  list(rapid.String()).Draw(t, "boards"),
		Kinds:   list(rapid.String()).Draw(t, "kinds"),
		Max:     counts.Draw(t, "max"),
		Labels:  list(rapid.String()).Draw(t, "labels"),
		Expiry:  durations.Draw(t, "expiry"),
		Begins:  rapid.Bool().Draw(t, "begins"),
	}
})

var endings = rapid.Custom(func(t *rapid.T) jobs.Ending {
	return jobs.Ending{
		Job:     jobs.JobID{UUID: ids.Draw(t, "job")},
		Token:   tokens.Draw(t, "token"),
		Update:  optional(updates).Draw(t, "update"),
		Outcome: outcomes.Draw(t, "outcome"),
		Reason:  rapid.String().Draw(t, "reason"),
		Failure: optional(failures).Draw(t, "failure"),
		Delay:   durations.Draw(t, "delay"),

		Recorded: rapid.Bool().Draw(t, "recorded"),
		Waits:    rapid.Bool().Draw(t, "waits"),
		Again:    optional(continuations).Draw(t, "again"),
	}
})

var continuations = rapid.Custom(func(t *rapid.T) jobs.Continuation {
	return jobs.Continuation{Store: values.Draw(t, "store"), Delay: durations.Draw(t, "delay")}
})

var openings = rapid.Custom(func(t *rapid.T) jobs.Opening {
	return jobs.Opening{
		ID:   jobs.SessionID{UUID: ids.Draw(t, "id")},
		Name: rapid.String().Draw(t, "name"),
		Host: rapid.String().Draw(t, "host"),
		PID:  numbers.Draw(t, "pid"),
		TTL:  durations.Draw(t, "ttl"),
	}
})

var sessions = rapid.Custom(func(t *rapid.T) jobs.Session {
	return jobs.Session{
		ID:        jobs.SessionID{UUID: ids.Draw(t, "id")},
		Name:      rapid.String().Draw(t, "name"),
		Host:      rapid.String().Draw(t, "host"),
		PID:       numbers.Draw(t, "pid"),
		TTL:       durations.Draw(t, "ttl"),
		OpenedAt:  times.Draw(t, "opened"),
		Principal: rapid.String().Draw(t, "principal"),
		Claims:    counts.Draw(t, "claims"),
	}
})

var entities = rapid.Custom(func(t *rapid.T) jobs.Entity {
	return jobs.Entity{
		Kind:         rapid.String().Draw(t, "kind"),
		Name:         rapid.String().Draw(t, "name"),
		Boards:       list(rapid.String()).Draw(t, "boards"),
		JobKinds:     list(rapid.String()).Draw(t, "kinds"),
		MaxJobs:      counts.Draw(t, "max jobs"),
		Host:         rapid.String().Draw(t, "host"),
		PID:          numbers.Draw(t, "pid"),
		Labels:       list(rapid.String()).Draw(t, "labels"),
		Metadata:     values.Draw(t, "metadata"),
		Session:      jobs.SessionID{UUID: ids.Draw(t, "session")},
		RegisteredAt: times.Draw(t, "registered"),
		Held:         counts.Draw(t, "held"),
	}
})

var positions = rapid.Custom(func(t *rapid.T) jobs.Position {
	return jobs.Position{Index: rapid.Uint64().Draw(t, "index"), Item: rapid.Uint32().Draw(t, "item")}
})

var events = rapid.Custom(func(t *rapid.T) jobs.Event {
	return jobs.Event{
		Position: positions.Draw(t, "position"),
		Kind:     orUnset(jobs.EventKinds...).Draw(t, "kind"),
		Time:     times.Draw(t, "time"),
		Board:    rapid.String().Draw(t, "board"),
		Job:      jobs.JobID{UUID: ids.Draw(t, "job")},
		Name:     rapid.String().Draw(t, "name"),
		State:    orUnset(jobs.States...).Draw(t, "state"),
		Owner:    rapid.String().Draw(t, "owner"),
		Token:    tokens.Draw(t, "token"),
		Outcome:  outcomes.Draw(t, "outcome"),
		Reason:   rapid.String().Draw(t, "reason"),
		Steps: list(rapid.Custom(func(t *rapid.T) jobs.StepEvent {
			return jobs.StepEvent{Name: rapid.String().Draw(t, "name"), State: rapid.String().Draw(t, "state")}
		})).Draw(t, "steps"),
		Signal:        rapid.String().Draw(t, "signal"),
		UnreadSignals: counts.Draw(t, "unread signals"),
		Iteration:     counts.Draw(t, "iteration"),
		FlowState:     rapid.String().Draw(t, "flow state"),
		Request:       optional(standingOrders).Draw(t, "order"),

		JobKind:    rapid.String().Draw(t, "job kind"),
		Key:        rapid.String().Draw(t, "key"),
		Tags:       list(rapid.String()).Draw(t, "tags"),
		Session:    jobs.SessionID{UUID: ids.Draw(t, "session")},
		EntityKind: rapid.String().Draw(t, "entity kind"),
		By:         rapid.String().Draw(t, "by"),
		Entity:     rapid.String().Draw(t, "entity"),
	}
})
