package jobstest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

var watchRows = []row{
	{"the events of a job are in order", lifeIsTold},
	{"a watch continues after any event", watchGoesOn},
	{"events contain operator, kind and reason", eventsTell},
	{"events of a flow are sent on request", flowEvents},
	{"a watch of one job tells of no other", watchOneJob},
	{"a watch from now on misses nothing", watchFromNow},
	{"two watchers see the same", watchersAgree},
	{"a watch ends with its context", watchEndsWithContext},
}

// start is the position before all events.
var start = &jobs.Position{}

func comparePositions(a, b jobs.Position) int {
	return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.Item, b.Item))
}

// watch reads a number of events and checks that their positions only grow. It may run in its
// own goroutine.
func (k *kit) watch(watch jobs.Watch, count int) ([]jobs.Event, error) {
	ctx, cancel := context.WithTimeout(k.ctx, promptly*2)
	defer cancel()
	var seen []jobs.Event
	last := jobs.Position{}
	if watch.After != nil {
		last = *watch.After
	}
	for event, err := range k.Board.Watch(ctx, watch) {
		if err != nil {
			return seen, err
		}
		if comparePositions(event.Position, last) <= 0 {
			return seen, fmt.Errorf("the event at %v comes after the one at %v", event.Position, last)
		}
		last = event.Position
		if seen = append(seen, event); len(seen) == count {
			return seen, nil
		}
	}
	return seen, errors.New("the watch has ended")
}

// events reads events from the first one on.
func (k *kit) events(watch jobs.Watch, count int) []jobs.Event {
	k.Helper()
	watch.After = start
	seen, err := k.watch(watch, count)
	if err != nil {
		k.Fatalf("Watch: %v after %d of %d events: %v", err, len(seen), count, stories(seen))
	}
	return seen
}

// stories formats events as words: kind, job, and the job's state.
func stories(events []jobs.Event) []string {
	list := []string{}
	for _, event := range events {
		list = append(list, fmt.Sprint(event.Kind, " ", event.Name, " ", event.State))
	}
	return list
}

// live gives three jobs different lives, and returns the expected events.
func (k *kit) live() []string {
	k.Helper()
	session := k.session("worker")
	first := k.owned(session, "a")
	k.wants("Abandon", k.Board.Abandon(k.ctx, release(first)), nil)
	delayed := k.posting("b")
	delayed.NotBefore = time.Now().Add(time.Hour)
	k.post(delayed, k.posting("c"))
	again := k.claim(session, first.Job.ID)
	k.wants("Consume", k.Board.Consume(k.ctx, success(again)), nil)
	k.wants("Consume again", k.Board.Consume(k.ctx, success(again)), nil)
	third := k.soon(session)
	old := release(third)
	cooled := old
	cooled.Delay = 50 * time.Millisecond
	k.wants("Abandon", k.Board.Abandon(k.ctx, cooled), nil)
	third = k.soon(session)
	k.wants("Trash", k.Board.Trash(k.ctx, release(third)), nil)
	k.wants("Trash under an old token", k.Board.Trash(k.ctx, old), jobs.ErrFenced)
	return []string{
		"posted a claimable", "claimed a claimed", "abandoned a claimable",
		"posted b delayed", "posted c claimable",
		"claimed a claimed", "completed a completed",
		"claimed c claimed", "abandoned c cooling", "cooled c claimable", "claimed c claimed", "trashed c trashed",
	}
}

func lifeIsTold(k *kit) {
	want := k.live()
	events := k.events(jobs.Watch{Board: k.board}, len(want))
	k.same("events", stories(events), want)
	for i, event := range events {
		if event.Board != k.board || event.Job.IsZero() || event.Time.IsZero() {
			k.Errorf("event %d: %s", i, render(event))
		}
		if i > 0 && event.Time.Before(events[i-1].Time) {
			k.Errorf("event %d is of %v, after one of %v", i, event.Time, events[i-1].Time)
		}
	}
}

func watchGoesOn(k *kit) {
	want := k.live()
	events := k.events(jobs.Watch{Board: k.board}, len(want))
	for i := range events[:len(events)-1] {
		rest, err := k.watch(jobs.Watch{Board: k.board, After: &events[i].Position}, len(events)-i-1)
		k.wants("Watch", err, nil)
		k.same(fmt.Sprint("events after number ", i), rest, events[i+1:])
	}
	// From the last event on, the next event must be the first one seen.
	next := make(chan []jobs.Event, 1)
	go func() {
		seen, err := k.watch(jobs.Watch{Board: k.board, After: &events[len(events)-1].Position}, 1)
		k.wants("Watch", err, nil)
		next <- seen
	}()
	k.linger(k.session("idler"))
	k.posted("d")
	k.same("the event after the last", stories(answer(k, "Watch", next)), []string{"posted d claimable"})
}

func eventsTell(k *kit) {
	session := k.session("worker 7")
	claimed := k.owned(session, "a")
	ending := release(claimed)
	ending.Reason = "no flights today"
	k.wants("Abandon", k.Board.Abandon(k.ctx, ending), nil)
	again := k.claim(session, claimed.Job.ID)
	done := success(again)
	done.Outcome = jobs.OutcomeReverted
	k.wants("Consume", k.Board.Consume(k.ctx, done), nil)
	events := k.events(jobs.Watch{Board: k.board}, 5)
	for i, want := range []jobs.Event{
		{},
		{Owner: "worker 7", Token: claimed.Job.Token},
		{Owner: "worker 7", Token: claimed.Job.Token, Reason: ending.Reason},
		{Owner: "worker 7", Token: again.Job.Token},
		{Owner: "worker 7", Token: again.Job.Token, Outcome: jobs.OutcomeReverted},
	} {
		got := events[i]
		k.same(fmt.Sprint("event ", i),
			[]any{got.Job, got.Owner, got.Token, got.Reason, got.Outcome},
			[]any{claimed.Job.ID, want.Owner, want.Token, want.Reason, want.Outcome})
	}
}

