package listen_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/flow/engine/listen"
)

// told passes events through a relay to the given listeners.
func told(t *testing.T, listeners ...listen.Listener) {
	t.Helper()
	relay := listen.New(listen.Options{}, listeners...)
	for _, event := range events {
		relay.Observe(event)
	}
	if err := relay.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func TestWhereTellsWhatIsWanted(t *testing.T) {
	second := func(event engine.Event) bool { return event.Attempt != nil && event.Attempt.Number == 2 }
	for _, row := range []struct {
		name    string
		filters []listen.Filter
		want    string
	}{
		{"everything", nil, "flow pay pay pay pay ship idle flow"},
		{"the flow alone", []listen.Filter{listen.OfFlow}, "flow flow"},
		{"the steps alone", []listen.Filter{listen.OfSteps()}, "pay pay pay pay ship idle"},
		{"some steps", []listen.Filter{listen.OfSteps("ship", "idle", "none")}, "ship idle"},
		{"failures", []listen.Filter{listen.Failures}, "pay"},
		{"one's own", []listen.Filter{second}, "pay pay"},
		{"all of several", []listen.Filter{listen.Failures, second}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			capture := listen.NewCapture(0)
			listener := listen.Where(capture, row.filters...)
			listener.Miss(3)
			told(t, listener)
			var names []string
			for _, event := range capture.Events() {
				if event.Step == "" {
					event.Step = "flow"
				}
				names = append(names, event.Step)
			}
			if got := strings.Join(names, " "); got != row.want || capture.Missed() != 3 {
				t.Errorf("told %q, and missed %d; want %q and 3", got, capture.Missed(), row.want)
			}
		})
	}
}

func TestOneListenerBehindTwoFilters(t *testing.T) {
	capture := listen.NewCapture(0)
	told(t, listen.Where(capture, listen.OfFlow), listen.Where(capture, listen.Failures))
	if n := len(capture.Events()); n != 3 {
		t.Errorf("told %d events, and not 3", n)
	}
}

// A filter is a part of its listener: when it panics, the other listeners still get events.
func TestFilterThatPanics(t *testing.T) {
	capture := listen.NewCapture(0)
	told(t, listen.Where(listen.NewCapture(0), func(engine.Event) bool { panic("aargh") }), capture)
	if n := len(capture.Events()); n != len(events) {
		t.Errorf("told %d events, and not %d", n, len(events))
	}
}

func TestLogLevelsOfFailures(t *testing.T) {
	for _, row := range []struct {
		levels listen.Levels
		want   string
	}{
		{listen.Levels{Events: hclog.Debug}, "WARN"},
		{listen.Levels{Events: hclog.Debug, Failures: hclog.Error}, "ERROR"},
		{listen.Levels{Events: hclog.Info, Failures: hclog.Debug}, "DEBUG"},
		{listen.Levels{Events: hclog.Error}, "ERROR"},
	} {
		var out bytes.Buffer
		logger := hclog.New(&hclog.LoggerOptions{Output: &out, DisableTime: true, Level: hclog.Debug})
		told(t, listen.Where(listen.LogAt(logger, row.levels), listen.Failures))
		if got := out.String(); !strings.HasPrefix(got, "["+row.want+"]") || strings.Count(got, "\n") != 1 {
			t.Errorf("%+v: got %s, want a line at %s", row.levels, got, row.want)
		}
	}
}

func TestTimestampsOfStates(t *testing.T) {
	stamps := &listen.Timestamps{}
	told(t, stamps)
	show := func(list []listen.Stamp) string {
		var parts []string
		for _, s := range list {
			parts = append(parts, fmt.Sprintf("%s %s-%s x%d", s.State, s.First.Sub(noon), s.Last.Sub(noon), s.Count))
		}
		return strings.Join(parts, ", ")
	}
	for _, row := range []struct{ got, want string }{
		{show(stamps.Flow()), "running 0s-0s x1, reverted 2m0s-2m0s x1"},
		{show(stamps.Step("pay")), "running 0s-1m0s x2, pending 1s-1s x1, success 1m0s-1m0s x1"},
		{show(stamps.Step("idle")), "reverted 1m0s-1m0s x1"},
		{show(stamps.Step("none")), ""},
	} {
		if row.got != row.want {
			t.Errorf("got %s, want %s", row.got, row.want)
		}
	}
	before := stamps.Step("pay")
	copied := slices.Clone(before)
	before[0].Last = noon.Add(time.Hour)
	if !slices.Equal(stamps.Step("pay"), copied) {
		t.Error("what was given is not a copy")
	}
}
