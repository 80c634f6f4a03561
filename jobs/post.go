package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/conductord/conductord/logbook"
)

// NewPosting makes the posting of a job with one flow. kind is the flow's kind, as
// registered with the conductors; args are the arguments of its factory; store has the
// values that its steps require. args and store are any Go values that encode to JSON, or
// nil, and store must encode to an object.
//
// The names of job, book and flow are the kind. Set Name and the other fields as you need.
// If a value cannot be encoded, the posting has Err, and Post refuses it. For a job without
// a flow, use NewPlainPosting.
//
//	job, err := jobs.PostOne(ctx, client, jobs.NewPosting("greet", nil, map[string]any{"name": "Ada"}))
func NewPosting(kind string, args, store any) Posting {
	book := &logbook.Book{ID: logbook.NewBookID(), Name: kind}
	factory := logbook.Factory{Name: kind}
	values, errStore := logbook.ValuesOf(store)
	var errArgs error
	factory.Args, errArgs = rawOf("args", args)
	book.Flows = []logbook.FlowDetail{{ID: logbook.NewFlowID(), Book: book.ID, Name: kind, Factory: factory}}
	return Posting{Name: kind, Book: book, Store: values, Err: errors.Join(errArgs, errStore)}
}

// NewPlainPosting makes the posting of a job without a flow, for workers of its kind.
// details is any Go value that encodes to JSON, or nil. The name of the job is the kind. Set
// Name and the other fields as you need. If details cannot be encoded, the posting has Err,
// and Post refuses it. For a job with a flow, use NewPosting.
func NewPlainPosting(kind string, details any) Posting {
	raw, err := rawOf("details", details)
	return Posting{Name: kind, Kind: kind, Details: raw, Err: err}
}

// PostOne posts one job. It returns the refusal of the posting as an error. If the posting has no ID, PostOne makes
// one; the returned Job has the ID even after an error.
func PostOne(ctx context.Context, board Poster, posting Posting) (Job, error) {
	if posting.ID.IsZero() {
		posting.ID = NewJobID()
	}
	posted, err := board.Post(ctx, posting)
	if err != nil {
		return Job{ID: posting.ID}, err
	}
	return posted[0].Job, posted[0].Err
}

// rawOf encodes a value of a posting. The encoding of nil is nil.
func rawOf(field string, value any) (json.RawMessage, error) {
	if value == nil {
		return nil, nil
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, &logbook.InvalidError{Field: "posting " + field, Reason: fmt.Sprintf("cannot be encoded as JSON: %v", err)}
	}
	return raw, nil
}
