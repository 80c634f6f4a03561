package fsm_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
)

func TestStatesAreCounted(t *testing.T) {
	if len(jobs.States) != fsm.StateCount {
		t.Errorf("there are %d states, and the ledger counts %d", len(jobs.States), fsm.StateCount)
	}
}

func TestOpenDeletesWhatItFinds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	for _, name := range []string{path, path + ".restoring"} {
		if err := os.WriteFile(name, []byte("not a database"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m, err := fsm.Open(fsm.Options{Path: path, MmapSize: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if _, err := os.Stat(path + ".restoring"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a half-received snapshot is left: %v", err)
	}
	if m.AppliedIndex() != 0 || !m.Time().IsZero() || m.LastPosition() != (jobs.Position{}) || !m.NextDue().IsZero() {
		t.Error("a new machine is not empty")
	}
}

func TestOpenReportsAllFaults(t *testing.T) {
	_, err := fsm.Open(fsm.Options{EventsKept: -1, MmapSize: -1})
	for _, word := range []string{"path", "-1 events", "-1 bytes"} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("the error does not speak of %q: %v", word, err)
		}
	}
}

func TestApplySkipsAndMoves(t *testing.T) {
	r := newRig(t)
	first := r.entry(post(posting("a", "k")))
	noop := fsm.Entry{Index: 2, Term: 2}
	results, err := r.Apply([]fsm.Entry{first, noop})
	if err != nil || len(results) != 2 || len(results[0]) != 1 || results[1] != nil {
		t.Fatalf("results %v: %v", results, err)
	}
	if r.AppliedIndex() != 2 || r.AppliedTerm() != 2 {
		t.Errorf("applied %d of term %d", r.AppliedIndex(), r.AppliedTerm())
	}
	before := digest(t, r.Machine)
	results, err = r.Apply([]fsm.Entry{first, noop})
	if err != nil || results[0] != nil || results[1] != nil || digest(t, r.Machine) != before {
		t.Errorf("an entry was applied twice: %v %v", results, err)
	}
}

func TestUnknownEntriesStopTheMachine(t *testing.T) {
	good := encodeEntry(t, 2, start, post(posting("b", "k"))).Data
	rows := []struct {
		name string
		data []byte
		want error
	}{
		{"a version from the future", append([]byte{'C', command.Version + 1}, good[2:]...), command.ErrUnknownVersion},
		{"not an entry", []byte("hello"), command.ErrCorrupt},
		{"cut short", good[:len(good)-1], command.ErrCorrupt},
		{"an unknown command", encodeEntry(t, 2, start, &v1.Command{}).Data, command.ErrUnknownCommand},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t)
			r.posted(posting("a", "k"))
			before := digest(t, r.Machine)
			batch := []fsm.Entry{{Index: 2, Term: 1, Data: good}, {Index: 3, Term: 1, Data: row.data}}
			if _, err := r.Apply(batch); !errors.Is(err, row.want) {
				t.Fatalf("got %v, not %v", err, row.want)
			}
			if digest(t, r.Machine) != before {
				t.Error("half of the batch was applied")
			}
			if _, err := r.Apply(batch[:1]); !errors.Is(err, row.want) {
				t.Errorf("the machine continues: %v", err)
			}
		})
	}
}

// TestEveryVerbIsApplied compares both halves of the table of commands.
func TestEveryVerbIsApplied(t *testing.T) {
	for _, verb := range command.Verbs() {
		r := newRig(t)
		entry := encodeEntry(t, 1, start, verb.Command(verb.Request()))
		if _, err := r.Apply([]fsm.Entry{entry}); errors.Is(err, command.ErrUnknownCommand) {
			t.Errorf("%s is in command.Verbs, and is not applied", verb.Name)
		}
	}
}

