package fsm_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/jobs"
)

// manyEvents makes two entries with many events each, and a third with one event.
func manyEvents(r *rig, each int) {
	for entry := range 2 {
		var many []*v1.Posting
		for n := range each {
			many = append(many, posting(fmt.Sprint("job ", entry, " ", n), "k"))
		}
		r.do(post(many[:each/2]...), post(many[each/2:]...))
	}
	r.do(post(posting("last", "k")))
}

// TestEventsOfFullEntries: from any position within an entry's events, and with any limit, a
// watcher gets the next events.
func TestEventsOfFullEntries(t *testing.T) {
	const each = 100
	r := newRig(t)
	manyEvents(r, each)
	var want []jobs.Position
	for entry := range uint64(2) {
		for item := range uint32(each) {
			want = append(want, jobs.Position{Index: entry + 1, Item: item + 1})
		}
	}
	want = append(want, jobs.Position{Index: 3, Item: 1})
	for at := range want {
		after := jobs.Position{}
		if at > 0 {
			after = want[at-1]
		}
		for _, limit := range []int{1, 7, 0} {
			page, err := r.EventsOf(&jobs.Watch{Flows: true, Sessions: true}, after, limit)
			if err != nil {
				t.Fatal(err)
			}
			next := want[at:]
			if limit > 0 {
				next = next[:min(limit, len(next))]
			}
			events := page.Events
			more := len(next) < len(want[at:])
			if len(events) != len(next) || page.Reached != next[len(next)-1] || page.Read != len(next) || page.More != more {
				t.Fatalf("after %v, %d events of %d up to %v, more: %v, and not %d up to %v, more: %v", after, len(events), page.Read, page.Reached, page.More, len(next), next[len(next)-1], more)
			}
			for i := range events {
				if events[i].Position != next[i] {
					t.Fatalf("after %v, event %d is at %v, and not at %v", after, i, events[i].Position, next[i])
				}
			}
		}
	}
	if none, err := r.EventsOf(&jobs.Watch{Flows: true, Sessions: true}, want[len(want)-1], 0); err != nil || len(none.Events) != 0 || none.Reached != want[len(want)-1] {
		t.Errorf("after the last: %d events up to %v (%v)", len(none.Events), none.Reached, err)
	}
	if none, err := r.EventsOf(&jobs.Watch{Owner: "nobody"}, jobs.Position{}, 0); err != nil || len(none.Events) != 0 || none.Reached != want[len(want)-1] {
		t.Errorf("of an unknown owner: %d events up to %v (%v)", len(none.Events), none.Reached, err)
	}
}

// TestEventsAreDroppedOneByOne: exactly the configured number of events is kept, even if
// dropped and kept events share a row.
func TestEventsAreDroppedOneByOne(t *testing.T) {
	const each = 100
	for kept := 1; kept <= 2*each+1; kept += 5 {
		r := newRigWith(t, fsm.Options{EventsKept: kept})
		manyEvents(r, each)
		gone := 2*each + 1 - kept
		last := jobs.Position{Index: uint64(1 + max(gone-1, 0)/each), Item: uint32(1 + max(gone-1, 0)%each)}
		if gone == 0 {
			last = jobs.Position{}
		}
		events, err := r.Events(last, 0)
		if err != nil || len(events) != kept {
			t.Errorf("%d events are kept behind %v, and not %d (%v)", len(events), last, kept, err)
		}
		if gone > 1 {
			last.Item--
			if _, err := r.Events(last, 0); !errors.Is(err, jobs.ErrCompacted) {
				t.Errorf("with %d kept, after %v: %v", kept, last, err)
			}
		}
		if err := fsm.Verify(r.Machine); err != nil {
			t.Error(err)
		}
	}
}

func TestBadRowsOfEvents(t *testing.T) {
	key := string(bytes.Repeat([]byte{0}, 11)) + "\x07"
	for _, row := range []struct {
		key, row string
		events   string
		good     bool
	}{
		{key, "\x03one\x00\x05three", "7:one 8: 9:three ", true},
		{key, "", "", true},
		{key[1:], "\x03one", "", false},
		{key, "\x03one\x06three", "7:one ", false},
		{key, "\x03one\x80", "7:one ", false},
		{key, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "", false},
	} {
		var events string
		all, err := fsm.EachEvent([]byte(row.key), []byte(row.row), func(position jobs.Position, event []byte) bool {
			events += fmt.Sprintf("%d:%s ", position.Item, event)
			return true
		})
		if events != row.events || (err == nil) != row.good || all != row.good {
			t.Errorf("%q has %q (all: %t, %v)", row.row, events, all, err)
		}
	}
}
