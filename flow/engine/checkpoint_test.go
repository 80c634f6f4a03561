package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/logbook/memory"
)

// importing is a step that imports three rows, and fails after each row: the checkpoint has the number of the rows.
func importing(rows *[]int, last **logbook.Progress) *flow.Step {
	return flow.Func("import", func(ctx context.Context, _ none) (none, error) {
		call, done := flow.CallFrom(ctx), 0
		if *last = call.LastProgress; call.Attempt > 1 {
			if err := call.Checkpoints().Decode("rows", &done); err != nil {
				return none{}, flow.Permanent(err)
			}
		}
		if done == 3 {
			return none{}, nil
		}
		*rows = append(*rows, done)
		_ = call.Progress(int64(done+1), 3, nil)
		if err := call.Checkpoint(ctx, "rows", done+1); err != nil {
			return none{}, flow.Permanent(err)
		}
		return none{}, errors.New("interrupted")
	}, flow.Retry(flow.Backoff{Attempts: 4}))
}

func TestCheckpointsContinueAStep(t *testing.T) {
	var rows []int
	var last *logbook.Progress
	result, err := engine.RunLocal(t.Context(), flow.Linear("f", importing(&rows, &last)), nil)
	if err != nil || fmt.Sprint(rows) != "[0 1 2]" {
		t.Errorf("imported the rows %v, %v", rows, err)
	}
	if last == nil || last.Done != 3 {
		t.Errorf("the last attempt got the progress %+v", last)
	}
	if counts := result.Detail.Atoms[0].Checkpoints; counts != nil {
		t.Errorf("the finished step has checkpoints: %+v", counts)
	}
}

// TestCheckpointsSurviveTheirRun: the next run of the flow, in another process, finds the checkpoints and the progress of the
// run before.
func TestCheckpointsSurviveTheirRun(t *testing.T) {
	book, id := memory.New(logbook.MaxLimits), logbook.NewFlowID()
	ctx, die := context.WithCancelCause(t.Context())
	var found logbook.Values
	var last *logbook.Progress
	root := func() flow.Node {
		return act("import", func(inner context.Context) error {
			call := flow.CallFrom(inner)
			if found, last = call.Checkpoints(), call.LastProgress; call.Attempt > 1 {
				return nil
			}
			if err := errors.Join(call.Progress(7, 9, nil), call.Checkpoint(inner, "row", 7)); err != nil {
				return err
			}
			die(errors.New("power cut"))
			<-inner.Done()
			return inner.Err()
		})
	}
	if _, err := (engine.Local{Logbook: book, Flow: id}).Run(ctx, root(), nil); err == nil {
		t.Fatal("the first run has ended without an error")
	}
	detail, err := book.FlowDetail(t.Context(), id)
	if err != nil || detail.Atoms[0].Checkpoints == nil || detail.Atoms[0].Checkpoints.Last != "row" {
		t.Fatalf("recorded %+v, %v", detail.Atoms, err)
	}
	if _, err := (engine.Local{Logbook: book, Flow: id}).Run(t.Context(), root(), nil); err != nil || string(found["row"]) != "7" {
		t.Errorf("the second run found %s, %v", found, err)
	}
	if last == nil || last.Done != 7 {
		t.Errorf("the second run found the progress %+v", last) // a checkpoint records it too
	}
}

// TestARoundBeginsWithoutCheckpoints: a retry that undoes a step gives it no checkpoints of the round before; the
// revert of a failed execution finds them.
func TestARoundBeginsWithoutCheckpoints(t *testing.T) {
	var executions, reverts []int
	step := flow.FuncRevert("book", func(ctx context.Context, _ none) (none, error) {
		call := flow.CallFrom(ctx)
		executions = append(executions, len(call.Checkpoints()))
		if err := call.Checkpoint(ctx, "room", 4); err != nil {
			return none{}, flow.Permanent(err)
		}
		if call.Round == 0 {
			return none{}, errors.New("no room")
		}
		return none{}, nil
	}, func(ctx context.Context, _ none, _ *none) error {
		reverts = append(reverts, len(flow.CallFrom(ctx).Checkpoints()))
		return nil
	})
	if _, err := engine.RunLocal(t.Context(), flow.Linear("f", step).WithRetry(flow.Times("times", 2)), nil); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(executions, reverts) != "[0 0] [1]" {
		t.Errorf("executions found %v checkpoints, and the revert %v", executions, reverts)
	}
}

