package listen_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/flow/engine/listen"
	"github.com/conductord/conductord/logbook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ear records its events, and calls a function at an event of a step.
type ear struct {
	heard []string
	at    map[string]func()
}

func (e *ear) Hear(event engine.Event) {
	e.heard = append(e.heard, event.Step)
	if act := e.at[event.Step]; act != nil {
		act()
	}
}

func (e *ear) Miss(count int) {
	e.heard = append(e.heard, fmt.Sprintf("-%d", count))
	if act := e.at["miss"]; act != nil {
		act()
	}
}

func (e *ear) String() string { return strings.Join(e.heard, " ") }

func step(name string) engine.Event { return engine.Event{Step: name} }

func TestEventsComeInOrderToAll(t *testing.T) {
	first, second := &ear{}, &ear{}
	relay := listen.New(listen.Options{Capacity: 100}, first, nil, second)
	var want []string
	for i := range 100 {
		want = append(want, fmt.Sprint(i))
		relay.Observe(step(want[i]))
	}
	if err := relay.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, ear := range []*ear{first, second} {
		if got := ear.String(); got != strings.Join(want, " ") {
			t.Errorf("listener %d heard %s", i, got)
		}
	}
	if relay.Dropped() != 0 {
		t.Errorf("%d events were dropped", relay.Dropped())
	}
}

// TestAFullQueueDropsTheNewest checks the first event up until the others have
// come: with room for two, the fourth and fifth find none.
func TestAFullQueueDropsTheNewest(t *testing.T) {
	for _, row := range []struct {
		name    string
		after   []string // events when the queue is empty again
		want    string
		dropped int
	}{
		{"told with the next event", []string{"f", "g"}, "a b c -2 f g", 2},
		{"told at the end", nil, "a b c -2", 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				goOn := make(chan struct{})
				ear := &ear{at: map[string]func(){"a": func() { <-goOn }}}
				relay := listen.New(listen.Options{Capacity: 2}, ear)
				relay.Observe(step("a"))
				synctest.Wait()
				for _, name := range []string{"b", "c", "d", "e"} {
					relay.Observe(step(name)) // never blocks
				}
				close(goOn)
				synctest.Wait()
				for _, name := range row.after {
					relay.Observe(step(name))
				}
				if err := relay.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				if ear.String() != row.want || relay.Dropped() != row.dropped {
					t.Errorf("heard %s and dropped %d, want %s and %d", ear, relay.Dropped(), row.want, row.dropped)
				}
			})
		})
	}
}

func TestAListenerThatFailsIsLeftOut(t *testing.T) {
	for _, row := range []struct {
		name string
		fail func()
		log  string
	}{
		{"panics", func() { panic("aargh") }, "panic=aargh"},
		{"panics with an error", func() { panic(errors.New("woot")) }, "panic=woot"},
		{"ends its goroutine", runtime.Goexit, "panic="},
	} {
		for _, at := range []string{"b", "miss"} {
			t.Run(row.name+" at "+at, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var log bytes.Buffer
					goOn := make(chan struct{})
					before, bad, behind := &ear{at: map[string]func(){"a": func() { <-goOn }}}, &ear{at: map[string]func(){at: row.fail}}, &ear{}
					relay := listen.New(listen.Options{Capacity: 2, Logger: hclog.New(&hclog.LoggerOptions{Output: &log})}, before, bad, behind)
					relay.Observe(step("a"))
					synctest.Wait()
					for _, name := range []string{"b", "c", "dropped"} {
						relay.Observe(step(name))
					}
					close(goOn)
					synctest.Wait()
					relay.Observe(step("d"))
					if err := relay.Close(t.Context()); err != nil {
						t.Fatal(err)
					}
					want := map[string]string{"b": "a b", "miss": "a b c -1"}[at]
					if bad.String() != want || before.String() != "a b c -1 d" || behind.String() != "a b c -1 d" {
						t.Errorf("heard %s; %s; %s", before, bad, behind)
					}
					if strings.Count(log.String(), "it gets no more events") != 1 || !strings.Contains(log.String(), row.log) {
						t.Errorf("the log says %s", &log)
					}
				})
			})
		}
	}
}

// brokenOutput makes a logger panic.
type brokenOutput struct{}

func (brokenOutput) Write([]byte) (int, error) { panic("no log either") }

func TestALoggerThatPanicsBreaksNothing(t *testing.T) {
	logger := hclog.New(&hclog.LoggerOptions{Output: brokenOutput{}})
	behind := &ear{}
	relay := listen.New(listen.Options{Logger: logger}, listen.Log(logger, hclog.Info), behind)
	relay.Observe(step("a"))
	relay.Observe(step("b"))
	if err := relay.Close(t.Context()); err != nil || behind.String() != "a b" {
		t.Errorf("heard %s, %v", behind, err)
	}
}

func TestCloseDoesNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		ear := &ear{at: map[string]func(){"a": func() { <-goOn }}}
		relay := listen.New(listen.Options{Capacity: 1}, ear)
		relay.Observe(step("a"))
		synctest.Wait()
		relay.Observe(step("b"))
		relay.Observe(step("dropped"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := relay.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v while a listener blocks", err)
		}
		relay.Observe(step("late"))
		close(goOn)
		for range 2 {
			if err := relay.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if ear.String() != "a b -1" || relay.Dropped() != 2 {
			t.Errorf("heard %s, dropped %d", ear, relay.Dropped())
		}
	})
}

func TestObserveIsForManyRuns(t *testing.T) {
	capture := listen.NewCapture(0)
	relay := listen.New(listen.Options{}, capture)
	done := make(chan struct{})
	const runs, events = 4, 50
	for range runs {
		go func() {
			for range events {
				relay.Observe(step("a"))
			}
			done <- struct{}{}
		}()
	}
	for range runs {
		<-done
	}
	if err := relay.Close(t.Context()); err != nil || len(capture.Events()) != runs*events {
		t.Errorf("%d events, %v", len(capture.Events()), err)
	}
}

// A run passes events to its listeners through a relay, which is closed after the run.
func ExampleRelay() {
	ctx := context.Background()
	durations, capture := &listen.Durations{}, listen.NewCapture(100)
	relay := listen.New(listen.Options{}, listen.Log(hclog.Default(), hclog.Debug, "password"), durations, capture)
	root := flow.Linear("f", flow.Func("login", func(context.Context, struct{}) (struct{}, error) { return struct{}{}, nil }))
	_, err := engine.Local{Observe: relay.Observe}.Run(ctx, root, nil)
	fmt.Println(errors.Join(err, relay.Close(ctx)))
	fmt.Println(len(capture.Events()), "events,", durations.Steps()[0].Attempts, "attempt")
	// Output:
	// <nil>
	// 4 events, 1 attempt
}

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func attempt(action logbook.Action, number int, took time.Duration, failure, result string) *logbook.Attempt {
	a := &logbook.Attempt{Action: action, Number: number, StartedAt: noon}
	if took > 0 {
		a.EndedAt = noon.Add(took)
	}
	if failure != "" {
		a.Failure = &logbook.Failure{Kind: "weather", Message: failure}
	}
	if result != "" {
		a.Result = json.RawMessage(result)
	}
	return a
}

func TestLogMasksAtAnyDepth(t *testing.T) {
	for _, row := range []struct {
		name   string
		step   string
		result string
		want   string
		not    string
	}{
		{"at the top", "a", `{"user":"u","password":"hush"}`, `{"password":"***","user":"u"}`, "hush"},
		{"in any case", "a", `{"PassWord":"hush"}`, `{"PassWord":"***"}`, "hush"},
		{"whatever its type", "a", `{"token":{"a":["hush"]},"password":7341}`, `{"password":"***","token":"***"}`, "7341"},
		{"deep down", "a", `{"x":[{"y":[[{"password":"hush"}]]}]}`, `{"x":[{"y":[[{"password":"***"}]]}]}`, "hush"},
		{"both of two", "a", `{"password":"hush","password":"psst"}`, `{"password":"***"}`, "hush"},
		{"in a string that is JSON", "a", `{"body":" {\"password\":\"hush\",\"x\":1}"}`, `***`, "hush"},
		{"in a string in a string", "a", `["[\"{\\\"password\\\":\\\"hush\\\"}\"]"]`, `***`, "hush"},
		{"a step of that name", "Token", `"hush"`, "***", "hush"},
		{"a name with an escape", "a", `{"p\u0061ssword":"hush"}`, `***`, "hush"},
		{"nothing to mask", "a", `{"n":12345678901234567890,"t":"<&>"}`, `{"n":12345678901234567890,"t":"<&>"}`, "***"},
		{"text that is not JSON", "a", `"{password"`, "{password", "***"},
		{"too much of it", "a", `"` + strings.Repeat("é", 2_000) + `"`, "…", "\uFFFD"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var out bytes.Buffer
			listener := listen.Log(hclog.New(&hclog.LoggerOptions{Output: &out, JSONFormat: true}), hclog.Info, "password", "TOKEN")
			listener.Hear(engine.Event{Step: row.step, State: logbook.AtomSuccess, Attempt: attempt(logbook.ActionExecute, 1, time.Second, "", row.result)})
			var line struct {
				Result string `json:"result"`
			}
			if err := json.Unmarshal(out.Bytes(), &line); err != nil {
				t.Fatalf("%v in %s", err, &out)
			}
			if !strings.Contains(line.Result, row.want) || strings.Contains(line.Result, row.not) || len(line.Result) > 1_100 {
				t.Errorf("got %s, want %s", line.Result, row.want)
			}
		})
	}
}

