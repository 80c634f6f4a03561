// Command conformance is the step worker in Go that `conductord step test` tests. Its argument
// names a deliberate fault, to test the tests themselves.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/steps"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
)

func main() {
	if err := work(strings.Join(os.Args[1:], " ")); err != nil {
		log.Fatal(err)
	}
}

func work(fault string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	client, err := raftboard.Dial(ctx, os.Getenv("CONDUCTORD_SERVER"))
	if err != nil {
		return err
	}
	defer client.Close()
	err = conductor.RunWorker(ctx, conductor.WorkerOptions{Client: faulty{client, fault}, Tasks: tasks(fault)})
	if fault == "exit" {
		os.Exit(3)
	}
	return err
}

// faulty is a client with a fault.
type faulty struct {
	*raftboard.Client
	fault string
}

func (f faulty) Register(ctx context.Context, session jobs.SessionID, entity jobs.Entity) error {
	if f.fault == "slots" {
		entity.MaxJobs = 2
	}
	return f.Client.Register(ctx, session, entity)
}

func (f faulty) PullSteps(ctx context.Context, pull steps.Pull) (steps.Pulled, error) {
	if f.fault == "promised" && pull.Slots == 0 && len(pull.Holds) == 0 {
		return steps.Pulled{}, nil
	}
	return f.Client.PullSteps(ctx, pull)
}

func (f faulty) ReportStep(ctx context.Context, worker jobs.SessionID, outcome steps.Outcome, wait time.Duration) (bool, error) {
	if f.fault == "logs" {
		outcome.Output = ""
	}
	if f.fault == "checkpoints" && outcome.Checkpoint != nil {
		return true, nil
	}
	if f.fault == "signals" {
		outcome.Sends = nil
	}
	recorded, err := f.Client.ReportStep(ctx, worker, outcome, wait)
	if f.fault == "twice" && recorded {
		_, _ = f.Client.ReportStep(ctx, worker, outcome, wait) // its answer changes nothing
	}
	return recorded, err
}

// keep is undone by unkeep.
type keep struct{}

func (keep) Execute(_ context.Context, call *flow.Call) (any, error) {
	return map[string]any{"kept": call.Arguments["value"]}, nil
}

func (keep) Revert(_ context.Context, call *flow.Call) error {
	want, err := json.Marshal(map[string]any{"kept": call.Arguments["value"]})
	if err == nil && !bytes.Equal(call.Result, want) {
		err = fmt.Errorf("the result is %s, want %s", call.Result, want)
	}
	return flow.Permanent(err)
}

func tasks(fault string) map[string]flow.Task {
	return map[string]flow.Task{
		"test.echo": task(func(_ context.Context, call *flow.Call) (any, error) {
			arguments := call.Arguments
			if fault == "unicode" {
				arguments = logbook.Values{}
				for name, text := range call.Arguments {
					arguments[name] = []byte(strings.Map(func(r rune) rune {
						if r > 0xffff {
							return '?'
						}
						return r
					}, string(text)))
				}
			}
			return map[string]any{"arguments": arguments, "attempt": call.Attempt, "key": call.Key()}, nil
		}),
		"test.fail":  task(fail),
		"test.sleep": task(func(ctx context.Context, call *flow.Call) (any, error) { return sleep(ctx, call, fault == "stop") }),
		"test.progress": task(func(ctx context.Context, call *flow.Call) (any, error) {
			for n := range int64(3) {
				fmt.Fprintf(flow.Output(ctx), "line %d\n", n+1)
				if err := call.Progress(n+1, 3, map[string]int64{"at": n + 1}); err != nil {
					return nil, err
				}
			}
			return map[string]int{"reported": 3}, nil
		}),
		"test.later": task(func(_ context.Context, call *flow.Call) (any, error) {
			if call.Asked < number(call, "times") {
				return nil, flow.NotYet(100 * time.Millisecond)
			}
			return map[string]int{"asked": call.Asked}, nil
		}),
		"test.checkpoint": task(func(ctx context.Context, call *flow.Call) (any, error) {
			row, rows := 0, number(call, "rows")
			_ = call.Checkpoints().Decode("row", &row) // an error: the first attempt
			row++
			if err := call.Checkpoint(ctx, "row", row); err != nil {
				return nil, err
			}
			if row < rows {
				return nil, fmt.Errorf("row %d of %d", row, rows)
			}
			return map[string]int{"row": row}, nil
		}),
		"test.signal": task(func(_ context.Context, call *flow.Call) (any, error) {
			var name string
			if err := call.Arguments.Decode("name", &name); err != nil {
				return nil, err
			}
			call.Signal(call.Job, logbook.Signal{Name: name})
			return map[string]string{"sent": name}, nil
		}),
		"test.keep": keep{}, "test.unkeep": keep{},
		"test.big": task(func(_ context.Context, call *flow.Call) (any, error) {
			return map[string]string{"data": strings.Repeat("x", number(call, "bytes"))}, nil
		}),
		"test.garbage": task(func(context.Context, *flow.Call) (any, error) { return work, nil }),
		"test.crash":   task(func(context.Context, *flow.Call) (any, error) { panic("unforeseen") }),
	}
}

func number(call *flow.Call, argument string) (n int) {
	_ = call.Arguments.Decode(argument, &n) // the test gives whole numbers
	return n
}

func fail(_ context.Context, call *flow.Call) (any, error) {
	var message, kind string
	var permanent bool
	err := errors.Join(call.Arguments.Decode("message", &message), call.Arguments.Decode("kind", &kind), call.Arguments.Decode("permanent", &permanent))
	if err != nil {
		return nil, err
	}
	return nil, &logbook.Failure{Message: message, Kind: kind, Permanent: permanent}
}

func sleep(ctx context.Context, call *flow.Call, deaf bool) (any, error) {
	if deaf {
		ctx = context.WithoutCancel(ctx)
	}
	seconds := number(call, "seconds")
	select {
	case <-time.After(time.Duration(seconds) * time.Second):
		return map[string]int{"slept": seconds, "attempt": call.Attempt}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// task is a step without a revert.
type task func(context.Context, *flow.Call) (any, error)

func (t task) Execute(ctx context.Context, call *flow.Call) (any, error) { return t(ctx, call) }
