package command

import (
	"slices"

	"github.com/google/uuid"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
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

// FillJob fills a reused message with a job.
func FillJob(message *v1.Job, j *jobs.Job) {
	posted := timeLike(j.PostedAt, message.PostedAt) // a new job has the same time three times
	ids := idTexts([3]uuid.UUID{j.ID.UUID, j.Book.UUID, j.Flow.UUID})
	modified := timeLike(j.ModifiedAt, posted, message.ModifiedAt)
	*message = v1.Job{
		Id:         ids[0],
		Board:      j.Board,
		Name:       j.Name,
		Kind:       j.Kind,
		Priority:   int32(j.Priority),
		Sequence:   j.Sequence,
		State:      string(j.State),
		Book:       ids[1],
		BookName:   j.BookName,
		Flow:       ids[2],
		Details:    ValueToProto(j.Details),
		Store:      ValuesToProto(j.Store),
		NotBefore:  TimeToProto(j.NotBefore),
		Held:       j.Held,
		Key:        j.Key,
		Front:      j.Front,
		Tags:       slices.Clone(j.Tags),
		MaxCrashes: countOf(j.MaxCrashes),
		Labels:     slices.Clone(j.Labels),
		Deadline:   TimeToProto(j.Deadline),

		DeadlineAfter: DurationToProto(j.DeadlineAfter),
		Retry:         RetryPolicyToProto(j.Retry),
		Retention:     DurationToProto(j.Retention),
		PostedAt:      posted,
		PostedBy:      j.PostedBy,
		Schedule:      j.Schedule,
		Slot:          TimeToProto(j.Slot),
		Traceparent:   j.Traceparent,
		ModifiedAt:    modified,
		StartedAt:     timeLike(j.StartedAt, modified, message.StartedAt),
		FinishedAt:    timeLike(j.FinishedAt, modified),
		DueAt:         TimeToProto(j.DueAt),
		ClaimableAt:   timeLike(j.ClaimableAt, posted, modified),
		Size:          j.Size,
		Claim:         claimInto(message.Claim, j.Claim),
		Reserved:      reservationToProto(j.Reserved),
		Token:         TokenInto(message.Token, j.Token),
		LastOwner:     j.LastOwner,
		Claims:        countOf(j.Claims),
		Crashes:       countOf(j.Crashes),
		Failures:      countOf(j.Failures),
		Attempts:      countOf(j.Attempts),
		Attempted:     string(j.Attempted),
		Parked:        j.Parked,

		UnreadSignals:     countOf(j.UnreadSignals),
		Iteration:         countOf(j.Iteration),
		EffectivePriority: (*int32)(j.Effective),
		Outcome:           string(j.Outcome),
		StopRequest:       OperatorRequestToProto(j.StopRequest),
		Reason:            text(j.Reason),
		Failure:           FailureToProto(j.Failure),
	}
}

func knownJobState(s jobs.State) bool { return slices.Contains(jobs.States, s) }

func knownStepOutcome(o jobs.StepOutcome) bool { return o.Known() }

func knownOutcome(o jobs.Outcome) bool {
	switch o {
	case jobs.OutcomeSuccess, jobs.OutcomeReverted, jobs.OutcomeFailed, jobs.OutcomeCancelled:
		return true
	}
	return false
}
