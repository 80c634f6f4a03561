package test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard"
)

const pythonResults = `
import json, sys
from conductord import Client
client = Client()
print(json.dumps([client.results(job) for job in sys.argv[1:]]))
`

const scriptResults = `
import { Client, encode } from "conductord";
const client = new Client();
console.log(encode(await Promise.all(process.argv.slice(2).map((job) => client.results(job)))));
client.close();
`

// TestResultsBySymbol checks that the clients in Python and TypeScript return the same results as
// Go, by the names that steps provide: whole, by field, gathered, of retries, and of steps that did
// not run.
func TestResultsBySymbol(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	folder, s := needPython(t), openScripts(t)
	handlers, err := filepath.Abs(filepath.Join("..", "examples", "handlers"))
	if err != nil {
		t.Fatal(err)
	}
	s.cluster = newClusterOf(t, 1, func(c *config.Config) { c.Conductor.Handlers = []string{handlers} })
	if err := errors.Join(s.cluster.Start(), s.cluster.WaitReady(within(t))); err != nil {
		t.Fatal(err)
	}
	if s.client, err = raftboard.Dial(within(t), s.cluster.Endpoints()...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.client.Close)
	s.servers = strings.Join(s.cluster.Endpoints(), ",")

	var posted []string
	for _, args := range [][]string{{"each"}, {"decision"}, {"retry"}, {"travel"}, {"travel", "--set", "fail_at=charge-card"}, {"saga"}, {"hello"}} {
		out := ran(t, append([]string{"flow", "run", filepath.Join("..", "examples", args[0]+".toml"), "--server", s.servers}, args[1:]...)...)
		id, _, _ := strings.Cut(out, "\n")
		posted = append(posted, id)
	}
	plain, err := s.client.Post(within(t), jobs.NewPlainPosting("nobody", nil)) // without a flow
	if err != nil {
		t.Fatal(err)
	}
	want, total := []map[string]json.RawMessage{}, 0
	for _, text := range posted {
		id, err := jobs.ParseJobID(text)
		if err != nil {
			t.Fatal(err)
		}
		job, err := s.client.Wait(within(t), id)
		if err != nil {
			t.Fatal(err)
		}
		flow, err := s.client.FlowDetail(within(t), job.Flow)
		if err != nil {
			t.Fatal(err)
		}
		values, err := flow.Values()
		if err != nil {
			t.Fatal(err)
		}
		want, total = append(want, values), total+len(values)
	}
	if total < 10 {
		t.Fatalf("the flows provide %d values only: %s", total, want)
	}
	posted, want = append(posted, plain[0].Job.ID.String()), append(want, map[string]json.RawMessage{})
	expected, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}

	script := filepath.Join(s.dir, "dist", "results.mjs")
	if err := os.WriteFile(script, []byte(scriptResults), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, command := range map[string]*exec.Cmd{
		"Python":     exec.CommandContext(within(t), "python3", append([]string{"-B", "-c", pythonResults}, posted...)...),
		"TypeScript": exec.CommandContext(within(t), "node", append([]string{script}, posted...)...),
	} {
		command.Env = append(os.Environ(), "PYTHONPATH="+folder, "CONDUCTORD_SERVER="+s.servers)
		got, err := command.Output()
		if err != nil || !sameJSON(t, string(got), string(expected)) {
			t.Errorf("%s: %v: %s\nwant %s", name, err, got, expected)
		}
	}
}
