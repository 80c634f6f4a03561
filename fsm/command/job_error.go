package command

import (
	"slices"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// JobErrorToProto converts an error of a job; nil stays nil.
func JobErrorToProto(e *jobs.JobError) *v1.JobError {
	if e == nil {
		return nil
	}
	return &v1.JobError{
		Position: PositionToProto(e.Position), Job: idText(e.Job.UUID), Board: e.Board, Name: e.Name, Kind: e.Kind, Key: e.Key,
		Flow: idText(e.Flow.UUID), At: TimeToProto(e.At), How: string(e.How), Owner: e.Owner, Token: TokenToProto(e.Token),
		Reason: text(e.Reason), Failure: FailureToProto(&e.Failure), Abridged: e.Abridged,
	}
}

// JobErrorFromProto converts an error of a job. Nil is the zero error.
func JobErrorFromProto(message *v1.JobError) (jobs.JobError, error) {
	var r reader
	e := jobs.JobError{
		Position: PositionFromProto(message.GetPosition()), Job: jobs.JobID{UUID: r.id("error job", message.GetJob())},
		Board: message.GetBoard(), Name: message.GetName(), Kind: message.GetKind(), Key: message.GetKey(),
		Flow: logbook.FlowID{UUID: r.id("error flow", message.GetFlow())}, At: r.time("error at", message.GetAt()),
		How:   word(&r, "error how", message.GetHow(), func(h jobs.How) bool { return slices.Contains(jobs.Hows, h) }),
		Owner: message.GetOwner(), Token: TokenFromProto(message.GetToken()), Reason: message.GetReason(),
		Abridged: message.GetAbridged(),
	}
	if failure := FailureFromProto(message.GetFailure()); failure != nil {
		e.Failure = *failure
	}
	if r.err != nil {
		return jobs.JobError{}, r.err
	}
	return e, nil
}

// ErrorQueryToProto converts the query of a list of errors; nil stays nil.
func ErrorQueryToProto(q *jobs.ErrorQuery) *v1.ListErrorsRequest {
	if q == nil {
		return nil
	}
	message := &v1.ListErrorsRequest{
		Job: idText(q.Job.UUID), Board: q.Board, Key: q.Key, Kind: q.Kind, Type: q.Type, How: string(q.How), After: q.After,
		From: TimeToProto(q.From), To: TimeToProto(q.To), Limit: countOf(q.Limit),
	}
	if q.Code != nil {
		code := numberOf(*q.Code)
		message.Code = &code
	}
	return message
}

// ErrorQueryFromProto converts the query of a list of errors. Nil is the zero query.
func ErrorQueryFromProto(message *v1.ListErrorsRequest) (jobs.ErrorQuery, error) {
	var r reader
	q := jobs.ErrorQuery{
		Job: jobs.JobID{UUID: r.id("query job", message.GetJob())}, Board: message.GetBoard(), Key: message.GetKey(),
		Kind: message.GetKind(), Type: message.GetType(), How: jobs.How(message.GetHow()), After: message.GetAfter(),
		From: r.time("query from", message.GetFrom()), To: r.time("query to", message.GetTo()),
		Limit: r.count("query limit", message.GetLimit()),
	}
	if message != nil && message.Code != nil {
		code := int(*message.Code)
		q.Code = &code
	}
	if r.err != nil {
		return jobs.ErrorQuery{}, r.err
	}
	return q, nil
}
