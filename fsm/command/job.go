package command

import (
	"slices"

	"github.com/google/uuid"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// JobToProto converts a job; nil stays nil.
func JobToProto(j *jobs.Job) *v1.Job {
	if j == nil {
		return nil
	}
	message := new(v1.Job)
	FillJob(message, j)
	return message
}

// FillJob makes a message that was used for something else that of a job.
func FillJob(message *v1.Job, j *jobs.Job) {
	posted := timeLike(j.PostedAt, message.PostedAt) // a new job has that time three times
	ids := idTexts([3]uuid.UUID{j.ID.UUID, j.Book.UUID, j.Flow.UUID})
	modified := timeLike(j.ModifiedAt, posted, message.ModifiedAt)
	*message = v1.Job{
		Id:          ids[0],
		Board:       j.Board,
		Name:        j.Name,
		Kind:        j.Kind,
		Priority:    int32(j.Priority),
		Sequence:    j.Sequence,
		State:       string(j.State),
		Book:        ids[1],
		BookName:    j.BookName,
		Flow:        ids[2],
		Details:     ValueToProto(j.Details),
		Store:       ValuesToProto(j.Store),
		NotBefore:   TimeToProto(j.NotBefore),
		Held:        j.Held,
		Key:         j.Key,
		Front:       j.Front,
		Tags:        slices.Clone(j.Tags),
		MaxCrashes:  countOf(j.MaxCrashes),
		Labels:      slices.Clone(j.Labels),
		Deadline:    TimeToProto(j.Deadline),
		Retry:       RetryPolicyToProto(j.Retry),
		Retention:   DurationToProto(j.Retention),
		PostedAt:    posted,
		PostedBy:    j.PostedBy,
		Schedule:    j.Schedule,
		Slot:        TimeToProto(j.Slot),
		Traceparent: j.Traceparent,
		ModifiedAt:  modified,
		StartedAt:   timeLike(j.StartedAt, modified, message.StartedAt),
		FinishedAt:  timeLike(j.FinishedAt, modified),
		DueAt:       TimeToProto(j.DueAt),
		ClaimableAt: timeLike(j.ClaimableAt, posted, modified),
		Size:        j.Size,
		Claim:       claimInto(message.Claim, j.Claim),
		Reserved:    ReservationToProto(j.Reserved),
		Token:       TokenInto(message.Token, j.Token),
		LastOwner:   j.LastOwner,
		Claims:      countOf(j.Claims),
		Crashes:     countOf(j.Crashes),
		Failures:    countOf(j.Failures),
		Attempts:    countOf(j.Attempts),
		Attempted:   string(j.Attempted),
		Parked:      j.Parked,

		EffectivePriority: (*int32)(j.Effective),
		Outcome:           string(j.Outcome),
		StopRequest:       OperatorRequestToProto(j.StopRequest),
		Reason:            text(j.Reason),
		Failure:           FailureToProto(j.Failure),
	}
}

// JobFromProto converts a job. Nil is the zero job. It accepts a job with only an id,
// as in the refusal of a posting.
func JobFromProto(message *v1.Job) (jobs.Job, error) {
	var r reader
	claim, err := ClaimFromProto(message.GetClaim())
	stop, stopErr := OperatorRequestFromProto(message.GetStopRequest())
	retry, retryErr := RetryPolicyFromProto(message.GetRetry())
	j := jobs.Job{
		ID:          jobs.JobID{UUID: r.id("job id", message.GetId())},
		Board:       message.GetBoard(),
		Name:        message.GetName(),
		Kind:        message.GetKind(),
		Priority:    jobs.Priority(message.GetPriority()),
		Sequence:    message.GetSequence(),
		State:       word(&r, "job state", message.GetState(), knownJobState),
		Book:        logbook.BookID{UUID: r.id("job book", message.GetBook())},
		BookName:    message.GetBookName(),
		Flow:        logbook.FlowID{UUID: r.id("job flow", message.GetFlow())},
		Details:     ValueFromProto(message.GetDetails()),
		Store:       ValuesFromProto(message.GetStore()),
		NotBefore:   r.time("job not_before", message.GetNotBefore()),
		Held:        message.GetHeld(),
		Key:         message.GetKey(),
		Front:       message.GetFront(),
		Tags:        slices.Clone(message.GetTags()),
		MaxCrashes:  r.count("job max_crashes", message.GetMaxCrashes()),
		Labels:      slices.Clone(message.GetLabels()),
		Deadline:    r.time("job deadline", message.GetDeadline()),
		Retry:       keep(&r, retry, retryErr),
		Retention:   r.duration("job retention", message.GetRetention()),
		PostedAt:    r.time("job posted_at", message.GetPostedAt()),
		PostedBy:    message.GetPostedBy(),
		Schedule:    message.GetSchedule(),
		Slot:        r.time("job slot", message.GetSlot()),
		Traceparent: message.GetTraceparent(),
		ModifiedAt:  r.time("job modified_at", message.GetModifiedAt()),
		StartedAt:   r.time("job started_at", message.GetStartedAt()),
		FinishedAt:  r.time("job finished_at", message.GetFinishedAt()),
		DueAt:       r.time("job due_at", message.GetDueAt()),
		ClaimableAt: r.time("job claimable_at", message.GetClaimableAt()),
		Size:        message.GetSize(),
		Claim:       keep(&r, claim, err),
		Reserved:    reservationFromProto(&r, message.GetReserved()),
		Token:       TokenFromProto(message.GetToken()),
		LastOwner:   message.GetLastOwner(),
		Claims:      r.count("job claims", message.GetClaims()),
		Crashes:     r.count("job crashes", message.GetCrashes()),
		Failures:    r.count("job failures", message.GetFailures()),
		Attempts:    r.count("job attempts", message.GetAttempts()),
		Attempted:   word(&r, "job attempted", message.GetAttempted(), knownOutcome),
		Parked:      message.GetParked(),
		Outcome:     word(&r, "job outcome", message.GetOutcome(), knownOutcome),
		StopRequest: keep(&r, stop, stopErr),
		Reason:      message.GetReason(),
		Failure:     FailureFromProto(message.GetFailure()),
	}
	if message != nil {
		j.Effective = (*jobs.Priority)(message.EffectivePriority)
	}
	if r.err != nil {
		return jobs.Job{}, r.err
	}
	return j, nil
}

// ReservationToProto converts a reservation; nil stays nil.
func ReservationToProto(o *jobs.Reservation) *v1.Reservation {
	if o == nil {
		return nil
	}
	return &v1.Reservation{Conductor: o.Conductor, Until: TimeToProto(o.Until)}
}

func reservationFromProto(r *reader, message *v1.Reservation) *jobs.Reservation {
	if message == nil {
		return nil
	}
	return &jobs.Reservation{Conductor: message.GetConductor(), Until: r.time("reservation until", message.GetUntil())}
}

func knownJobState(s jobs.State) bool { return slices.Contains(jobs.States, s) }

func knownOutcome(o jobs.Outcome) bool {
	switch o {
	case jobs.OutcomeSuccess, jobs.OutcomeReverted, jobs.OutcomeFailed, jobs.OutcomeCancelled:
		return true
	}
	return false
}
