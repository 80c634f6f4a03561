//go:build linux

package processes

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/test/cluster"
)

// Steps are executables that write to a ledger outside the system, and the
// flows made of them.
type Steps struct {
	dir  string
	read int64 // how much of the ledger's file was gathered
}

// handler writes a line when it begins and one when it ends. The execution of a doomed step
// fails permanently. A step with retries takes up to a second, and one run in eight fails. Other
// steps are quicker. The result has the run's name, and picks a side.
const handler = `#!/bin/sh
read -r input
read run </proc/sys/kernel/random/uuid
name=${CONDUCTORD_HANDLER##*/}
say() { echo "$(date +%%s) $CONDUCTORD_FLOW $CONDUCTORD_STEP $CONDUCTORD_ACTION $CONDUCTORD_ATTEMPT $CONDUCTORD_KEY $CONDUCTORD_FENCE $run $1 ${name%%%%-doomed} $input" >> %[1]s; }
say begun
case $name in
retried*) sleep 0.$(($$ %% 10)) ;;
*) sleep 0.0$(($$ %% 10)) ;;
esac
case $name-$CONDUCTORD_ACTION-$run in
*-doomed-execute-*) say failed; exit 65 ;;
retried-*-[07]???????-????-????-????-????????????) say failed; exit 75 ;;
esac
say done
case $run in
[0-7]*) echo "{\"run\": \"$run\", \"pick\": \"left\"}" ;;
*) echo "{\"run\": \"$run\", \"pick\": \"right\"}" ;;
esac
`

// doomed is the end of the names of handlers that always fail.
const doomed = "-doomed"

// NewSteps installs the executables below a directory.
func NewSteps(dir string) (*Steps, error) {
	s := &Steps{dir: dir}
	err := os.MkdirAll(s.Handlers(), 0o755)
	for _, kind := range []cluster.StepKind{cluster.RetriedStep, cluster.RepeatableStep, cluster.OnceStep} {
		for _, end := range []string{"", doomed} {
			err = errors.Join(err, os.WriteFile(filepath.Join(s.Handlers(), string(kind)+end), fmt.Appendf(nil, handler, s.file()), 0o755))
		}
	}
	return s, err
}

// Handlers is the directory of the executables.
func (s *Steps) Handlers() string { return filepath.Join(s.dir, "handlers") }

func (s *Steps) file() string { return filepath.Join(s.dir, "ledger") }

// Posting draws a job with a flow of such steps.
func (s *Steps) Posting(draw *rand.Rand) (jobs.Posting, error) {
	drawn := cluster.DrawFlow(draw)
	var text strings.Builder
	fmt.Fprintf(&text, "name = \"executables\"\npattern = %q\n", drawn.Pattern)
	for _, step := range drawn.Steps {
		handler := string(step.Kind)
		if step.Doomed {
			handler += doomed
		}
		needs, err := json.Marshal(step.Needs)
		if err != nil {
			return jobs.Posting{}, err
		}
		fmt.Fprintf(&text, "[[steps]]\nname = %q\nhandler = %q\nprovides = %[1]q\n", step.Name, handler)
		if len(step.Needs) > 0 {
			fmt.Fprintf(&text, "requires = %s\n", needs)
		}
		if step.Sided() {
			fmt.Fprintf(&text, "when = {step = %q, field = \"pick\", is = \"equals\", value = %q, depth = \"atom\"}\n", step.Needs[0], step.Name)
		}
		switch step.Kind {
		case cluster.RepeatableStep:
			text.WriteString("repeatable = true\n")
		case cluster.OnceStep:
			text.WriteString("at_most_once = true\n")
		default:
			fmt.Fprintf(&text, "revert = %q\nretry = {attempts = 50, delay = \"200ms\", max_delay = \"2s\"}\n", handler)
		}
	}
	document, err := spec.Parse([]byte(text.String()), "executables.toml")
	if err != nil {
		return jobs.Posting{}, err
	}
	book := logbook.Book{ID: logbook.NewBookID(), Name: "executables"}
	detail := document.Detail(logbook.NewFlowID(), book.ID, document.Store)
	book.Flows = []logbook.FlowDetail{detail}
	return jobs.Posting{ID: jobs.NewJobID(), Name: "executables", Book: &book, Flow: detail.ID}, nil
}

// Gather passes all new lines to a ledger. The file has one order. The ledger drops lines with
// an old token, because a system that checks tokens would have refused that step.
func (s *Steps) Gather(ledger *cluster.Ledger) error {
	file, err := os.Open(s.file())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.NewSectionReader(file, s.read, 1<<40))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if !strings.HasSuffix(line, "\n") {
			break // being written: the next time
		}
		s.read += int64(len(line))
		entry, err := readLine(line)
		if err != nil {
			return fmt.Errorf("the ledger has the line %q: %w", line, err)
		}
		if err := ledger.Write(entry, func() bool { return true }); err != nil && !errors.Is(err, cluster.ErrOldToken) {
			return err
		}
	}
	return nil
}

func readLine(line string) (e cluster.Entry, err error) {
	const all = 11 // the last one may have spaces
	words := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", all)
	if len(words) != all {
		return e, fmt.Errorf("%d words and not %d", len(words), all)
	}
	seconds, err := strconv.ParseInt(words[0], 10, 64)
	e = cluster.Entry{
		At: time.Unix(seconds, 0), Place: "an executable", Step: words[2], Action: logbook.Action(words[3]),
		Key: words[5], Run: words[7], Event: cluster.Event(words[8]), Kind: cluster.StepKind(words[9]),
	}
	var arguments logbook.Values
	var failed [4]error
	e.Flow, failed[0] = logbook.ParseFlowID(words[1])
	e.Attempt, failed[1] = strconv.Atoi(words[4])
	e.Token, failed[2] = logbook.ParseToken(words[6])
	failed[3] = json.Unmarshal([]byte(words[10]), &arguments)
	delete(arguments, "$result") // of a revert
	e.Inputs = cluster.InputsOf(arguments)
	return e, errors.Join(err, failed[0], failed[1], failed[2], failed[3])
}
