// Package clitest runs the command line in tests. The cluster is a state machine without raft, with
// a worker that does the work of a conductor step by step.
package clitest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/commands"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/raftboard/wire"
)

// Said is the output of a command, and its exit code.
type Said struct {
	Out, Err string
	Code     int
}

// Run runs one command against a cluster; nil: no cluster.
func Run(t *testing.T, cluster cli.Cluster, args ...string) Said {
	t.Helper()
	return RunWith(t, t.Context(), cluster, nil, args...)
}

// RunWith is Run with a context, after a change of the program.
func RunWith(t *testing.T, ctx context.Context, cluster cli.Cluster, change func(*cli.Program), args ...string) Said {
	t.Helper()
	var out, err bytes.Buffer
	program := cli.Program{
		In: strings.NewReader(""), Out: &out, Err: &err,
		Dial: func(context.Context, raftboard.Options) (cli.Cluster, error) {
			if cluster == nil {
				return nil, fmt.Errorf("nobody answers: %w", jobs.ErrUnavailable)
			}
			return cluster, nil
		},
	}
	commands.Of(&program)
	if change != nil {
		change(&program)
	}
	code := program.Run(ctx, args)
	return Said{out.String(), err.String(), code}
}

// ReadJSON reads the document of an object, which is an API message.
func ReadJSON[T any, M proto.Message](t *testing.T, text string, message M, convert func(M) (T, error)) T {
	t.Helper()
	err := wire.JSONCodec{}.Unmarshal([]byte(text), message)
	thing, convertErr := convert(message)
	if err := errors.Join(err, convertErr); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return thing
}

// ReadJob reads the document of a job.
func ReadJob(t *testing.T, text string) jobs.Job {
	t.Helper()
	return ReadJSON(t, text, &v1.Job{}, command.JobFromProto)
}

// ReadJobs reads the document of a list of jobs.
func ReadJobs(t *testing.T, text string) (listed []jobs.Job) {
	t.Helper()
	return ReadJSON(t, text, &v1.ListJobsResponse{}, func(answer *v1.ListJobsResponse) ([]jobs.Job, error) {
		for _, message := range answer.Jobs {
			job, err := command.JobFromProto(message)
			if err != nil {
				return nil, err
			}
			listed = append(listed, job)
		}
		return listed, nil
	})
}

// Steady replaces texts that differ from run to run: ids, times, durations, and the size of a
// posting, because the times in a posting vary in length.
func Steady(text string) string {
	for _, r := range []struct{ pattern, with string }{
		{`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`, "ID"},
		{`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`, "TIME"},
		{`\b(\d+[smhd] ago|in \d+[smhd])\b`, "AGO"},
		{`\b\d+(\.\d+)?m?s\b`, "TOOK"},
		{`"size": "\d+"`, `"size": BYTES`},
		{` +`, " "},
	} {
		text = regexp.MustCompile(r.pattern).ReplaceAllString(text, r.with)
	}
	return text
}
