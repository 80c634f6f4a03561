package jobs

import "github.com/conductord/conductord/logbook"

// Again makes the posting of a new job that does the same work as this one, which may be
// finished: its kind, details and store, and all else that its poster has said of it but
// the times and a hold. The flow is that of the job, nil if it has none. The new job has a
// flow of its own in a book of its own, built as the old one was, with no step done.
func (j *Job) Again(flow *logbook.FlowDetail) Posting {
	again := Posting{
		ID: NewJobID(), Board: j.Board, Name: j.Name, Priority: j.Priority, Kind: j.Kind, Details: j.Details, Store: j.Store,
		Key: j.Key, Tags: j.Tags, MaxCrashes: j.MaxCrashes, Labels: j.Labels, Retry: j.Retry, Retention: j.Retention,
	}
	if flow == nil {
		return again
	}
	again.Kind = ""
	fresh := logbook.FlowDetail{
		ID: logbook.NewFlowID(), Book: logbook.NewBookID(), Name: flow.Name, Factory: flow.Factory,
		Store: flow.Store, Meta: flow.Meta, Targets: flow.Targets, OnChange: flow.OnChange,
	}
	again.Book = &logbook.Book{ID: fresh.Book, Name: j.BookName, Flows: []logbook.FlowDetail{fresh}}
	return again
}
