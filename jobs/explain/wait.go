package explain

import (
	"fmt"
	"strings"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// Wait is an open wait of a job: for Signal, for a publication, or for the approval of a step. Zero: none.
type Wait struct {
	Signal            string
	Board, Topic, Key string
	Approval          string         // the step
	Missing           []logbook.Need // of an approval with decisions: the people that must still approve
}

// say describes the wait, and the command that ends it; empty: none.
func (w Wait) say(job jobs.JobID) (what, remedy string) {
	switch {
	case w.Approval != "":
		remedy = fmt.Sprintf("decide with `conductord approval approve %s %s`", job, w.Approval)
		if len(w.Missing) > 0 {
			remedy = "missing: " + logbook.NeedText(w.Missing) + "; " + remedy
		}
		return "an approval", remedy
	case w.Topic != "":
		board := ""
		if w.Board != jobs.DefaultBoard {
			board = " --board " + operand(w.Board)
		}
		return fmt.Sprintf("topic %s, key %s", w.Topic, w.Key), fmt.Sprintf("publish with `conductord signal publish %s --key %s%s`", operand(w.Topic), operand(w.Key), board)
	case w.Signal != "":
		return "signal " + w.Signal, fmt.Sprintf("send it with `conductord job signal %s %s`", job, w.Signal)
	}
	return "", ""
}

// operand quotes a name for a shell if it has other characters than those of usual names.
func operand(name string) string {
	usual := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@", r)
	}
	if name != "" && strings.IndexFunc(name, func(r rune) bool { return !usual(r) }) < 0 {
		return name
	}
	return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
}
