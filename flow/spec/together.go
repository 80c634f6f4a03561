package spec

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/conductord/conductord/logbook"
)

// Together makes one document from several, for one job that runs them all: Linear, one after
// another, or Unordered, in parallel. Each document becomes a part, which a step with the
// document's name uses. That name precedes the names of the part's steps and values. The flows do
// not see each other's values. All of them finish, or all are undone.
//
// Their inputs and stores are merged. An input for which another document has a default takes that
// default. The error is logbook.ErrInvalid if two documents have the same name, different defaults
// for one value, or different policies for changes. It is also logbook.ErrInvalid if a document has
// targets, a timeout, a deadline, or defaults for the job.
func Together(order Pattern, documents ...*Document) (*Document, error) {
	if len(documents) == 1 {
		return documents[0], nil
	}
	names := make([]string, len(documents))
	for i, d := range documents {
		names[i] = d.Name
	}
	whole := &Document{Name: strings.Join(names, "+"), Pattern: order, Store: logbook.Values{}, Flows: map[string]Part{}}
	for i, d := range documents {
		if reason := whole.conflict(d, i == 0); reason != "" {
			return nil, &logbook.InvalidError{Field: "flow " + d.Name, Reason: reason}
		}
		whole.OnChange = d.OnChange
		maps.Copy(whole.Store, d.Store)
		whole.Steps = append(whole.Steps, Step{Name: d.Name, Description: d.Description, Flow: d.Name})
		whole.Flows[d.Name] = Part{Description: d.Description, Pattern: d.Pattern, Retry: d.Retry, OnTakeover: d.OnTakeover, OnFailure: d.OnFailure, Steps: usesOf(d.Steps, d.Name), Late: d.Late}
		for name, part := range d.Flows {
			part.Steps = usesOf(part.Steps, d.Name)
			whole.Flows[d.Name+"."+name] = part
		}
	}
	for _, d := range documents {
		for _, input := range d.Inputs {
			if _, has := whole.Store[input]; !has && !slices.Contains(whole.Inputs, input) {
				whole.Inputs = append(whole.Inputs, input)
			}
		}
	}
	return Parse(whole.JSON(), "several flows.json")
}

// conflict is the reason why a document cannot be added; empty if it can.
func (d *Document) conflict(added *Document, first bool) string {
	if _, twice := d.Flows[added.Name]; twice {
		return "another flow of the job has the same name"
	}
	if len(added.Targets) > 0 {
		return "it has targets: with several flows, remove them"
	}
	if added.Timeout > 0 || added.Deadline > 0 || added.Job != nil {
		return "it has a timeout, a deadline or a table job, which one of several flows of a job cannot have: remove them, and give the job's properties as flags"
	}
	if !first && d.OnChange != added.OnChange {
		return fmt.Sprintf("its on_change is %q, but an earlier flow has %q", added.OnChange, d.OnChange)
	}
	for _, name := range slices.Sorted(maps.Keys(added.Store)) {
		if other, has := d.Store[name]; has && !bytes.Equal(other, added.Store[name]) {
			return fmt.Sprintf("its default of %s differs from the default in an earlier flow", quoted(name))
		}
	}
	return ""
}

// usesOf puts the document's name before the names of parts that steps use.
func usesOf(steps []Step, document string) []Step {
	steps = slices.Clone(steps)
	for i := range steps {
		if steps[i].Flow != "" {
			steps[i].Flow = document + "." + steps[i].Flow
		}
		steps[i].Steps = usesOf(steps[i].Steps, document)
	}
	return steps
}
