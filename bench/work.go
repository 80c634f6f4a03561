package main

import (
	"bytes"
	"context"
	"encoding/json"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/internal/measure"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard"
)

const (
	detailBytes = 512
	// benchBoard is a board that no server's conductor serves, so the posted jobs stay
	// unclaimed.
	benchBoard = "bench"
	postKind   = "bench-post"
)

// basis is the figure of a work that is compared with the floor.
type basis int

// For some works, a call of the floor counts as many operations as a call of conductord. For
// all others, an operation is several commands in sequence, and the floor proposes single
// commands.
const (
	byOperations basis = iota // operations a second
	byCommands                // commands a second, of all kinds
	byP50                     // median latency
	alone                     // nothing: the work has no floor
)

// work is one measurable workload.
type work struct {
	name  string
	load  measure.Load
	open  func(ctx context.Context, at *place, load measure.Load) (*doing, error)
	by    basis
	goals []goal
	few   bool // not measured among many waiting jobs
}

// place is the cluster that a work is done on.
type place struct {
	client   *raftboard.Client
	dial     func(context.Context) (*raftboard.Client, error)
	follower string // the API of a node that does not lead
	// steady makes works return the jobs that they take from the board, so that the number of
	// waiting jobs does not change.
	steady bool
}

// doing is a prepared work. Its call makes all operations of one call, and returns their
// measured time. Close it.
type doing struct {
	call  func(context.Context) (time.Duration, error)
	close func()
}

// works are in the order of execution: works that leave little behind come first.
func works() []work {
	one := func(callers int) measure.Load { return measure.Load{Callers: callers, PerCall: 1} }
	return []work{
		{name: "read-64", load: one(64), open: openRead, by: alone, goals: []goal{
			atLeast("operations/s", 8_000, perSecond), atMost("entries/op", 0.01, entriesPerOperation),
		}},
		{name: "start-1", load: one(1), open: openStart, by: byP50, goals: []goal{atMost("p50 ratio", 1.7, p50Ratio)}},
		{name: "post-1", load: one(1), open: openPost, by: byOperations, goals: []goal{atMost("p50 ratio", 1.3, p50Ratio)}},
		{name: "flow-1", load: one(1), open: openFlow, by: byP50, few: true, goals: []goal{atMost("p50 ratio", 5, p50Ratio)}},
		{name: "flow-64", load: one(64), open: openFlow, by: byCommands, goals: []goal{
			atMost("processor µs/op", 1_100, processorTime), atMost("entries/op", 0.4, entriesPerOperation),
		}},
		{name: "flow-256", load: one(256), open: openFlow, by: byCommands, few: true, goals: []goal{atMost("processor µs/op", 1_100, processorTime)}},
		{name: "ahead-1", load: one(1), open: openLine(flowSteps, flow.Repeatable()), by: byP50, few: true, goals: []goal{atMost("p50 ratio", 3.5, p50Ratio)}},
		{name: "ahead-64", load: one(64), open: openLine(flowSteps, flow.Repeatable()), by: byCommands, few: true, goals: []goal{atMost("processor µs/op", 750, processorTime)}},
		{name: "signal-1", load: one(1), open: openResume(aSignal, (*signals).send), by: byP50, few: true, goals: []goal{atMost("p50 ratio", 2, p50Ratio)}},
		{name: "signal-64", load: one(64), open: openSignal, by: byCommands, few: true, goals: []goal{atMost("processor µs/op", 1_500, processorTime)}},
		{name: "approve-1", load: one(1), open: openResume(anApproval, (*signals).approve), by: byP50, few: true, goals: []goal{atMost("p50 ratio", 2, p50Ratio)}},
		{name: "claim-16", load: one(16), open: openClaim, by: byCommands, goals: []goal{atLeast("ratio", 0.6, ratio)}},
		{name: "post-64", load: one(64), open: openPost, by: byOperations, goals: []goal{atLeast("ratio", 0.7, ratio)}},
		{name: "post-16x100", load: measure.Load{Callers: 16, PerCall: 100}, open: openPost, by: byOperations, goals: []goal{atLeast("ratio", 0.3, ratio)}},
	}
}

