package handler

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/handler/scratch"
	"github.com/conductord/conductord/internal/traceparent"
	"github.com/conductord/conductord/logbook"
)

// The exit statuses with a special meaning, as in sysexits.h.
const (
	ExitPermanent = 65 // EX_DATAERR: another attempt is useless
	ExitTryAgain  = 75 // EX_TEMPFAIL: try again later; with not_yet on stdout: not done yet
)

const (
	// DefaultGrace is the time between SIGTERM and SIGKILL. A conductor cancels its steps at 0.8
	// of the session's TTL. With the defaults a handler is dead 5.2 s after the last keep-alive,
	// and no other conductor can claim the job before 5.5 s.
	DefaultGrace = 2 * time.Second
	// DefaultTimeout limits a handler whose step sets no timeout, so that a hanging handler does
	// not block its job forever.
	DefaultTimeout = time.Hour
)

// A file that is open for writing cannot be run (ETXTBSY). This happens briefly while a
// handler is being installed, and while a forked process has not yet closed its inherited
// descriptors.
const (
	busyTries = 6
	busyPause = 20 * time.Millisecond
)

// The names of a revert's inputs in addition to the step's arguments. A finally or on_error step has the cause, too.
const (
	inputResult   = "$result"
	inputFailure  = "$failure"
	inputFailures = "$failures"
	inputCause    = "$cause"
)

// The names of the inputs from earlier attempts of the round. An input without a value is omitted.
const (
	inputCheckpoints = "$checkpoints"
	inputProgress    = "$progress"
)

type settings struct {
	grace    time.Duration
	limits   logbook.Limits
	scratch  string
	confined *confined
	argv     []string
	mayLack  []string // arguments
}

// Option configures a handler.
type Option func(*settings)

// Grace sets the time between SIGTERM and SIGKILL. Default: DefaultGrace.
func Grace(grace time.Duration) Option { return func(s *settings) { s.grace = grace } }

// Limits sets the maximum size of a result. Default: logbook.MaxLimits.
func Limits(limits logbook.Limits) Option { return func(s *settings) { s.limits = limits } }

// Scratch sets the directory for working directories. Default: os.TempDir. The caller must
// remove abandoned directories in it at the start, as Open does in os.TempDir.
func Scratch(directory string) Option { return func(s *settings) { s.scratch = directory } }

// Task makes the work of a step from the handler that executes it and the handler that reverts
// it. The Task is a flow.Reverter only if revert is not empty. The handlers are looked up at each
// run, not here; Check looks them up now.
//
// A failure is a *logbook.Failure of kind handler (the handler cannot be found or started), handler.exit,
// handler.signal, result or timeout. A handler that answers not_yet gives a flow.NotYet, which is not a failure. When
// the context is cancelled, the error wraps its cause.
func (s *Set) Task(execute, revert string, options ...Option) flow.Task {
	t := task{set: s, execute: execute, settings: settings{
		grace:    DefaultGrace,
		limits:   logbook.MaxLimits,
		confined: &confined{},
	}}
	for _, option := range options {
		option(&t.settings)
	}
	if revert == "" {
		return &t
	}
	return &reverter{task: t, revert: revert}
}

type task struct {
	set      *Set
	execute  string
	settings settings
}

type reverter struct {
	task
	revert string
}

// Execute runs the handler; its stdout is the result.
func (t *task) Execute(ctx context.Context, call *flow.Call) (any, error) {
	result, err := t.run(ctx, call, t.execute, input(call))
	if err != nil {
		return nil, err
	}
	return result, nil
}

// Revert runs the revert handler. Its output must also be JSON, and is discarded.
func (t *reverter) Revert(ctx context.Context, call *flow.Call) error {
	_, err := t.run(ctx, call, t.revert, revertInput(call))
	return err
}

func input(call *flow.Call) map[string]any {
	values := make(map[string]any, len(call.Arguments)+3)
	for name, value := range call.Arguments {
		values[name] = value
	}
	if saved := call.Checkpoints(); len(saved) > 0 {
		values[inputCheckpoints] = saved
	}
	if call.LastProgress != nil {
		values[inputProgress] = call.LastProgress
	}
	if call.Final {
		values[inputCause] = nil
		if call.Cause.Kind != "" {
			values[inputCause] = call.Cause
		}
	}
	return values
}

func revertInput(call *flow.Call) map[string]any {
	values := input(call)
	values[inputResult] = call.Result
	values[inputFailure] = call.Failure
	values[inputFailures] = call.FlowFailures
	values[inputCause] = call.Cause
	return values
}

