package schedules_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/schedules"
	"github.com/conductord/conductord/logbook"
)

// decided formats decisions as "post 10" and "skip 10-40 (4): why", in seconds.
func decided(decisions []schedules.SlotDecision) string {
	var words []string
	for _, d := range decisions {
		if d.Skip == "" {
			words = append(words, fmt.Sprintf("post %d", d.Slot.Unix()))
			continue
		}
		words = append(words, fmt.Sprintf("skip %d-%d (%d): %s", d.Slot.Unix(), d.Through.Unix(), d.Count, d.Skip))
	}
	return strings.Join(words, "; ")
}

func TestDecide(t *testing.T) {
	for _, row := range []struct {
		name         string
		decided, now int64
		missed       schedules.Missed
		want         string
		next         int64
	}{
		{"nothing is due", 0, 9, schedules.Missed{}, "", 10},
		{"one is due", 0, 10, schedules.Missed{}, "post 10", 20},
		{"a failover is no failure", 0, 40, schedules.Missed{Policy: schedules.MissedNone}, "post 10; post 20; post 30; post 40", 50},
		{"beyond the grace it is", 0, 41, schedules.Missed{Policy: schedules.MissedNone}, "skip 10-10 (1): missed; post 20; post 30; post 40", 50},
		{"the last one", 0, 100, schedules.Missed{}, "skip 10-50 (5): missed, and not among the last 1; post 60; post 70; post 80; post 90; post 100", 110},
		{"the last two", 0, 100, schedules.Missed{Policy: schedules.MissedLast, Last: 2}, "skip 10-40 (4): missed, and not among the last 2; post 50; post 60; post 70; post 80; post 90; post 100", 110},
		{"more than were missed", 0, 50, schedules.Missed{Last: 9}, "post 10; post 20; post 30; post 40; post 50", 60},
		{"a window", 0, 100, schedules.Missed{Policy: schedules.MissedWindow, Window: 50 * time.Second}, "skip 10-40 (4): missed, and older than 50s; post 50; post 60; post 70; post 80; post 90; post 100", 110},
	} {
		decisions, next := ruleOf(t, "@every 10s", "").Decide(time.Unix(row.decided, 0), time.Unix(row.now, 0), row.missed)
		if got := decided(decisions); got != row.want || next.Unix() != row.next {
			t.Errorf("%s: %q, next %d\nwant %q, next %d", row.name, got, next.Unix(), row.want, row.next)
		}
	}
}

// TestDecideIsBounded: the slots of a month, one per second, are decided in parts, each slot once.
func TestDecideIsBounded(t *testing.T) {
	slots := longtest.Rounds(3, 30) * 24 * 3600
	r := ruleOf(t, "@every 1s", "")
	now := time.Unix(int64(slots), 0)
	for name, missed := range map[string]schedules.Missed{
		"none": {Policy: schedules.MissedNone}, "last": {Last: 1_000}, "window": {Policy: schedules.MissedWindow, Window: time.Hour},
	} {
		at, posted, skipped := time.Unix(0, 0), 0, 0
		for calls := 0; ; calls++ {
			decisions, next := r.Decide(at, now, missed)
			if len(decisions) > schedules.MaxSlotDecisions+1 || calls > 10_000 {
				t.Fatalf("%s: %d decisions in call %d", name, len(decisions), calls)
			}
			for _, d := range decisions {
				if !d.Slot.Equal(r.Next(at)) {
					t.Fatalf("%s: after %s comes %s", name, at, d.Slot)
				}
				if at = d.Through; d.Skip == "" {
					posted++
				} else {
					skipped += int(d.Count)
				}
			}
			if next.After(now) {
				break
			}
		}
		onTime := int(schedules.SlotGrace/time.Second) + 1
		want := map[string]int{"none": onTime, "last": onTime + 1_000, "window": 3_601}[name]
		if posted != want || posted+skipped != slots {
			t.Errorf("%s: %d posted, want %d, and %d skipped", name, posted, want, skipped)
		}
	}
}

func TestSpanAndBetween(t *testing.T) {
	r := ruleOf(t, "@every 10s", "")
	span, next := r.Span(time.Unix(5, 0), time.Unix(40, 0), "paused")
	if got := decided([]schedules.SlotDecision{*span}); got != "skip 10-40 (4): paused" || next.Unix() != 50 {
		t.Errorf("%s, next %s", got, next)
	}
	if span, next = r.Span(time.Unix(5, 0), time.Unix(9, 0), "paused"); span != nil || next.Unix() != 10 {
		t.Errorf("%v, next %s", span, next)
	}
	if span, next = r.Span(time.Unix(0, 0), time.Unix(1_000_003, 0), "paused"); span.Through.Unix() != 1_000_003 || next.Unix() != 1_000_010 {
		t.Errorf("a long pause: %v, next %s", span, next)
	}
	if got := r.Between(time.Unix(10, 0), time.Unix(30, 0), 5); len(got) != 2 || got[0].Unix() != 10 {
		t.Errorf("between 10 and 30: %v", got)
	}
	if got := r.Between(time.Unix(0, 0), time.Unix(1_000, 0), 5); len(got) != 6 {
		t.Errorf("%d slots; 6 slots mean that there are too many", len(got))
	}
}

