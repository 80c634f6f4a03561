//go:build unix

package spec_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/flow/handler"
	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/logbook"
)

// TestArgvOfDocuments runs a document whose handler gets its arguments by position.
func TestArgvOfDocuments(t *testing.T) {
	directory := t.TempDir()
	if err := os.WriteFile(filepath.Join(directory, "show"), []byte("#!/bin/sh\nprintf '[\"%s\",\"%s\"]' \"$1\" \"$2\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	set, err := handler.Open(directory)
	if err != nil {
		t.Fatal(err)
	}
	document, err := spec.Parse([]byte(`
		name   = "x"
		inputs = ["order"]
		[[steps]]
		name = "show"
		requires = {id = "order"}
		inject   = {amount = 1.50}
		argv     = ["{amount}", "no {id}"]
		provides = "shown"`), "x.toml")
	if err != nil {
		t.Fatal(err)
	}
	if plan, err := document.Compile(); err != nil || !strings.Contains(plan.Outline(), `argv ["{amount}" "no {id}"]`) {
		t.Errorf("the plan does not show the command line, %v", err)
	}
	built, err := document.Build(set)
	if err != nil {
		t.Fatal(err)
	}
	local := engine.Local{Secrets: func(context.Context, string) (string, error) { return "hunter2!", nil }}
	result, err := local.Run(t.Context(), built, logbook.Values{"order": json.RawMessage(`"7 ü"`)})
	if got := string(result.Values["shown"]); err != nil || got != `["1.5","no 7 ü"]` {
		t.Errorf("the handler was given %s, %v", got, err)
	}
	result, err = local.Run(t.Context(), built, logbook.Values{"order": json.RawMessage(`{"secret":"db"}`)})
	if err == nil || !result.Detail.Cause.Matches(logbook.FailureSecret) || !strings.Contains(err.Error(), `argv[1] would show the secret argument "id"`) {
		t.Errorf("with a secret: %v", err)
	}
}
