//go:build unix

package spec_test

import (
	"testing"
	"time"

	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/logbook"
)

// mirrors fetches a file from two mirrors. The first that answers is enough.
const mirrors = `
	name = "fastest"

	[[steps]]
	name   = "mirrors"
	enough = 1

	[[steps.steps]]
	name     = "mirror-a"
	handler  = "fetch"
	argv     = ["0.1"]
	provides = "file"

	[[steps.steps]]
	name     = "mirror-b"
	handler  = "fetch"
	argv     = ["60"]
	provides = "file"

	[[steps]]
	name     = "unpack"
	requires = ["file"]
	provides = "unpacked"`

// TestFirstOfTwo: the handler of the slower mirror gets SIGTERM, and the flow continues without it.
func TestFirstOfTwo(t *testing.T) {
	t.Parallel()
	set := scripts(t, map[string]string{"fetch": `trap 'exit 1' TERM; sleep "$1" & wait $!; echo "\"after $1\""`, "unpack": "cat"})
	document, err := spec.Parse([]byte(mirrors), "fastest.toml")
	if err != nil {
		t.Fatal(err)
	}
	built, err := document.Build(set)
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	result, err := engine.RunLocal(t.Context(), built, nil)
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > 50*time.Second {
		t.Errorf("it took %s, so it has waited for the slow mirror", took)
	}
	if got := string(result.Values["file"]); got != `"after 0.1"` {
		t.Errorf("the file is %s", got)
	}
	if got := string(result.Values["unpacked"]); got != `{"file":"after 0.1"}` {
		t.Errorf("unpack got %s", got)
	}
	slow, _ := result.Detail.Atom("mirror-b")
	if failure := slow.Failure(); !slow.IsDropped() || failure == nil || failure.Kind != logbook.FailureInterrupted {
		t.Errorf("mirror-b is %s with the intention %s and the failure %v", slow.State, slow.Intention, failure)
	}
}