func TestOnceRunsOnce(t *testing.T) {
	charged, failed := 0, 0
	step := act("pay", func(ctx context.Context) error {
		if _, err := flow.Once(ctx, "refused", func() (int, error) { failed++; return 0, errors.New("busy") }); err == nil {
			return flow.Permanent(errors.New("an error was recorded as a result"))
		}
		receipt, err := flow.Once(ctx, "charge", func() (string, error) { charged++; return fmt.Sprintf("receipt %d", charged), nil })
		if err != nil || receipt != "receipt 1" {
			return flow.Permanent(fmt.Errorf("got %q, %w", receipt, err))
		}
		if flow.CallFrom(ctx).Attempt < 3 {
			return errors.New("again")
		}
		return nil
	}, flow.Retry(flow.Backoff{Attempts: 3}))
	if _, err := engine.RunLocal(t.Context(), flow.Linear("f", step), nil); err != nil || charged != 1 || failed != 3 {
		t.Errorf("charged %d times, tried the refused call %d times: %v", charged, failed, err)
	}
	if _, err := flow.Once(t.Context(), "x", func() (int, error) { return 1, nil }); err == nil {
		t.Error("Once works outside a step")
	}
}

func TestCheckpointsAreLimited(t *testing.T) {
	var late *flow.Call
	step := act("fill", func(ctx context.Context) error {
		call := flow.CallFrom(ctx)
		late = call
		full := strings.Repeat("x", logbook.MaxCheckpoint-len(`""`))
		if err := call.Checkpoint(ctx, "long", full+"x"); !errors.Is(err, logbook.ErrLimit) {
			return fmt.Errorf("a long value: %w", err)
		}
		if err := call.Checkpoint(ctx, "", 1); !errors.Is(err, logbook.ErrInvalid) {
			return fmt.Errorf("an empty name: %w", err)
		}
		if err := call.Checkpoint(ctx, "chan", make(chan int)); !errors.Is(err, logbook.ErrInvalid) {
			return fmt.Errorf("no JSON: %w", err)
		}
		for size := 0; size+len("00")+logbook.MaxCheckpoint <= logbook.MaxCheckpointBytes; size += len("00") + logbook.MaxCheckpoint {
			if err := call.Checkpoint(ctx, fmt.Sprintf("%02d", size%97), full); err != nil {
				return err
			}
		}
		if err := call.Checkpoint(ctx, "over", full); !errors.Is(err, logbook.ErrLimit) {
			return fmt.Errorf("more bytes: %w", err)
		}
		return nil
	})
	if _, err := engine.RunLocal(t.Context(), flow.Linear("f", step, act("many", func(ctx context.Context) error {
		call := flow.CallFrom(ctx)
		for i := range logbook.MaxCheckpoints {
			if err := call.Checkpoint(ctx, fmt.Sprint(i), i); err != nil {
				return err
			}
		}
		if err := call.Checkpoint(ctx, "7", "again"); err != nil {
			return err
		}
		if err := call.Checkpoint(ctx, "over", 1); !errors.Is(err, logbook.ErrLimit) {
			return fmt.Errorf("more checkpoints: %w", err)
		}
		return nil
	})), nil); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := late.Checkpoint(ctx, "00", 1); err == nil {
		t.Error("a checkpoint was recorded after the end of its run")
	}
}

// TestLateCheckpointIsRefused: a call that has ended records nothing while its flow continues.
func TestLateCheckpointIsRefused(t *testing.T) {
	var first *flow.Call
	var late error
	step := act("import", func(ctx context.Context) error {
		call := flow.CallFrom(ctx)
		if call.Attempt == 1 {
			first = call
			return errors.New("again")
		}
		late = first.Checkpoint(ctx, "row", 1)
		if len(call.Checkpoints()) > 0 {
			return flow.Permanent(errors.New("it was recorded"))
		}
		return nil
	}, flow.Retry(flow.Backoff{Attempts: 2}))
	if _, err := engine.RunLocal(t.Context(), flow.Linear("f", step), nil); err != nil || !errors.Is(late, flow.ErrAttemptOver) {
		t.Errorf("%v, %v", err, late)
	}
}

// TestSecretsAreHiddenInCheckpoints: the record has the mark of a secret.
func TestSecretsAreHiddenInCheckpoints(t *testing.T) {
	const secret = "correct-horse-battery"
	var found logbook.Values
	step := flow.Func("login", func(ctx context.Context, in struct {
		Password string `json:"password"`
	}) (none, error) {
		call := flow.CallFrom(ctx)
		if found = call.Checkpoints(); call.Attempt == 1 {
			return none{}, errors.Join(errors.New("again"), call.Checkpoint(ctx, "url", "https://ann:"+in.Password+"@host/"))
		}
		return none{}, nil
	}, flow.Retry(flow.Backoff{Attempts: 2}))
	local := engine.Local{Secrets: func(context.Context, string) (string, error) { return secret, nil }}
	if _, err := local.Run(t.Context(), flow.Linear("f", step), logbook.Values{"password": []byte(`{"secret": "pw"}`)}); err != nil {
		t.Fatal(err)
	}
	if text := string(found["url"]); strings.Contains(text, secret) || !strings.Contains(text, "[secret pw]") {
		t.Errorf("the next attempt found %s", text)
	}
}
