package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/conductord/conductord/jobs"
)

// argumentNames map the word of an argument in the usage line to the kind of object that it
// names. ID and NAME name an object of the command's noun.
var argumentNames = map[string]string{
	"job ID": "job", "trash ID": "trashed", "JOB": "job", "book ID": "book",
	"FLOW|JOB": "flow", "JOB-OR-FLOW-ID": "flow", "FILE|JOB-OR-FLOW-ID": "flow",
	"BOARD": "board", "schedule NAME": "schedule", "conductor NAME": "conductor", "STEP": "step",
	"NODE": "node", "PRINCIPAL": "principal", "JOB/STEP": stepArgument,
}

// stepArgument is the kind of an argument with a job's id and the name of one of its steps.
const stepArgument = "job/step"

// flagNames do the same for flags. fixedNames has the flags with a few fixed values.
var flagNames = map[string]string{
	"job": "job", "book": "book", "flow-id": "flow", "session": "session", "board": "board", "owner": "conductor", "principal": "principal", "step": "step",
}

// idNouns are the possible nouns of an id argument of such a kind, the likelier first.
var idNouns = map[string][]jobs.IDNoun{
	"job": {jobs.IDOfJob}, "trashed": {jobs.IDOfJob}, "book": {jobs.IDOfBook}, "flow": {jobs.IDOfJob, jobs.IDOfFlow}, "session": {jobs.IDOfSession},
}

// argumentName returns the kind of object that an argument names. number is the argument's
// position, and of is the number of arguments. Empty: unknown here.
func argumentName(cmd *cobra.Command, number, of int) string {
	words := argumentWords(cmd)
	if at := slices.IndexFunc(words, func(word string) bool { return strings.Contains(word, "…") }); number > at && at >= 0 {
		number = max(at, number-max(of-len(words), 0)) // the word takes all remaining arguments
	}
	if key := cmd.Flags().Lookup("key"); len(words) > 0 && words[0] == "[JOB]" && key != nil && key.Changed {
		number++ // the key names the job
	}
	if number >= len(words) {
		return ""
	}
	word := strings.Trim(words[number], "[]…")
	if word == "ID" || word == "NAME" {
		word = cmd.Parent().Name() + " " + word
	}
	return argumentNames[word]
}

// shortID is the first or last digits of an id on the command line, with the function that replaces them
// by the whole id.
type shortID struct {
	prefixes []jobs.IDPrefix
	replace  func(id string) error
}

// whole reports whether all digits are given.
func (s shortID) whole() bool { return len(s.prefixes[0].Digits) == 2*len(uuid.Nil) }

func parseShortID(what, text string) (short shortID, err error) {
	for _, noun := range idNouns[what] {
		prefix, err := jobs.ParseIDPrefix(noun, text)
		if err != nil {
			return shortID{}, err
		}
		short.prefixes = append(short.prefixes, prefix)
	}
	return short, nil
}

// resolveIDs replaces prefixes of ids on the command line by the whole ids, before the command
// reads them. Whole ids cost no call.
func (p *Program) resolveIDs(cmd *cobra.Command, args []string) error {
	var found []shortID
	var faults []error
	add := func(what, text string, replace func(string) error) {
		if len(idNouns[what]) == 0 {
			return
		}
		short, err := parseShortID(what, text)
		whole := len(text) == len(uuid.Nil.String())
		switch {
		case err != nil && whole: // the command itself refuses it
			return
		case err != nil:
			faults = append(faults, err)
			return
		case !whole:
			short.replace = replace
			found = append(found, short)
		}
		p.ids = append(p.ids, short)
	}
	for i := range args {
		if revert := cmd.Flags().Lookup("revert"); !strings.Contains(cmd.Use, "FILE|JOB") || revert.Changed {
			what, id, rest := argumentName(cmd, i, len(args)), args[i], ""
			if at := strings.IndexByte(id, '/'); (what == stepArgument || what == "job") && at >= 0 {
				what, id, rest = "job", id[:at], id[at:]
			} else if what == stepArgument && len(args) == 2 {
				what = "job" // JOB STEP
			}
			add(what, id, func(id string) error { args[i] = id + rest; return nil })
		}
	}
	cmd.Flags().Visit(func(flag *pflag.Flag) { add(flagNames[flag.Name], flag.Value.String(), flag.Value.Set) })
	if len(faults) > 0 || len(found) == 0 {
		return errors.Join(faults...)
	}
	return p.With(cmd.Context(), func(ctx context.Context, cluster Cluster) error {
		for _, short := range found {
			id, err := short.find(ctx, cluster)
			if err == nil {
				err = short.replace(id)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// idFinder finds ids, and reads their jobs and flows.
type idFinder interface {
	FlowReader
	FindIDs(ctx context.Context, prefix jobs.IDPrefix) (jobs.IDMatches, error)
}

// find finds the one id that matches, or an error that names all matching ids. A job and its own flow are one match.
func (s shortID) find(ctx context.Context, cluster idFinder) (string, error) {
	var nouns []string
	var all jobs.IDMatches
	for _, prefix := range s.prefixes {
		matches, err := cluster.FindIDs(ctx, prefix)
		if err != nil {
			return "", err
		}
		nouns = append(nouns, string(prefix.Noun))
		if len(all.IDs) == 1 && len(matches.IDs) == 1 && !all.More && !matches.More {
			job, err := cluster.Job(ctx, jobs.JobID{UUID: all.IDs[0]})
			if err == nil && job.Flow.UUID == matches.IDs[0] {
				continue
			}
		}
		all.IDs, all.More = append(all.IDs, matches.IDs...), all.More || matches.More
	}
	switch {
	case len(all.IDs) == 0 && !all.More:
		return "", fmt.Errorf("no %s id starts or ends with %s: %w", strings.Join(nouns, " or "), s.prefixes[0].Digits, jobs.ErrNotFound)
	case len(all.IDs) == 0:
		return "", UsageError(fmt.Errorf("too many ids to search for %s: use the whole id", s.prefixes[0].Digits))
	case len(all.IDs) == 1 && !all.More:
		return all.IDs[0].String(), nil
	}
	return "", ambiguous(s.prefixes[0].Digits, strings.Join(nouns, " or "), all)
}

// ambiguous lists the candidates for an ambiguous prefix.
func ambiguous(digits, noun string, matches jobs.IDMatches) error {
	lines := []string{fmt.Sprintf("%s is ambiguous: these %s ids start or end with it; use more of the id:", digits, noun)}
	for _, id := range matches.IDs {
		lines = append(lines, "  "+id.String())
	}
	if matches.More {
		lines = append(lines, "  and possibly more")
	}
	return UsageError(errors.New(strings.Join(lines, "\n")))
}
