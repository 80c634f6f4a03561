package handler_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// written is a writer that can be read concurrently.
type written struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (w *written) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

func (w *written) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// TestStderrIsReadMeanwhile: a handler's stderr is passed on at once, and the last part is also
// stored with the attempt.
func TestStderrIsReadMeanwhile(t *testing.T) {
	dir, free := t.TempDir(), filepath.Join(t.TempDir(), "free")
	install(t, dir, "talker", `echo first >&2; while [ ! -e '`+free+`' ]; do sleep 0.01; done; echo second >&2; echo 1`)
	var output written
	step, ended := call(logbook.Values{}), make(chan error, 1)
	go func() {
		_, err := open(t, dir).Task("talker", "").Execute(flow.WithOutput(t.Context(), &output), step)
		ended <- err
	}()
	waitFor(t, "the first line is there", func() bool { return output.String() == "first\n" })
	if err := os.WriteFile(free, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := within(t, ended); err != nil {
		t.Fatal(err)
	}
	kept, truncated := step.Stderr()
	if want := "first\nsecond\n"; output.String() != want || strings.TrimSpace(kept) != strings.TrimSpace(want) || truncated {
		t.Errorf("passed on %q, kept %q, %v", output.String(), kept, truncated)
	}
}