// events are a short life of a flow.
var events = []engine.Event{
	{Time: noon, Flow: logbook.FlowRunning},
	{Time: noon, Step: "pay", State: logbook.AtomRunning, Attempt: attempt(logbook.ActionExecute, 1, 0, "", "")},
	{Time: noon.Add(time.Second), Step: "pay", State: logbook.AtomPending, Attempt: attempt(logbook.ActionExecute, 1, time.Second, "it rains", ""),
		RetryAt: noon.Add(time.Minute)},
	{Time: noon.Add(time.Minute), Step: "pay", State: logbook.AtomRunning, Attempt: attempt(logbook.ActionExecute, 2, 0, "", "")},
	{Time: noon.Add(time.Minute), Step: "pay", State: logbook.AtomSuccess, Attempt: attempt(logbook.ActionExecute, 2, 2*time.Second, "", `{"paid":true}`)},
	{Time: noon.Add(time.Minute), Step: "ship", State: logbook.AtomReverting, Attempt: attempt(logbook.ActionRevert, 1, 3*time.Second, "", "")},
	{Time: noon.Add(time.Minute), Step: "idle", State: logbook.AtomReverted},
	{Time: noon.Add(2 * time.Minute), Flow: logbook.FlowReverted},
}

func TestLogSaysWhatHappened(t *testing.T) {
	var out bytes.Buffer
	listener := listen.Log(hclog.New(&hclog.LoggerOptions{Output: &out, DisableTime: true, Level: hclog.Debug}), hclog.Debug)
	for _, event := range events {
		listener.Hear(event)
	}
	listener.Miss(3)
	want := `[DEBUG] flow changed: state=running
[DEBUG] step changed: step=pay state=running action=execute attempt=1
[WARN]  step changed: step=pay state=pending action=execute attempt=1 took=1s kind=weather error="it rains" retry_at=2026-01-02T12:01:00Z
[DEBUG] step changed: step=pay state=running action=execute attempt=2
[DEBUG] step changed: step=pay state=success action=execute attempt=2 took=2s result="{\"paid\":true}"
[DEBUG] step changed: step=ship state=reverting action=revert attempt=1 took=3s
[DEBUG] step changed: step=idle state=reverted
[DEBUG] flow changed: state=reverted
[WARN]  events were dropped: count=3
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
}

func TestPrintWritesLines(t *testing.T) {
	var out bytes.Buffer
	printer := listen.Print(&out)
	for _, event := range events {
		printer.Hear(event)
	}
	printer.Miss(3)
	want := `12:00:00.000 flow running
12:00:00.000 pay running (execute 1)
12:00:01.000 pay pending (execute 1, 1s): "it rains", again at 12:01:00.000
12:01:00.000 pay running (execute 2)
12:01:00.000 pay success (execute 2, 2s)
12:01:00.000 ship reverting (revert 1, 3s)
12:01:00.000 idle reverted
12:02:00.000 flow reverted
(3 events are missing here)
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
}

// countingWriter fails always.
type countingWriter int

func (w *countingWriter) Write([]byte) (int, error) { *w++; return 0, os.ErrClosed }

func TestPrintStopsAtAnError(t *testing.T) {
	var writes countingWriter
	printer := listen.Print(&writes)
	printer.Hear(events[0])
	printer.Hear(events[1])
	if writes != 1 {
		t.Errorf("wrote %d times to what is closed", writes)
	}
}

func TestDurationsAddUp(t *testing.T) {
	durations := &listen.Durations{}
	for _, event := range events[:len(events)-1] {
		durations.Hear(event)
	}
	durations.Miss(1)
	if started, ended := durations.Flow(); !started.Equal(noon) || !ended.IsZero() {
		t.Errorf("a flow that runs: from %s to %s", started, ended)
	}
	durations.Hear(events[len(events)-1])
	if _, ended := durations.Flow(); !ended.Equal(noon.Add(2 * time.Minute)) {
		t.Errorf("the flow has ended at %s", ended)
	}
	want := []listen.StepTime{
		{Step: "pay", Attempts: 2, Failures: 1, Executing: 3 * time.Second, Started: noon, Ended: noon.Add(2 * time.Second)},
		{Step: "ship", Attempts: 1, Reverting: 3 * time.Second, Started: noon, Ended: noon.Add(3 * time.Second)},
	}
	got := durations.Steps()
	if len(got) != len(want) {
		t.Fatalf("got %+v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got %+v, want %+v", got[i], want[i])
		}
	}
}

func TestCaptureKeepsTheLatest(t *testing.T) {
	for _, row := range []struct {
		size, events int
		want         string
		missed       int
	}{
		{3, 0, "", 1},
		{3, 2, "0 1", 1},
		{3, 3, "0 1 2", 1},
		{3, 4, "1 2 3", 2},
		{3, 8, "5 6 7", 6},
	} {
		capture := listen.NewCapture(row.size)
		capture.Miss(1)
		for i := range row.events {
			capture.Hear(step(fmt.Sprint(i)))
		}
		var names []string
		for _, event := range capture.Events() {
			names = append(names, event.Step)
		}
		if got := strings.Join(names, " "); got != row.want || capture.Missed() != row.missed {
			t.Errorf("%d of %d events: kept %q and missed %d, want %q and %d", row.size, row.events, got, capture.Missed(), row.want, row.missed)
		}
	}
}
