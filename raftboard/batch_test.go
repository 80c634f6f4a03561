package raftboard_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/raftboard/wire"
)

// holding is a script whose batched calls wait for the test.
func holding(faults ...fault) *script {
	return &script{faults: faults, hold: make(chan struct{}), entered: make(chan struct{}, 1000)}
}

func TestWaitingWritesTravelTogetherAndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers = 100
		s := holding()
		client := open(t, time.Minute, start(t, s, "a")...)
		flow := logbook.NewFlowID()
		ended := make(chan error, callers)
		update := func(number uint64) {
			verdicts, err := client.Update(t.Context(), logbook.Update{Flow: flow, Sequence: number})
			ended <- errors.Join(append(verdicts, err)...)
		}
		go update(1)
		<-s.entered // the first call is in flight, alone
		for number := uint64(2); number <= callers; number++ {
			go update(number)
			settled(t, "the update to wait", func() bool { return raftboard.Waiting(client) == int(number)-1 })
		}
		close(s.hold)
		for range callers {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if calls := s.count("a", "Execute"); calls != 2 {
			t.Errorf("%d calls, want 2: the first, and one with all that waited", calls)
		}
		for i, name := range s.ordered() {
			if want := fmt.Sprintf("update %d", i+1); name != want {
				t.Fatalf("command %d was %q, want %q", i+1, name, want)
			}
		}
	})
}

// TestLittleWaitsForACallThatCarriesMore has a call of six postings in flight: five postings wait
// for it, and a larger number is sent beside it.
func TestLittleWaitsForACallThatCarriesMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := holding()
		client := open(t, time.Minute, start(t, s, "a")...)
		ended := make(chan error, 4)
		post := func(jobsOfCall int) {
			posted, err := client.Post(t.Context(), slices.Repeat([]jobs.Posting{{Name: "one"}}, jobsOfCall)...)
			for _, one := range posted {
				err = errors.Join(err, one.Err)
			}
			ended <- err
		}
		go post(6)
		<-s.entered
		go post(5)
		settled(t, "five to wait", func() bool { return raftboard.WaitingPosts(client) == 1 })
		go post(wire.PackCommands / 2)
		<-s.entered // together with the five, beside the first
		go post(1)
		settled(t, "the last one to wait", func() bool { return raftboard.WaitingPosts(client) == 1 })
		close(s.hold)
		for range 4 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if calls := s.count("a", "Post"); calls != 3 {
			t.Errorf("%d calls, want 3", calls)
		}
	})
}

// TestFewGoBesideFew: a call does not wait for a single other call.
func TestFewGoBesideFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := holding()
		client := open(t, time.Minute, start(t, s, "a")...)
		ended := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := jobs.PostOne(t.Context(), client, jobs.Posting{Name: "one"})
				ended <- err
			}()
			<-s.entered
		}
		close(s.hold)
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestOrderSurvivesFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{faults: []fault{refuses, dropAfter, refuses, dropBefore, answers}}
		client := open(t, time.Minute, start(t, s, "a", "b")...)
		flow := logbook.NewFlowID()
		var updates []logbook.Update
		for number := uint64(1); number <= 1000; number++ {
			updates = append(updates, logbook.Update{Flow: flow, Sequence: number})
		}
		verdicts, err := client.Update(t.Context(), updates...)
		if err != nil || errors.Join(verdicts...) != nil || len(verdicts) != len(updates) {
			t.Fatalf("%d verdicts, %v", len(verdicts), err)
		}
		// Without the repeats of the lost answer, each call follows its predecessor.
		seen := s.ordered()
		first := make(map[string]bool)
		seen = slices.DeleteFunc(seen, func(name string) bool {
			repeat := first[name]
			first[name] = true
			return repeat
		})
		for i, name := range seen {
			if want := fmt.Sprintf("update %d", i+1); name != want {
				t.Fatalf("command %d was %q, want %q", i+1, name, want)
			}
		}
		if len(seen) != len(updates) {
			t.Errorf("%d updates came into effect, want %d", len(seen), len(updates))
		}
	})
}

func TestCallsAreBoundedInBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		client := open(t, time.Minute, start(t, s, "a")...)
		large := json.RawMessage(`"` + strings.Repeat("x", 200<<10) + `"`)
		var postings []jobs.Posting
		for range 10 {
			postings = append(postings, jobs.Posting{Name: "large", Details: large})
		}
		posted, err := client.Post(t.Context(), postings...)
		if err != nil || len(posted) != len(postings) {
			t.Fatalf("%d posted, %v", len(posted), err)
		}
		if calls := s.count("a", "Post"); calls != 5 {
			t.Errorf("%d calls, want 5 of two postings each", calls)
		}
		var updates []logbook.Update
		for n := range 10 {
			attempt := logbook.Attempt{Action: logbook.ActionExecute, Number: 1, EndedAt: time.Now(), Result: large}
			updates = append(updates, logbook.Update{Flow: logbook.NewFlowID(), Sequence: uint64(n + 1), Atoms: []logbook.AtomChange{
				{Name: "step", Kind: logbook.KindTask, Attempts: []logbook.Attempt{attempt}},
			}})
		}
		verdicts, err := client.Update(t.Context(), updates...)
		if err != nil || errors.Join(verdicts...) != nil {
			t.Fatal(verdicts, err)
		}
		if calls := s.count("a", "Execute"); calls != 5 {
			t.Errorf("%d calls, want 5 of two updates each", calls)
		}
	})
}

