package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/conductord/conductord/logbook"
)

// NewPosting makes the posting of a job with one flow, of a kind that its conductors have
// registered. Args are what the flow is built of, store holds the values that its steps
// require; each is any Go value that becomes JSON, or nil, and the store's an object. The
// job, its book and its flow are named after the kind; set Name and the other fields as you
// need. If a value cannot become JSON, Err says so, and the posting is refused with it. A job
// without a flow is made by NewPlainPosting.
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

// NewPlainPosting makes the posting of a job without a flow, which a worker of the kind does;
// NewPosting makes one with a flow. Details are any Go value that becomes JSON, or nil. The
// job is named after the kind; set Name and the other fields as you need. Err is as with
// NewPosting.
func NewPlainPosting(kind string, details any) Posting {
	raw, err := rawOf("details", details)
	return Posting{Name: kind, Kind: kind, Details: raw, Err: err}
}

// PostOne posts a single job; the refusal of its posting is an error. Without
// an id of its own the posting gets one here.
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

// rawOf encodes a value of a posting; nil is none.
func rawOf(field string, value any) (json.RawMessage, error) {
	if value == nil {
		return nil, nil
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, &logbook.InvalidError{Field: "posting " + field, Reason: fmt.Sprintf("cannot become JSON: %v", err)}
	}
	return raw, nil
}
