//go:build linux

package processes

import (
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

// handler writes a line when it begins and one when it ends, takes up to a
// second, and fails for good where it is the doomed one and no revert. One run in
// eight fails and is tried again. The run's name is the step's result.
const handler = `#!/bin/sh
read run </proc/sys/kernel/random/uuid
say() { echo "$(date +%%s) $CONDUCTORD_FLOW $CONDUCTORD_STEP $CONDUCTORD_ACTION $CONDUCTORD_ATTEMPT $CONDUCTORD_KEY $CONDUCTORD_TOKEN $run $1" >> %[1]s; }
say begun
sleep 0.$(($$ %% 10))
case $CONDUCTORD_HANDLER-$CONDUCTORD_ACTION-$run in
*/doomed-execute-*) say failed; exit 65 ;;
*-[07]???????-????-????-????-????????????) say failed; exit 75 ;;
esac
say done
echo "{\"run\": \"$run\"}"
`

// NewSteps installs the executables below a directory.
func NewSteps(dir string) (*Steps, error) {
	s := &Steps{dir: dir}
	err := os.MkdirAll(s.Handlers(), 0o755)
	for _, name := range []string{"sound", "doomed"} {
		err = errors.Join(err, os.WriteFile(filepath.Join(s.Handlers(), name), fmt.Appendf(nil, handler, s.file()), 0o755))
	}
	return s, err
}

// Handlers is the directory of the executables.
func (s *Steps) Handlers() string { return filepath.Join(s.dir, "handlers") }

func (s *Steps) file() string { return filepath.Join(s.dir, "ledger") }

// Posting draws a job with a flow of such steps. One in three is undone.
func (s *Steps) Posting(draw *rand.Rand) (jobs.Posting, error) {
	steps, doomed := 1+draw.IntN(4), draw.IntN(3) == 0
	pattern := []string{"linear", "unordered"}[draw.IntN(2)]
	var text strings.Builder
	fmt.Fprintf(&text, "name = \"executables\"\npattern = %q\n", pattern)
	for i := range steps {
		handler := "sound"
		if doomed && i == steps-1 {
			handler = "doomed"
		}
		fmt.Fprintf(&text, "[[steps]]\nname = \"step%d\"\nhandler = %q\nrevert = %q\nretry = {attempts = 50, delay = \"200ms\", max_delay = \"2s\"}\n", i+1, handler, handler)
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

// Gather has a ledger hear all lines since the last time. The file has one
// order, and a step whose token is old would have been refused by a system that
// looks at tokens: so the ledger leaves its lines out.
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
	words := strings.Fields(line)
	const all = 9
	if len(words) != all {
		return e, fmt.Errorf("%d words and not %d", len(words), all)
	}
	seconds, err := strconv.ParseInt(words[0], 10, 64)
	e = cluster.Entry{
		At: time.Unix(seconds, 0), Place: "an executable", Step: words[2], Action: logbook.Action(words[3]),
		Key: words[5], Run: words[7], Event: cluster.Event(words[8]),
	}
	var failed [3]error
	e.Flow, failed[0] = logbook.ParseFlowID(words[1])
	e.Attempt, failed[1] = strconv.Atoi(words[4])
	e.Token, failed[2] = logbook.ParseToken(words[6])
	return e, errors.Join(err, failed[0], failed[1], failed[2])
}