// fillPrefix marks a work among many waiting jobs, which is compared with the same work among
// few.
const fillPrefix = "fill/"

// The figures of nodes, by their names on the command line.
const (
	idleName     = "idle"
	memoryName   = "memory"
	snapshotName = "snapshot"
	restartName  = "restart"
	backupName   = "backup"
	replaceName  = "replace"
	hostileName  = "hostile"
	guardedName  = "guarded"
	workersName  = "workers"
	aheadName    = "repeatable"
	waitingName  = "waiting"
)

// names are all works and figures that can be selected.
func names() []string {
	var all []string
	for _, w := range works() {
		all = append(all, w.name)
	}
	for _, w := range works() {
		if !w.few {
			all = append(all, fillPrefix+w.name)
		}
	}
	return append(all, idleName, hostileName, guardedName, workersName, aheadName, waitingName, memoryName, backupName, replaceName, snapshotName, restartName)
}

// wanted are the names of the works to do.
type wanted map[string]bool

// choose returns the names that match one of the comma-separated patterns; without a pattern,
// all names. It also returns the patterns without a match.
func choose(patterns string) (chosen wanted, unknown []string) {
	chosen = wanted{}
	if patterns == "" {
		patterns = "*,fill/*"
	}
	for _, pattern := range strings.Split(patterns, ",") {
		matching := slices.DeleteFunc(names(), func(name string) bool {
			matches, err := path.Match(pattern, name)
			return err != nil || !matches
		})
		if len(matching) == 0 {
			unknown = append(unknown, pattern)
		}
		for _, name := range matching {
			chosen[name] = true
		}
	}
	return chosen, unknown
}

// works returns the works whose names, with the prefix, are chosen.
func (w wanted) works(prefix string) []work {
	return slices.DeleteFunc(works(), func(one work) bool { return !w[prefix+one.name] })
}

// floorLoad is the load of the other side.
func (w work) floorLoad(load measure.Load) measure.Load {
	if w.by != byOperations {
		load.PerCall = 1
	}
	return load
}

// floorBytes is the proposal size of one call of the floor: the log bytes of one call of the
// work, or of one of its commands.
func (w work) floorBytes(c cost) int {
	if w.by != byOperations {
		return max(1, int(measure.Share(c.Bytes, c.Commands)))
	}
	return max(1, int(c.Bytes)*w.load.PerCall)
}

// details returns a JSON string of the given number of bytes.
func details(size int) json.RawMessage {
	text := bytes.Repeat([]byte{'d'}, size)
	text[0], text[size-1] = '"', '"'
	return text
}

// timed measures a whole call.
func timed(call func(context.Context) error) func(context.Context) (time.Duration, error) {
	return func(ctx context.Context) (time.Duration, error) {
		began := time.Now()
		err := call(ctx)
		return time.Since(began), err
	}
}

// openPost posts jobs that no conductor takes.
func openPost(_ context.Context, at *place, load measure.Load) (*doing, error) {
	carried := details(detailBytes)
	return &doing{
		call:  timed(func(ctx context.Context) error { return post(ctx, at.client, load.PerCall, carried) }),
		close: func() {},
	}, nil
}

// post posts jobs in one call. It chooses the ids, so a repeat after a lost answer posts no
// job twice.
func post(ctx context.Context, client *raftboard.Client, count int, carried json.RawMessage) error {
	postings := make([]jobs.Posting, count)
	for i := range postings {
		postings[i] = jobs.Posting{ID: jobs.NewJobID(), Board: benchBoard, Name: "bench", Kind: postKind, Details: carried}
	}
	return postAll(ctx, client, postings)
}

// openRead reads a job that no conductor can claim.
func openRead(ctx context.Context, at *place, _ measure.Load) (*doing, error) {
	job, err := jobs.PostOne(ctx, at.client, jobs.Posting{Board: benchBoard, Name: "bench", Kind: postKind, Hold: true, Details: details(detailBytes)})
	if err != nil {
		return nil, err
	}
	return &doing{
		call: timed(func(ctx context.Context) error {
			_, err := at.client.Job(ctx, job.ID)
			return err
		}),
		close: func() {},
	}, nil
}
