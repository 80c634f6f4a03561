package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/test/bench/measure"
)

const (
	detailBytes = 512
	// postBoard is where no conductor looks, so that posts stay posts.
	postBoard = "bench"
	postKind  = "bench-post"
)

// work is something that is measured.
type work struct {
	name string
	load measure.Load
	// call makes one call: all of its operations.
	call func(ctx context.Context, client *raftboard.Client, perCall int) error
	// flows needs a conductor beside it. An operation of it is several
	// commands, one after the other; so the floor proposes single commands.
	flows bool
}

func works() []work {
	return []work{
		{name: "post-1", load: measure.Load{Callers: 1, PerCall: 1}, call: post},
		{name: "post-64", load: measure.Load{Callers: 64, PerCall: 1}, call: post},
		{name: "post-16x100", load: measure.Load{Callers: 16, PerCall: 100}, call: post},
		{name: "flow-64", load: measure.Load{Callers: 64, PerCall: 1}, call: runFlow, flows: true},
	}
}

func names() []string {
	var all []string
	for _, w := range works() {
		all = append(all, w.name)
	}
	return all
}

// chosen are the works of a name, or all.
func chosen(name string) []work {
	var some []work
	for _, w := range works() {
		if name == "" || name == w.name {
			some = append(some, w)
		}
	}
	return some
}

// floorLoad is the load of the other side.
func (w work) floorLoad(load measure.Load) measure.Load {
	if w.flows {
		load.PerCall = 1
	}
	return load
}

// floorBytes is the size of what one call of the floor proposes: as much of
// the log as a call of the work has taken, or a command of a flow.
func (w work) floorBytes(c cost) int {
	if w.flows {
		return max(1, int(measure.Share(c.BytesPerOperation, c.CommandsPerOperation)))
	}
	return max(1, int(c.BytesPerOperation)*w.load.PerCall)
}

// details are what every posting carries: a JSON string of detailBytes.
func details() json.RawMessage {
	text := bytes.Repeat([]byte{'d'}, detailBytes)
	text[0], text[detailBytes-1] = '"', '"'
	return text
}

func post(ctx context.Context, client *raftboard.Client, perCall int) error {
	postings := make([]jobs.Posting, perCall)
	for i := range postings {
		postings[i] = jobs.Posting{Board: postBoard, Name: "bench", Kind: postKind, Details: details()}
	}
	posted, err := client.Post(ctx, postings...)
	if err != nil {
		return err
	}
	for _, one := range posted {
		if one.Err != nil {
			return one.Err
		}
	}
	return nil
}

// runFlow posts jobs with a flow each and waits for the end of each.
func runFlow(ctx context.Context, client *raftboard.Client, perCall int) error {
	for range perCall {
		book := logbook.Book{ID: logbook.NewBookID(), Name: "bench"}
		book.Flows = []logbook.FlowDetail{{
			ID: logbook.NewFlowID(), Book: book.ID, Name: "bench", Factory: logbook.Factory{Name: flowKind},
		}}
		job, err := jobs.PostOne(ctx, client, jobs.Posting{Name: "bench", Book: &book})
		if err != nil {
			return err
		}
		if job, err = client.Wait(ctx, job.ID); err != nil {
			return err
		}
		if job.Outcome != jobs.OutcomeSuccess {
			return fmt.Errorf("job %s ended %s %s: %s", job.ID, job.State, job.Outcome, job.Reason)
		}
	}
	return nil
}