func TestCallerThatLeavesTheQueueHasDoneNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := holding()
		client := open(t, time.Minute, start(t, s, "a")...)
		first := make(chan error)
		go func() {
			_, err := client.Update(t.Context(), logbook.Update{Flow: logbook.NewFlowID(), Sequence: 1})
			first <- err
		}()
		<-s.entered
		ctx, cancel := context.WithCancel(t.Context())
		second := make(chan error)
		go func() {
			_, err := client.Update(ctx, logbook.Update{Flow: logbook.NewFlowID(), Sequence: 2})
			second <- err
		}()
		settled(t, "the second to wait", func() bool { return raftboard.Waiting(client) == 1 })
		cancel()
		if err := <-second; !errors.Is(err, jobs.ErrUnavailable) || errors.Is(err, jobs.ErrUncertain) || !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want unavailable and canceled", err)
		}
		close(s.hold)
		if err := <-first; err != nil {
			t.Error(err)
		}
		if s.commands()["update 2"] != 0 {
			t.Error("the command of the caller that left was sent")
		}
	})
}

func TestCallerThatLeavesACallInFlightKnowsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := holding()
		client := open(t, time.Minute, start(t, s, "a")...)
		ended := make(chan error, 3)
		update := func(ctx context.Context, number uint64) {
			_, err := client.Update(ctx, logbook.Update{Flow: logbook.NewFlowID(), Sequence: number})
			ended <- err
		}
		go update(t.Context(), 1)
		<-s.entered
		ctx, cancel := context.WithCancel(t.Context())
		go update(ctx, 2)
		go update(t.Context(), 3)
		settled(t, "two to wait", func() bool { return raftboard.Waiting(client) == 2 })
		s.hold <- struct{}{}
		<-s.entered // both are in flight in one call
		if err := <-ended; err != nil {
			t.Error(err)
		}
		cancel()
		if err := <-ended; !errors.Is(err, jobs.ErrUncertain) || !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want uncertain and canceled", err)
		}
		close(s.hold)
		if err := <-ended; err != nil {
			t.Errorf("the remaining call: %v", err)
		}
	})
}

func TestOneBadCommandSpoilsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := holding()
		s.poll = func(_ string, commands int) any {
			if commands > 1 { // a node refuses the whole call because of one command
				return jobs.ErrInvalid
			}
			return nil
		}
		client := open(t, time.Minute, start(t, s, "a")...)
		ended := make(chan error, 4)
		for number := range uint64(4) {
			go func() {
				_, err := client.Update(t.Context(), logbook.Update{Flow: logbook.NewFlowID(), Sequence: number + 1})
				ended <- err
			}()
			if number == 0 {
				<-s.entered
			}
		}
		settled(t, "three to wait", func() bool { return raftboard.Waiting(client) == 3 })
		close(s.hold)
		for range 4 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if calls := s.count("a", "Execute"); calls != 5 {
			t.Errorf("%d calls, want 5: one, three together, and each of these", calls)
		}
	})
}

func TestTooLargeIsRefusedHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		client := open(t, time.Minute, start(t, s, "a")...)
		value := json.RawMessage(`"` + strings.Repeat("x", logbook.MaxLimits.Value) + `"`)
		posted, err := client.Post(t.Context(), jobs.Posting{Name: "good"}, jobs.Posting{Name: "large", Details: value}, jobs.Posting{})
		if err != nil || posted[0].Err != nil || !errors.Is(posted[1].Err, jobs.ErrLimit) || !errors.Is(posted[2].Err, jobs.ErrInvalid) {
			t.Errorf("got %+v, %v", posted, err)
		}
		if posted[1].Job.ID.IsZero() {
			t.Error("a refused posting has lost its id")
		}
		store := logbook.Values{}
		for i := range 8 {
			store[fmt.Sprint(i)] = json.RawMessage(`"` + strings.Repeat("x", 200<<10) + `"`)
		}
		book := logbook.Book{ID: logbook.NewBookID(), Name: "b", Meta: store}
		if err := client.SaveBook(t.Context(), book); !errors.Is(err, jobs.ErrLimit) {
			t.Errorf("a book of more than a command: %v", err)
		}
		// Each posting of a batch has its own result here too.
		posted, err = client.Post(t.Context(), jobs.Posting{Name: "good"}, jobs.Posting{Name: "large", Store: store})
		if err != nil || posted[0].Err != nil || !errors.Is(posted[1].Err, jobs.ErrLimit) {
			t.Errorf("got %+v, %v", posted, err)
		}
		if n := s.total(); n != 2 {
			t.Errorf("%d commands were sent, want 2", n)
		}
	})
}
