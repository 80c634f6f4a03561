package command

import (
	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
)

// QueryToProto converts what a listing of jobs asks for; nil stays nil.
func QueryToProto(q *jobs.Query) *v1.ListJobsRequest {
	if q == nil {
		return nil
	}
	message := &v1.ListJobsRequest{
		Board: q.Board, Kind: q.Kind, Key: q.Key, Tags: q.Tags, Name: q.Name, ErrorType: q.ErrorType, Order: string(q.Order), After: q.After, Limit: countOf(q.Limit),
		PostedFrom: TimeToProto(q.PostedFrom), PostedTo: TimeToProto(q.PostedTo),
		FinishedFrom: TimeToProto(q.FinishedFrom), FinishedTo: TimeToProto(q.FinishedTo),
	}
	for _, state := range q.States {
		message.States = append(message.States, string(state))
	}
	for _, outcome := range q.Outcomes {
		message.Outcomes = append(message.Outcomes, string(outcome))
	}
	return message
}

// QueryFromProto converts what a listing of jobs asks for. Nil is the zero
// query.
func QueryFromProto(message *v1.ListJobsRequest) (jobs.Query, error) {
	var r reader
	q := jobs.Query{
		Board: message.GetBoard(), Kind: message.GetKind(), Key: message.GetKey(), Tags: message.GetTags(), Name: message.GetName(),
		ErrorType: message.GetErrorType(), Order: jobs.Order(message.GetOrder()), After: message.GetAfter(), Limit: r.count("query limit", message.GetLimit()),
		PostedFrom: r.time("query posted_from", message.GetPostedFrom()), PostedTo: r.time("query posted_to", message.GetPostedTo()),
		FinishedFrom: r.time("query finished_from", message.GetFinishedFrom()), FinishedTo: r.time("query finished_to", message.GetFinishedTo()),
	}
	for _, text := range message.GetStates() {
		state, err := jobs.ParseState(text)
		q.States = append(q.States, keep(&r, state, err))
	}
	for _, text := range message.GetOutcomes() {
		q.Outcomes = append(q.Outcomes, word(&r, "query outcome", text, knownOutcome))
	}
	if r.err != nil {
		return jobs.Query{}, r.err
	}
	return q, nil
}