// run is one run of one handler, from its name to its result.
func (t *task) run(ctx context.Context, call *flow.Call, name string, values map[string]any) (json.RawMessage, error) {
	call.KeepUnbegun(true)
	if err := ctx.Err(); err != nil {
		return nil, t.stopped(ctx, name)
	}
	line, err := logbook.EncodeJSON(values) // one line, which a shell can read
	if err != nil {
		return nil, unrunnable(fmt.Errorf("cannot encode the arguments of the handler %s: %w", name, err))
	}
	argv, err := arguments(t.settings.argv, t.settings.mayLack, call)
	if err != nil {
		return nil, err
	}
	file, path, err := t.set.open(name)
	if err != nil {
		return nil, unrunnable(err)
	}
	defer file.Close()
	own := t.settings
	own.confined = own.confined.of(call.Board)
	held, directory, err := own.workplace()
	if err != nil {
		return nil, unrunnable(fmt.Errorf("cannot make a working directory for the handler %s: %w", name, err))
	}
	// The outcome of the step is known. It must not be lost because a directory cannot be removed
	// in time.
	defer func() {
		if errors.Is(held.Remove(), scratch.ErrUnfinished) {
			t.set.sweepLater(t.settings.scratch, stepPrefix)
		}
	}()

	ctx, cancel := t.bounded(ctx)
	defer cancel()
	var process *process
	var end ending
	for try := 1; ; try++ {
		if process, err = newProcess(&t.set.children, file, path, directory, append(line, '\n'), flow.Output(ctx), call, own); err != nil {
			return nil, unrunnable(err)
		}
		if parent := traceparent.Of(ctx); parent != "" {
			process.command.Env = append(process.command.Env, traceparent.Variable+"="+parent)
		}
		process.command.Args = append(process.command.Args, argv...)
		if end, err = process.run(ctx); !errors.Is(err, syscall.ETXTBSY) || try == busyTries {
			break
		}
		pause(ctx, busyPause)
	}
	if err != nil {
		return nil, unrunnable(err)
	}
	call.KeepUnbegun(false)
	call.KeepStderr(process.stderr.text())
	return t.outcome(ctx, name, process, end)
}

// workplace makes a working directory inside a directory that this process has locked. A handler
// may lock its own directory, and would otherwise wait forever for our lock.
func (s *settings) workplace() (*scratch.Dir, string, error) {
	held, err := scratch.Make(s.scratch, stepPrefix)
	if err != nil {
		return nil, "", err
	}
	directory := filepath.Join(held.Path, "work")
	if err = os.Mkdir(directory, 0o700); err == nil {
		err = s.confined.give(held.Path, directory)
	}
	if err != nil {
		return nil, "", errors.Join(err, held.Remove())
	}
	return held, directory, nil
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (t *task) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, DefaultTimeout)
}

// outcome is the result of a run. The first reason is reported: for a handler that we killed, this is the reason for
// the kill, not the signal.
func (t *task) outcome(ctx context.Context, name string, p *process, end ending) (json.RawMessage, error) {
	said, _ := p.stderr.text()
	switch status, ok := end.state.Sys().(syscall.WaitStatus); {
	case end.overflow:
		return nil, failure(logbook.FailureResult, 0,
			fmt.Sprintf("handler %s wrote more than %d bytes to stdout and was killed", name, t.settings.limits.Value), "")
	case end.stopped:
		return nil, t.stopped(ctx, name)
	case ok && status.Signaled():
		return nil, failure(logbook.FailureSignal, int(status.Signal()),
			fmt.Sprintf("handler %s was killed by signal %d (%s)", name, status.Signal(), status.Signal()), said)
	case end.state.ExitCode() == ExitTryAgain:
		if err := notYet(name, p.stdout.kept); err != nil {
			return nil, err
		}
		return nil, t.failed(name, ExitTryAgain, said, p.stdout.kept)
	case !end.state.Success():
		return nil, t.failed(name, end.state.ExitCode(), said, p.stdout.kept)
	}
	return t.result(name, p.stdout.kept)
}

// stopped distinguishes the end of the step's own time, which is a failure of the step, from
// other causes of a context's end, which are not.
func (t *task) stopped(ctx context.Context, name string) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return failure(logbook.FailureTimeout, 0, fmt.Sprintf("handler %s exceeded its timeout and was killed", name), "")
	}
	return fmt.Errorf("handler %s was stopped: %w", name, context.Cause(ctx))
}

func exitFailure(name string, status int, said string) *logbook.Failure {
	message := fmt.Sprintf("handler %s ended with status %d", name, status)
	switch status {
	case ExitPermanent:
		message += ", which forbids another attempt"
	case ExitTryAgain:
		message += ", which asks for another attempt"
	}
	f := failure(logbook.FailureExit, status, message, said)
	f.Permanent = status == ExitPermanent
	return f
}

// result checks the handler's answer. Empty output means null.
func (t *task) result(name string, answer []byte) (json.RawMessage, error) {
	answer = bytes.TrimSpace(answer)
	if len(answer) == 0 {
		return json.RawMessage("null"), nil
	}
	if err := t.settings.limits.CheckValue("stdout of handler "+name, answer); err != nil {
		const excerpt = 120
		return nil, failure(logbook.FailureResult, 0, err.Error(), fmt.Sprintf("stdout starts with %.*q", excerpt, answer))
	}
	return answer, nil
}

// unrunnable is not a permanent failure: the handler may be installed or
// repaired while the step waits for its next attempt. A name is never repaired.
func unrunnable(err error) *logbook.Failure {
	f := failure(logbook.FailureHandler, 0, err.Error(), "")
	f.Permanent = errors.Is(err, logbook.ErrInvalid)
	return f
}

// failure makes the record of a failure. said is the evidence, whose last line becomes part of the
// message.
func failure(kind string, code int, message, said string) *logbook.Failure {
	if said = lastLine(said); said != "" {
		message += ": " + said
	}
	return &logbook.Failure{Kind: kind, Code: code, Message: message}
}