func flowEvents(k *kit) {
	claimed := k.travelling(k.session("worker"), "travel")
	first := change(claimed, 1, logbook.FlowRunning)
	first.Atoms = []logbook.AtomChange{
		{Name: "fly", Kind: logbook.KindTask, State: logbook.AtomRunning},
		{Name: "stay", Kind: logbook.KindTask},
	}
	second := change(claimed, 2, "")
	second.Atoms = []logbook.AtomChange{{Name: "fly", State: logbook.AtomSuccess}}
	last := change(claimed, 3, logbook.FlowSuccess)
	k.wants("Update", k.update(first), nil)
	k.wants("Update", k.update(second), nil)
	k.wants("Update again", k.update(second), nil)
	ending := success(claimed)
	ending.Update = &last
	k.wants("Consume", k.Board.Consume(k.ctx, ending), nil)

	k.same("events without flows", stories(k.events(jobs.Watch{Board: k.board}, 3)),
		[]string{"posted travel claimable", "claimed travel claimed", "completed travel completed"})
	flows := make(map[string]string)
	states := []string{}
	for _, event := range k.events(jobs.Watch{Board: k.board, Flows: true}, 6) {
		if event.Kind != jobs.EventFlow {
			continue
		}
		if event.FlowState != "" {
			states = append(states, event.FlowState)
		}
		for _, step := range event.Steps {
			flows[step.Name] += " " + step.State
		}
	}
	k.same("states of the flow", states, []logbook.FlowState{logbook.FlowRunning, logbook.FlowSuccess})
	k.same("states of a step", flows["fly"], " running success")
}

func watchOneJob(k *kit) {
	session := k.session("worker")
	first, second := k.owned(session, "a"), k.owned(session, "b")
	k.wants("Consume", k.Board.Consume(k.ctx, success(second)), nil)
	k.wants("Consume", k.Board.Consume(k.ctx, success(first)), nil)
	k.same("events of one job", stories(k.events(jobs.Watch{Job: second.Job.ID}, 3)),
		[]string{"posted b claimable", "claimed b claimed", "completed b completed"})
}

// watchFromNow posts until the watcher has seen a job, and then posts some more. After the first
// seen job, none may be missing.
func watchFromNow(k *kit) {
	const more = 20
	first := make(chan struct{})
	seen := make(chan []string, 1)
	go func() {
		ctx, cancel := context.WithTimeout(k.ctx, promptly*2)
		defer cancel()
		var got []string
		for event, err := range k.Board.Watch(ctx, jobs.Watch{Board: k.board}) {
			if err != nil {
				k.Errorf("Watch: %v", err)
				break
			}
			if got = append(got, event.Name); len(got) == 1 {
				close(first)
			}
			if event.Name == "last" {
				break
			}
		}
		seen <- got
	}()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	var posted []string
	for beginning := true; beginning; {
		posted = append(posted, k.posted(fmt.Sprint("job ", len(posted))).Name)
		select {
		case <-first:
			beginning = false
		case <-k.ctx.Done():
			k.Fatal("the watch sees nothing")
		case <-ticker.C:
		}
	}
	for range more {
		posted = append(posted, k.posted(fmt.Sprint("job ", len(posted))).Name)
	}
	posted = append(posted, k.posted("last").Name)
	got := answer(k, "Watch", seen)
	if len(got) == 0 || len(got) > len(posted) {
		k.Fatalf("%d events were seen of %d", len(got), len(posted))
	}
	k.same("events from the first one seen", got, posted[len(posted)-len(got):])
}

func watchersAgree(k *kit) {
	const posters, each = 4, 10
	watched := make(chan []jobs.Event, 2)
	for range cap(watched) {
		go func() {
			seen, err := k.watch(jobs.Watch{Board: k.board, After: start}, posters*each)
			k.wants("Watch", err, nil)
			watched <- seen
		}()
	}
	var group sync.WaitGroup
	for i := range posters {
		group.Go(func() {
			for j := range each {
				k.wants("Post", k.verdict(k.posting(fmt.Sprint(i, " ", j))), nil)
			}
		})
	}
	group.Wait()
	one, other := answer(k, "Watch", watched), answer(k, "Watch", watched)
	k.same("events of two watchers", one, other)
	k.same("events read again", k.events(jobs.Watch{Board: k.board}, posters*each), one)
	once := make(map[jobs.JobID]bool)
	for _, event := range one {
		once[event.Job] = true
	}
	if len(once) != posters*each {
		k.Errorf("%d jobs were seen, want %d", len(once), posters*each)
	}
}

func watchEndsWithContext(k *kit) {
	ctx, cancel := context.WithCancel(k.ctx)
	ended := make(chan error, 1)
	go func() {
		var last error
		for _, err := range k.Board.Watch(ctx, jobs.Watch{Board: k.board}) {
			last = err
		}
		ended <- last
	}()
	k.linger(k.session("idler"))
	cancel()
	if err := answer(k, "Watch", ended); err != nil {
		k.wants("Watch", err, context.Canceled)
	}
}
