// Package steptest simulates a node for a step worker, and reports which rules of step workers the
// worker follows.
//
// The node and its conductor are real. A tap between the node and the worker sees each call.
package steptest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
)

// ruleTime limits the test of one rule.
const ruleTime = 30 * time.Second

const verdictFail = "FAIL"

// verdict is the result of the test of a rule.
type verdict struct {
	Rule     string  `json:"rule"`
	Verdict  string  `json:"verdict"` // ok, FAIL or skip
	Seconds  float64 `json:"seconds,omitempty"`
	Why      string  `json:"why,omitempty"` // the reason, if it was skipped
	Expected string  `json:"expected,omitempty"`
	Got      string  `json:"got,omitempty"`
	See      string  `json:"see,omitempty"` // the passage of docs/testing-workers.md
}

// report is all verdicts.
type report struct {
	Passed bool      `json:"passed"`
	Rules  []verdict `json:"rules"`
}

// tester has the flags of one run.
type tester struct {
	program *cli.Program
	handler string
	only    []string
}

// Command is `conductord step`, with further commands of this noun.
func Command(p *cli.Program, others ...*cobra.Command) *cobra.Command {
	t := &tester{program: p}
	cmd := &cobra.Command{
		Use:   "test [--rule NAME] (--handler PATH | -- COMMAND…)",
		Short: "Test whether a step worker or a handler follows the rules",
		Long: "Start a node in this process, run COMMAND as its step worker, and report which rules the worker follows. COMMAND\n" +
			"gets the node's address as CONDUCTORD_SERVER, and no other variable of conductord. It must run the types of\n" +
			"steps in docs/testing-workers.md. The test stops COMMAND with SIGTERM. If COMMAND is a shell script, it must start\n" +
			"the worker with exec.\n\n" +
			"With --handler, test an executable. It gets the type of step as its first argument, the step's arguments on\n" +
			"stdin, and everything else that a handler gets. Tests of the worker protocol do not run.\n\n" +
			"Exit code 0 means that all tested rules pass. The test takes less than a minute.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := t.check(args); err != nil {
				return cli.UsageError(err)
			}
			return t.run(cmd.Context(), args)
		},
	}
	cmd.Flags().StringVar(&t.handler, "handler", "", "test this executable as a handler")
	cmd.Flags().StringSliceVar(&t.only, "rule", nil, "test only these rules; repeatable or comma-separated")
	return cli.Noun("step", "Show and await steps of jobs; test step workers and handlers", append(others, cmd)...)
}

func (t *tester) check(command []string) error {
	if (t.handler == "") == (len(command) == 0) {
		return errors.New("name either a worker, as `-- COMMAND…`, or a handler, as --handler PATH")
	}
	var names []string
	for _, r := range rules() {
		names = append(names, r.name)
	}
	for _, name := range t.only {
		if !slices.Contains(names, name) {
			return fmt.Errorf("--rule names %.64q; the rules are %s", name, strings.Join(names, ", "))
		}
	}
	return nil
}

func (t *tester) run(ctx context.Context, command []string) (err error) {
	c, err := openCluster(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	tested := &trial{cluster: c}
	defer func() {
		if tested.worker != nil {
			tested.worker.close()
		}
	}()
	start := func() error {
		w, err := t.start(command, c)
		if err != nil {
			return err
		}
		tested.worker = w
		tested.entity, err = w.registered(ctx, c)
		return err
	}
	if err := start(); err != nil {
		return err
	}
	said, failed := t.judge(ctx, tested, start)
	if t.program.JSON() {
		if err := t.program.WriteJSON(said); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if failed > 0 {
		return fmt.Errorf("failed rules: %d of %d", failed, len(said.Rules))
	}
	return nil
}

// start starts the tested worker.
func (t *tester) start(command []string, c *cluster) (*worker, error) {
	if t.handler == "" {
		return startWorker(command, c.address)
	}
	path, err := filepath.Abs(t.handler)
	if err != nil {
		return nil, err
	}
	return startHandler(path, c)
}

// judge tests all rules, and writes each verdict at once. If the worker has ended, judge restarts
// it.
func (t *tester) judge(ctx context.Context, trial *trial, start func() error) (said report, failed int) {
	for _, r := range rules() {
		v := verdict{Rule: r.name, Verdict: "skip"}
		switch {
		case len(t.only) > 0 && !slices.Contains(t.only, r.name):
			continue
		case trial.worker.process == nil && !r.handler:
			v.Why = "the rule does not apply to handlers"
		default:
			if trial.err = nil; trial.worker.hasEnded() {
				trial.err = start()
			}
			v = r.judge(ctx, *trial)
		}
		if ctx.Err() != nil {
			return said, failed
		}
		if v.Verdict == verdictFail {
			failed++
		}
		said.Rules = append(said.Rules, v)
		if !t.program.JSON() {
			_ = t.program.WriteLines(v.lines()) // the exit code has the result too
		} else if t.program.Terminal {
			t.program.Note("%s", v.lines()[0])
		}
	}
	said.Passed = failed == 0
	return said, failed
}

func (r *rule) judge(ctx context.Context, t trial) verdict {
	began := time.Now()
	limited, cancel := context.WithTimeoutCause(ctx, ruleTime, fmt.Errorf("the test of the rule took more than %s", ruleTime))
	defer cancel()
	limited, end := context.WithCancelCause(limited)
	defer end(nil)
	t.ctx = limited
	tested := make(chan struct{})
	go func() { // ends with its context
		defer close(tested)
		if t.err == nil { // the worker runs
			r.test(&t)
		}
	}()
	ended := t.worker.ended
	if r.ends() {
		ended = nil // as required
	}
	select {
	case <-ended:
		end(t.worker.end())
	case <-tested:
	}
	<-tested
	v := verdict{Rule: r.name, Verdict: "ok", Seconds: time.Since(began).Round(time.Millisecond).Seconds()}
	if t.err == nil {
		return v
	}
	v.Verdict, v.See, v.Expected, v.Got = verdictFail, r.passage, "that the test can be made", t.err.Error()
	var fault *broken
	if errors.As(t.err, &fault) {
		v.Expected, v.Got = fault.expected, fault.got
	} else if limited.Err() != nil {
		v.Expected, v.Got = "that the step ends", context.Cause(limited).Error()
	}
	return v
}

// lines are the text output of a verdict.
func (v *verdict) lines() []string {
	if v.Verdict == verdictFail {
		return []string{"FAIL " + v.Rule, "     expected: " + v.Expected, "     got:      " + v.Got, "     see docs/testing-workers.md: " + v.See}
	}
	note := v.Why
	if note == "" {
		note = fmt.Sprintf("%.1f s", v.Seconds)
	}
	return []string{fmt.Sprintf("%-4s %-10s  %s", v.Verdict, v.Rule, note)}
}
