// Command languages is the Go worker of the trip in this directory: it books and cancels
// flights.
//
//	go run ./examples/languages
//
// CONDUCTORD_SERVER has the nodes; default: 127.0.0.1:7070.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
)

// booking is a step that books a flight. The type that reverts it is the same Task.
type booking struct{}

func (booking) Execute(ctx context.Context, call *flow.Call) (any, error) {
	dir, failAt, err := arguments(call)
	if err != nil {
		return nil, err
	}
	if err := note(dir, call, "begins"); err != nil {
		return nil, err
	}
	if err := whileBusy(ctx, filepath.Join(dir, call.Step+".busy")); err != nil {
		return nil, err
	}
	if failAt == call.Step {
		return nil, &logbook.Failure{Kind: "refused", Message: "no seats left", Permanent: true}
	}
	// A real step passes call.Key() to the airline, which makes one booking for all attempts.
	return "FL-189", note(dir, call, "books")
}

func (booking) Revert(_ context.Context, call *flow.Call) error {
	dir, _, err := arguments(call)
	if err != nil {
		return err
	}
	return note(dir, call, "cancels") // call.Result is nil if nothing was booked
}

func arguments(call *flow.Call) (dir, failAt string, err error) {
	if err := call.Arguments.Decode("dir", &dir); err != nil {
		return "", "", flow.Permanent(err)
	}
	return dir, failAt, flow.Permanent(call.Arguments.Decode("fail_at", &failAt))
}

// note adds a line to the log of the trip, in one write, so that lines of other processes do not
// mix with it.
func note(dir string, call *flow.Call, what string) error {
	file, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = fmt.Fprintf(file, "%s %s %d %s %s\n", call.Step, call.Action, call.Attempt, call.Key(), what)
	return err
}

// whileBusy waits while the file exists, which leaves time to kill the worker.
func whileBusy(ctx context.Context, file string) error {
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for {
		if _, err := os.Stat(file); os.IsNotExist(err) {
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func main() {
	if err := work(); err != nil {
		log.Fatal(err)
	}
}

func work() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := raftboard.Dial(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	return conductor.RunWorker(ctx, conductor.WorkerOptions{
		Client: client, Name: "go", TTL: 3 * time.Second, // after a kill, another worker gets the step this soon
		Tasks: map[string]flow.Task{"book-flight": booking{}, "cancel-flight": booking{}},
	})
}