func TestWaitApplied(t *testing.T) {
	r := newRig(t)
	waited := make(chan error, 1)
	go func() { waited <- r.WaitApplied(context.Background(), 2) }()
	r.do(open("ann"))
	select {
	case err := <-waited:
		t.Fatalf("answered before the entry: %v", err)
	default:
	}
	r.do(open("bob"))
	if err := <-waited; err != nil {
		t.Error(err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.WaitApplied(ended, 99); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	go func() { waited <- r.WaitApplied(context.Background(), 99) }()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; !errors.Is(err, fsm.ErrClosed) {
		t.Errorf("got %v", err)
	}
	if err := r.Close(); err != nil {
		t.Errorf("the second close: %v", err)
	}
	if _, err := r.Job(jobs.NewJobID()); !errors.Is(err, fsm.ErrClosed) {
		t.Errorf("got %v", err)
	}
	if _, err := r.Apply(nil); !errors.Is(err, fsm.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

func TestChanges(t *testing.T) {
	r := newRig(t)
	r.ok(open("ann"))
	if c := r.changes[0]; c.Index != 1 || len(c.Opened) != 1 || c.Opened[0].ID != sessionID("ann") || !c.Events {
		t.Errorf("changes %+v", c)
	}
	results, err := r.Apply([]fsm.Entry{
		r.entry(post(posting("a", "k"), posting("b", "l"), posting("c", "k"))), r.entry(claim("ann", id("a"), "n")),
	})
	if err != nil {
		t.Fatal(err)
	}
	c := r.changes[1]
	if !slices.Equal(c.Claimable, []fsm.Queue{{Board: "default", Kind: "k"}, {Board: "default", Kind: "l"}}) || !c.Events || c.Index != 3 {
		t.Errorf("changes %+v", c)
	}
	token := command.TokenFromProto(results[1][0].GetClaim().Granted[0].Token)
	r.ok(consume(success("a", token)))
	if c := r.changes[2]; !slices.Equal(c.Finished, []jobs.JobID{jobID(id("a"))}) {
		t.Errorf("changes %+v", c)
	}
	r.harmless(consume(success("a", token)))
	r.do()
	if len(r.changes) != 3 {
		t.Errorf("told of nothing: %+v", r.changes[3:])
	}
}

func TestListing(t *testing.T) {
	r := newRig(t)
	r.ok(open("ann"))
	for i := range 6 {
		p := posting(fmt.Sprint(i), []string{"k", "l"}[i%2])
		p.Board, p.Details = []string{"x", "y"}[i/3], value(`1`)
		r.posted(p)
	}
	token := r.ok(claim("ann", id("2"), "n")).GetClaim().Granted[0].Token
	r.ok(trash(&v1.Ending{Job: id("2"), Token: token, Failure: &v1.Failure{Kind: "error", Message: "m"}}))
	rows := []struct {
		name  string
		query jobs.Query
		want  string
		next  string
	}{
		{"all", jobs.Query{}, "0 1 2 3 4 5", ""},
		{"a board", jobs.Query{Board: "y"}, "3 4 5", ""},
		{"a kind", jobs.Query{Kind: "l"}, "1 3 5", ""},
		{"a state", jobs.Query{States: []jobs.State{jobs.StateTrashed}}, "2", ""},
		{"two states", jobs.Query{States: []jobs.State{jobs.StateTrashed, jobs.StateClaimable}, Board: "x"}, "0 1 2", ""},
		{"an unknown state", jobs.Query{States: []jobs.State{"odd"}}, "", ""},
		{"a page", jobs.Query{Limit: 2}, "0 1", "2"},
		{"the next page", jobs.Query{Limit: 2, After: "2"}, "2 3", "4"},
		{"the last page", jobs.Query{Limit: 2, After: "4"}, "4 5", ""},
		{"after all", jobs.Query{After: "99"}, "", ""},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			page, err := r.Jobs(row.query)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, job := range page.Items {
				names = append(names, job.Name)
				if job.Details != nil || (job.Failure != nil) != (job.Name == "2") {
					t.Errorf("listed %+v", job)
				}
			}
			if strings.Join(names, " ") != row.want || page.Next != row.next {
				t.Errorf("listed %q, next %q", names, page.Next)
			}
		})
	}
	counts := r.Counts()
	if counts[jobs.StateClaimable] != 5 || counts[jobs.StateTrashed] != 1 || len(counts) != len(jobs.States) {
		t.Errorf("counts %v", counts)
	}
}

func TestListingOfARareKindIsBounded(t *testing.T) {
	r := newRig(t)
	for range fsm.MaxExamined/1000 + 1 {
		var postings []*v1.Posting
		for range 1000 {
			postings = append(postings, &v1.Posting{Id: jobs.NewJobID().String(), Name: "n", Kind: "common"})
		}
		r.do(post(postings...))
	}
	r.do(post(posting("rare", "rare")))
	page, err := r.Jobs(jobs.Query{Kind: "rare"})
	if err != nil || len(page.Items) != 0 || page.Next != strconv.Itoa(fsm.MaxExamined) {
		t.Fatalf("%d jobs, next %q: %v", len(page.Items), page.Next, err)
	}
	page, err = r.Jobs(jobs.Query{Kind: "rare", After: page.Next})
	if err != nil || len(page.Items) != 1 || page.Next != "" {
		t.Errorf("%d jobs, next %q: %v", len(page.Items), page.Next, err)
	}
}

// TestLongEventsAreBounded: events are also limited in bytes, because many long events would fill a
// disk.
func TestLongEventsAreBounded(t *testing.T) {
	r := newRigWith(t, fsm.Options{EventsKept: 8})
	r.ok(open("ann")) // the first event
	abandoned := func(reason int) (kept int) {
		e := ending("a", r.job(id("a")).Token)
		e.Reason = strings.Repeat("x", reason)
		r.ok(abandon(e))
		for back := r.index; ; back-- { // from the latest entry to the oldest available one
			events, err := r.Events(jobs.Position{Index: back}, 0)
			if errors.Is(err, jobs.ErrCompacted) {
				return kept
			}
			if kept = len(events); kept == 0 || back == 0 || events[kept-1].Position != r.LastPosition() {
				return kept
			}
		}
	}
	claimed := func() { r.ok(claim("ann", id("a"), fmt.Sprint(r.index))) }
	r.posted(posting("a", "k"))
	for _, row := range []struct{ reason, kept int }{
		{10, 4},                    // open, post, claim and abandon
		{3 << 10, 6}, {3 << 10, 8}, // 8 KiB hold two long events
		{3 << 10, 4}, // the third displaces the first and earlier events
		{9 << 10, 1}, // the latest event is kept at any length
		{10, 2},
	} {
		claimed()
		if got := abandoned(row.reason); got != row.kept {
			t.Errorf("after a reason of %d bytes, %d events are kept, not %d", row.reason, got, row.kept)
		}
	}
}

func TestEventsAreBounded(t *testing.T) {
	r := newRigWith(t, fsm.Options{EventsKept: 4})
	for i := range 3 {
		r.do(post(posting(fmt.Sprint(i, "a"), "k"), posting(fmt.Sprint(i, "b"), "k")))
	}
	all, err := r.Events(jobs.Position{Index: 1, Item: 2}, 0)
	if err != nil || len(all) != 4 {
		t.Fatalf("%d events: %v", len(all), err)
	}
	if all[0].Position != (jobs.Position{Index: 2, Item: 1}) || all[3].Position != r.LastPosition() || !all[0].Time.Equal(start) {
		t.Errorf("events %+v", all)
	}
	for _, gone := range []jobs.Position{{}, {Index: 1, Item: 1}} {
		if _, err := r.Events(gone, 0); !errors.Is(err, jobs.ErrCompacted) {
			t.Errorf("after %v: %v", gone, err)
		}
	}
	rest, err := r.Events(all[1].Position, 1)
	if err != nil || len(rest) != 1 || rest[0].Position != all[2].Position {
		t.Errorf("resumed with %+v: %v", rest, err)
	}
	if none, err := r.Events(r.LastPosition(), 0); err != nil || len(none) != 0 {
		t.Errorf("after the last: %+v %v", none, err)
	}
	if err := fsm.Verify(r.Machine); err != nil {
		t.Error(err)
	}
}