func TestExpand(t *testing.T) {
	s := &schedules.Schedule{
		ID: schedules.NewID(), Board: "night", Name: `b"p`,
		Posting: jobs.Posting{
			Details: json.RawMessage(`{"a": "<1>"}`), Store: logbook.Values{"disk": json.RawMessage(`"a"`)},
			Book: &logbook.Book{Name: "b", Flows: []logbook.FlowDetail{{Name: "f", Factory: logbook.Factory{Name: "k"}}}},
		},
	}
	slot := time.Date(2026, 3, 29, 3, 0, 0, 0, time.FixedZone("CEST", 7200))
	p, again := s.Expand(s.ID.SlotJob(slot), slot), s.Expand(s.ID.SlotJob(slot.UTC()), slot.UTC())
	if p.ID != again.ID || p.Book.ID != again.Book.ID || p.Book.Flows[0].ID != again.Book.Flows[0].ID {
		t.Error("the ids do not follow from the slot")
	}
	if other := s.ID.SlotJob(slot.Add(time.Second)); other == p.ID || s.ID.RunJob(jobs.NewNonce()) == p.ID {
		t.Error("another slot has the same job")
	}
	if string(p.Store["slot"]) != `"2026-03-29T01:00:00Z"` || string(p.Store["schedule"]) != `"b\"p"` || string(p.Store["disk"]) != `"a"` || p.Name != `b"p` || p.Board != "night" {
		t.Errorf("%+v", p)
	}
	if want := `{"a": "<1>"}`; string(p.Details) != want {
		t.Errorf("details %s, want %s", p.Details, want)
	}
	if _, spoilt := s.Posting.Store["slot"]; spoilt || !s.Posting.Book.ID.IsZero() {
		t.Error("the template was changed")
	}
	if err := jobs.CheckPosting(logbook.MaxLimits, &p); err != nil {
		t.Error(err)
	}
}

func TestCheckSchedule(t *testing.T) {
	good := func() *schedules.Schedule {
		return &schedules.Schedule{Name: "s", Rule: "@hourly", Posting: jobs.Posting{Kind: "k"}}
	}
	for name, row := range map[string]struct {
		spoil func(*schedules.Schedule)
		want  error
	}{
		"good": {func(*schedules.Schedule) {}, nil},
		"good, with a window": {func(s *schedules.Schedule) {
			s.Missed = schedules.Missed{Policy: schedules.MissedWindow, Window: time.Hour}
		}, nil},
		"no name":             {func(s *schedules.Schedule) { s.Name = "" }, jobs.ErrInvalid},
		"no rule":             {func(s *schedules.Schedule) { s.Rule = "" }, jobs.ErrInvalid},
		"a long rule":         {func(s *schedules.Schedule) { s.Rule = strings.Repeat("1", schedules.MaxRule+1) }, jobs.ErrLimit},
		"overlap":             {func(s *schedules.Schedule) { s.Overlap = "maybe" }, jobs.ErrInvalid},
		"missed":              {func(s *schedules.Schedule) { s.Missed.Policy = "maybe" }, jobs.ErrInvalid},
		"missed last":         {func(s *schedules.Schedule) { s.Missed.Last = schedules.MaxCatchUp + 1 }, jobs.ErrLimit},
		"missed none, last 1": {func(s *schedules.Schedule) { s.Missed = schedules.Missed{Policy: schedules.MissedNone, Last: 1} }, jobs.ErrInvalid},
		"no window":           {func(s *schedules.Schedule) { s.Missed.Policy = schedules.MissedWindow }, jobs.ErrInvalid},
		"window of last":      {func(s *schedules.Schedule) { s.Missed.Window = time.Hour }, jobs.ErrInvalid},
		"id":                  {func(s *schedules.Schedule) { s.Posting.ID = jobs.NewJobID() }, jobs.ErrInvalid},
		"board":               {func(s *schedules.Schedule) { s.Posting.Board = "b" }, jobs.ErrInvalid},
		"time":                {func(s *schedules.Schedule) { s.Posting.NotBefore = time.Unix(1, 0) }, jobs.ErrInvalid},
		"deadline":            {func(s *schedules.Schedule) { s.Posting.Deadline = time.Unix(1, 0) }, jobs.ErrInvalid},
		"traceparent": {func(s *schedules.Schedule) {
			s.Posting.Traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
		}, jobs.ErrInvalid},
		"signal":     {func(s *schedules.Schedule) { s.Posting.Key, s.Posting.Signal = "k", &logbook.Signal{Name: "paid"} }, jobs.ErrInvalid},
		"saved book": {func(s *schedules.Schedule) { s.Posting.BookID = logbook.NewBookID() }, jobs.ErrInvalid},
		"two flows": {func(s *schedules.Schedule) {
			s.Posting = jobs.Posting{Book: &logbook.Book{Name: "b", Flows: make([]logbook.FlowDetail, 2)}}
		}, jobs.ErrInvalid},
		"slot in the store": {func(s *schedules.Schedule) { s.Posting.Store = logbook.Values{"slot": json.RawMessage(`1`)} }, jobs.ErrInvalid},
		"name in the store": {func(s *schedules.Schedule) { s.Posting.Store = logbook.Values{"schedule": json.RawMessage(`1`)} }, jobs.ErrInvalid},
		"details":           {func(s *schedules.Schedule) { s.Posting.Details = json.RawMessage(`{`) }, jobs.ErrInvalid},
	} {
		s := good()
		row.spoil(s)
		if err := schedules.Check(logbook.MaxLimits, s); !errors.Is(err, row.want) || (row.want == nil && err != nil) {
			t.Errorf("%s: %v, want %v", name, err, row.want)
		}
	}
}
