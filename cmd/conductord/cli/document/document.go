// Package document reads flow documents and adds them to postings, for the commands that check,
// post and run flows. It warns of values that no step uses, and of handlers that no conductor
// offers.
package document

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/internal/meant"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// ReadDocument reads a flow document and makes its plan, which reports every fault that can be
// found without a server.
func ReadDocument(p *cli.Program, path string, targets ...string) (*spec.Document, *flow.Plan, error) {
	text, err := p.ReadInput(path)
	if err != nil {
		return nil, nil, cli.Because(err, "read the flow")
	}
	return CompileDocument(p, text, path, targets...)
}

// CompileDocument is ReadDocument for a text. The path is for messages.
func CompileDocument(p *cli.Program, text []byte, path string, targets ...string) (*spec.Document, *flow.Plan, error) {
	document, err := spec.Parse(text, path)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read the flow %s:\n%w", path, err)
	}
	plan, err := document.Compile(targets...)
	if err != nil {
		return nil, nil, cli.UsageError(fmt.Errorf("cannot compile the flow %s:\n%w", path, err))
	}
	if err := checkJob(document); err != nil {
		return nil, nil, cli.UsageError(fmt.Errorf("invalid [job] table in the flow %s: %w", path, err))
	}
	for _, shadow := range plan.Shadowed() {
		p.Note("warning: %s", shadow)
	}
	for _, omission := range plan.Omissions() {
		p.Note("warning: %s", omission)
	}
	return document, plan, nil
}

// AttachFiles adds documents to a posting as a book with one flow. Its store has the documents'
// values, overlaid by the posting's values. Inputs in supplied get their values later.
func AttachFiles(p *cli.Program, order spec.Pattern, paths []string, posting *jobs.Posting, supplied []string, targets ...string) error {
	documents := make([]*spec.Document, len(paths))
	var err error
	var plan *flow.Plan
	inEach := targets
	if len(paths) > 1 {
		inEach = nil // targets are steps of any document
	}
	for i, path := range paths {
		if documents[i], plan, err = ReadDocument(p, path, inEach...); err != nil {
			return err
		}
	}
	document, err := spec.Together(order, documents...)
	if err == nil && len(paths) > 1 {
		plan, err = document.Compile(targets...)
	}
	if err != nil {
		return cli.UsageError(fmt.Errorf("cannot run these flows as one job:\n%w", err))
	}
	warnOfUntaken(p, document, plan, posting.Store)
	if err := Attach(document, posting, supplied, targets...); err != nil {
		return fmt.Errorf("cannot run the flow %s: %w; pass it with --set", strings.Join(paths, " "), err)
	}
	return nil
}

// warnOfUntaken warns of values that no step uses: their names may be misspelt. The job keeps these
// values.
func warnOfUntaken(p *cli.Program, document *spec.Document, plan *flow.Plan, given logbook.Values) {
	known := document.Symbols()
	take := func(wires []flow.Wire) {
		for _, wire := range wires {
			if wire.From == flow.FromNowhere { // optional
				known = append(known, wire.Symbol)
			}
		}
	}
	for step := range plan.Len() {
		take(slices.Concat(plan.Arguments(step), plan.RevertArguments(step)))
	}
	for _, choice := range plan.Choices() {
		for i := range choice.Deciders {
			take(choice.Deciders[i].Values)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		// An unknown symbol can lead to a value inside this one.
		if !slices.ContainsFunc(known, func(symbol string) bool { return symbol == name || strings.HasPrefix(symbol, name+".") }) {
			p.Note("warning: no step of the flow takes the value %q%s", name, meant.Hint(name, known))
		}
	}
}

// Attach adds a document to a posting as a book with one flow, and fills the posting from its defaults. Targets
// replace the document's targets. Inputs in supplied get their values later.
func Attach(document *spec.Document, posting *jobs.Posting, supplied []string, targets ...string) error {
	given := make(logbook.Values, len(supplied)+len(posting.Store))
	for _, name := range supplied {
		given[name] = document.Store[name] // nil without a default
	}
	maps.Copy(given, posting.Store)
	store, err := document.Fill(given, targets...)
	if err != nil {
		return err
	}
	maps.DeleteFunc(store, func(_ string, value json.RawMessage) bool { return value == nil })
	if posting.Name == "" {
		posting.Name = document.Name
	}
	book := logbook.BookID{UUID: derive(posting.ID, "book")}
	detail := document.Detail(logbook.FlowID{UUID: derive(posting.ID, "flow")}, book, store)
	if len(targets) > 0 {
		detail.Targets = targets
	}
	posting.Book = &logbook.Book{ID: book, Name: document.Name, Flows: []logbook.FlowDetail{detail}}
	return fillJob(document, posting)
}

// fillJob gives a posting the defaults of its document, where the posting has no value. Labels replace the
// document's labels.
func fillJob(document *spec.Document, posting *jobs.Posting) (err error) {
	if posting.Deadline.IsZero() {
		posting.DeadlineAfter = cmp.Or(posting.DeadlineAfter, time.Duration(document.Deadline))
	}
	job := document.Job
	if job == nil {
		return nil
	}
	posting.Key, posting.Retention = cmp.Or(posting.Key, job.Key), cmp.Or(posting.Retention, time.Duration(job.Retention))
	if len(posting.Labels) == 0 {
		posting.Labels = job.Labels
	}
	if job.Priority != "" && posting.Priority == jobs.Normal {
		if posting.Priority, err = jobs.ParsePriority(job.Priority); err != nil {
			return err
		}
	}
	if job.Attempts > 0 || job.OnFailure != "" {
		var policy jobs.RetryPolicy
		if posting.Retry != nil {
			policy = *posting.Retry
		}
		policy.Attempts, policy.OnFailure = cmp.Or(policy.Attempts, job.Attempts), cmp.Or(policy.OnFailure, jobs.OnFailure(job.OnFailure))
		posting.Retry = &policy
	}
	return nil
}

// checkJob checks the properties that the document gives to its job.
func checkJob(document *spec.Document) error {
	posting := jobs.Posting{Name: document.Name, Kind: "checked"}
	if err := fillJob(document, &posting); err != nil {
		return err
	}
	return jobs.CheckPosting(logbook.MaxLimits, &posting)
}

// derive makes the id of a job's book or flow from the job's id, so that a repeated post with
// the same --id is identical as a whole. The first half, with the time and the UUID's version
// bits, is unchanged.
func derive(id jobs.JobID, what string) uuid.UUID {
	const kept = 9
	derived := id.UUID
	sum := sha256.Sum256(append(id.UUID[:], what...))
	copy(derived[kept:], sum[:])
	return derived
}
