package cli

import (
	"cmp"
	"strings"

	"github.com/conductord/conductord/jobs"
)

// Operand is a name as the last word of a command, after all flags.
func Operand(name string) string {
	if strings.HasPrefix(name, "-") {
		return "-- " + Quoted(name)
	}
	return Quoted(name)
}

// Quoted returns a text as one word for a shell.
func Quoted(name string) string {
	plain := func(r rune) bool {
		return r == '-' || r == '_' || r == '.' || r == '/' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
	}
	if strings.IndexFunc(name, func(r rune) bool { return !plain(r) }) < 0 && !strings.HasPrefix(name, "-") {
		return name
	}
	return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
}

// remedyCommands are the command lines of remedies, below conductord. OPERAND is replaced by a
// name, as the last word; TARGET is replaced by an id, or by the value of a flag.
var remedyCommands = map[jobs.RemedyVerb]string{
	jobs.RemedyRetry:        "job retry TARGET",
	jobs.RemedyResume:       "job resume TARGET",
	jobs.RemedyRelease:      "job release TARGET",
	jobs.RemedyRetryNow:     "flow retry-now TARGET",
	jobs.RemedyMakeDue:      "job change TARGET --not-before 0s",
	jobs.RemedyReprioritise: "job change TARGET --priority VALUE",
	jobs.RemedyShowFlow:     "flow show TARGET",
	jobs.RemedyRetryRevert:  "flow retry-revert TARGET   # flow show lists other repairs",
	jobs.RemedyRerunFlow:    "flow rerun TARGET   # runs all steps again; --dry-run lists them",
	jobs.RemedyResumeBoard:  "board resume OPERAND",
	jobs.RemedyUndrain:      "conductor undrain OPERAND",
	jobs.RemedyStartWorker:  "worker --handlers DIRECTORY --types TARGET",
}

// remedyDeeds are remedies that are not commands.
var remedyDeeds = map[jobs.RemedyVerb]string{
	jobs.RemedyRunFlow:     "post the flow instead: `conductord flow run FILE`",
	jobs.RemedyStart:       "start a conductor; `conductord conductor list` shows the live ones",
	jobs.RemedyOfferLabels: "start a conductor with these labels (conductor.labels); `conductord conductor list` shows the live ones",
	jobs.RemedyAddCapacity: "start another conductor, or raise conductor.max_jobs",
}

// RemedyText shows a remedy: a command line if there is one.
func RemedyText(remedy jobs.Remedy) string {
	line, known := remedyCommands[remedy.Verb]
	if !known {
		return cmp.Or(remedyDeeds[remedy.Verb], string(remedy.Verb)) // empty, or a verb of a newer server
	}
	if remedy.Verb == jobs.RemedyStartWorker && remedy.Value != "" {
		line += " --labels VALUE"
	}
	if remedy.Verb == jobs.RemedyStartWorker && remedy.Name != "" {
		line += " --name NAME"
	}
	words := strings.NewReplacer("OPERAND", Operand(remedy.Target), "TARGET", Quoted(remedy.Target), "VALUE", Quoted(remedy.Value), "NAME", Quoted(remedy.Name))
	return "conductord " + words.Replace(line)
}
