package tree

import (
	"fmt"
	"slices"
	"strings"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// selection is a flow that continues when enough of its members have succeeded.
type selection struct {
	needed  int
	each    bool // its members are the elements of a list
	members []member
}

// member is a part of such a flow, with the names of its steps.
type member struct {
	name  string
	steps []string
}

func selectionOf(t *flow.Tree) *selection {
	if t.Flow.Needed() == 0 {
		return nil
	}
	s := &selection{needed: t.Flow.Needed(), each: t.Flow.Pattern() == flow.PatternEach}
	for _, part := range t.Visible() {
		if part.Step == nil || !part.Step.IsEach() || part.Name() != t.Name() {
			s.members = append(s.members, member{part.Name(), stepsIn(part)})
		}
	}
	return s
}

// stepsIn are the names of the steps of a part.
func stepsIn(t *flow.Tree) (names []string) {
	if t.Step != nil {
		return []string{t.Name()}
	}
	for _, part := range t.Parts {
		names = append(names, stepsIn(part)...)
	}
	return names
}

// text shows which members have succeeded and which were dropped.
func (s *selection) text(detail *logbook.FlowDetail) string {
	if s == nil {
		return ""
	}
	members := s.members
	if s.each {
		members = elementsOf(members, detail)
	}
	var winners, dropped []string
	for _, m := range members {
		switch end := m.end(detail); end {
		case "":
		case succeeded:
			winners = append(winners, cli.Clean(m.name))
		default:
			dropped = append(dropped, cli.Clean(m.name)+" "+end)
		}
	}
	text := fmt.Sprintf("  first %d of %d", s.needed, len(members))
	if len(winners) == 0 {
		return text
	}
	text += ": winner " + cli.Few(winners)
	if len(winners) > 1 {
		text = strings.Replace(text, "winner ", "winners ", 1)
	}
	if len(dropped) > 0 {
		text += "; " + cli.Few(dropped)
	}
	return text
}

// elementsOf are the members of a list: the instances of each step, by index.
func elementsOf(body []member, detail *logbook.FlowDetail) (elements []member) {
	var names []string
	for _, part := range body {
		names = append(names, part.steps...)
	}
	for i := range detail.Atoms {
		base, is := logbook.CutInstance(detail.Atoms[i].Name)
		if !is || !slices.Contains(names, base) {
			continue
		}
		place := placesOf(detail.Atoms[i].Name)[0]
		for len(elements) <= place {
			elements = append(elements, member{name: fmt.Sprintf("element %d", len(elements))})
		}
		elements[place].steps = append(elements[place].steps, detail.Atoms[i].Name)
	}
	return elements
}

// succeeded is the end of a member that has succeeded.
const succeeded = "succeeded"

// end describes the end of a member in one word; empty: it has not ended.
func (m *member) end(detail *logbook.FlowDetail) string {
	end, ran := succeeded, false
	for _, name := range m.steps {
		atom, found := detail.Atom(name)
		switch {
		case !found:
			return ""
		case atom.IsDropped() && atom.Failure() != nil && atom.Failure().Kind != logbook.FailureInterrupted, atom.FailureIgnored():
			return "failed"
		case atom.IsDropped() && atom.Failure() != nil:
			end, ran = "interrupted", true
		case atom.IsDropped():
			end, ran = "reverted", true
		case atom.State == logbook.AtomSuccess:
			ran = true
		case atom.State != logbook.AtomIgnored:
			return ""
		}
	}
	if !ran {
		return "not run"
	}
	return end
}
