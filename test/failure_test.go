package test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/jobs"
)

// TestFailuresHaveDetails: the command line shows the failure details of a handler and of a Go
// step, and a handler gets the arguments of argv.
func TestFailuresHaveDetails(t *testing.T) {
	t.Parallel()
	handlers := filepath.Join(t.TempDir(), "handlers")
	writeHandler(t, handlers, "charge", `printf '{"failure":{"kind":"card.declined","message":"no money for %s","details":{"amount":%s}}}' "$1" "${2#--amount=}"; exit 65`)
	document := filepath.Join(t.TempDir(), "flow.toml")
	text := "name = \"order\"\ninputs = [\"item\"]\n[[steps]]\nname = \"charge\"\nrequires = [\"item\"]\ninject = {amount = 1.25}\nargv = [\"{item}\", \"--amount={amount}\"]\n"
	if err := os.WriteFile(document, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cluster, client := startCluster(t, func(c *config.Config) { c.Conductor.Handlers = []string{handlers} })
	server := "--server=" + strings.Join(cluster.Endpoints(), ",")
	run := command(t, "", "flow", "run", document, "--wait", "--set", "item=a wide hat", server)
	job := strings.Fields(run.err)[2] // job ID is posted
	for _, shown := range []string{ran(t, "job", "errors", job, "-o", "json", server), ran(t, "flow", "show", job, "-o", "json", server)} {
		if tight := strings.Join(strings.Fields(shown), ""); !strings.Contains(tight, `"kind":"card.declined","message":"nomoneyforawidehat","step":"charge","code":65,"permanent":true,"details":{"amount":1.25}`) {
			t.Errorf("the failure of the handler is shown as %s", shown)
		}
	}
	if shown := ran(t, "flow", "show", job, server); !strings.Contains(shown, "amount = 1.25") {
		t.Errorf("the flow is shown as %s", shown)
	}

	registry := flow.NewRegistry()
	err := registry.Register("ship", func(json.RawMessage) (*flow.Flow, error) {
		return flow.Linear("ship", flow.Func("pack", func(context.Context, struct{}) (struct{}, error) {
			return struct{}{}, flow.Fail("too.wide", flow.WithDetails(errors.New("no box fits"), map[string]any{"width": 120}))
		})), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	posted, err := jobs.PostOne(within(t), client, jobs.NewPosting("ship", nil, nil))
	if err != nil {
		t.Fatal(err)
	}
	packer, err := conductor.New(conductor.Options{Client: client, Registry: registry, Name: "packer"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- packer.Run(ctx) }()
	defer func() { stop(); <-ended }()
	if _, err := client.Wait(within(t), posted.ID); err != nil {
		t.Fatal(err)
	}
	shown := ran(t, "job", "errors", "--error", "too.wide", "-o", "json", server)
	if tight := strings.Join(strings.Fields(shown), ""); !strings.Contains(tight, `"kind":"too.wide","message":"noboxfits","step":"pack","details":{"width":120}`) {
		t.Errorf("the failure of the Go step is shown as %s", shown)
	}
}
