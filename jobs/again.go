package jobs

import "github.com/conductord/conductord/logbook"

// Again makes the posting of a new job with the same work. The posting copies all fields of
// this job's posting except NotBefore, Deadline, Hold, Front and Traceparent. A DeadlineAfter
// starts at the new posting. flow must be the flow of this job, or nil if the job has none.
// The new job gets a new book with a new flow of the same factory, in which no step has run.
// The job can be in any state.
func (j *Job) Again(flow *logbook.FlowDetail) Posting {
	again := Posting{
		ID: NewJobID(), Board: j.Board, Name: j.Name, Priority: j.Priority, Kind: j.Kind, Details: j.Details, Store: j.Store,
		Key: j.Key, Tags: j.Tags, MaxCrashes: j.MaxCrashes, Labels: j.Labels, Retry: j.Retry, Retention: j.Retention, DeadlineAfter: j.DeadlineAfter,
	}
	if flow == nil {
		return again
	}
	again.Kind = ""
	fresh := logbook.FlowDetail{
		ID: logbook.NewFlowID(), Book: logbook.NewBookID(), Name: flow.Name, Factory: flow.Factory,
		Store: flow.Store, Meta: flow.Meta, Targets: flow.Targets, OnChange: flow.OnChange, OnFailure: flow.OnFailure,
	}
	again.Book = &logbook.Book{ID: fresh.Book, Name: j.BookName, Flows: []logbook.FlowDetail{fresh}}
	return again
}
