package flow

import (
	"fmt"
	"strings"
)

// language holds the format strings of a graph language. A cluster and a step take
// indentation, number and name; an edge takes its two steps and its label.
type language struct {
	begin, cluster, endCluster, step, retry, edge, labelled, end string
	quote                                                        func(text string) string
}

// Graphviz is the plan in the DOT language: the steps, and the values between them.
func (p *Plan) Graphviz() string {
	return p.draw(language{
		begin:   "digraph flow {\n  rankdir=LR;\n  node [shape=box];\n",
		cluster: "%[1]ssubgraph cluster_%[2]d {\n%[1]s  label=%[3]s;\n", endCluster: "%s}\n",
		step: "%sn%d [label=%s];\n", retry: "%sn%d [label=%s, shape=diamond];\n",
		edge: "  n%d -> n%d;\n", labelled: "  n%d -> n%d [label=%s];\n", end: "}\n", quote: dotText,
	})
}

// Mermaid is the plan as a Mermaid flowchart.
func (p *Plan) Mermaid() string {
	return p.draw(language{
		begin:   "flowchart LR\n",
		cluster: "%ssubgraph f%d[\"%s\"]\n", endCluster: "%send\n",
		step: "%sn%d[\"%s\"]\n", retry: "%sn%d{\"%s\"}\n",
		edge: "  n%d --> n%d\n", labelled: "  n%d -->|\"%[3]s\"| n%[2]d\n", quote: mermaidText,
	})
}

func (p *Plan) draw(l language) string {
	p = p.Template()
	var out strings.Builder
	out.WriteString(l.begin)
	flows := 0
	var draw func(t *Tree, indent string)
	draw = func(t *Tree, indent string) {
		if t.Step != nil {
			format := map[bool]string{false: l.step, true: l.retry}[t.Step.retrier]
			fmt.Fprintf(&out, format, indent, t.First, l.quote(t.Step.name+t.Step.pictureMark()))
			return
		}
		label := t.Flow.name
		if selection := t.Flow.selection(); selection != "" {
			label += ": " + selection
		}
		fmt.Fprintf(&out, l.cluster, indent, flows, l.quote(label))
		flows++
		for _, part := range t.Parts {
			draw(part, indent+"  ")
		}
		fmt.Fprintf(&out, l.endCluster, indent)
	}
	draw(p.Tree(), "  ")
	for from := range p.steps {
		for _, to := range p.Successors(from) {
			if label := strings.Join(p.labels(from, to), ", "); label != "" {
				fmt.Fprintf(&out, l.labelled, from, to, l.quote(label))
			} else {
				fmt.Fprintf(&out, l.edge, from, to)
			}
		}
	}
	out.WriteString(l.end)
	return out.String()
}

// pictureMark is what a reader of a picture must know of a failure: whether the step can be reverted past, whether its
// failure counts, and whether it runs at the end of its flow.
func (s *Step) pictureMark() string {
	switch {
	case s.IsLate():
		return " (" + s.lateWord() + ")"
	case s.noReturn:
		return " (point of no return)"
	case s.ignoresFailure:
		return " (failure ignored)"
	}
	return ""
}

// labels are the names of the values that one step gets from another, and of the deciders
// between them.
func (p *Plan) labels(from, to int) []string {
	var labels []string
	for _, wire := range p.wires[to] {
		for _, source := range wire.Sources() {
			if source.isFrom(from) {
				labels = append(labels, wire.Reference())
			}
		}
	}
	for i := range p.choices {
		choice := &p.choices[i]
		for j := range choice.Deciders {
			if choice.Target.holds(to) && choice.Deciders[j].asks(from) {
				labels = append(labels, "if "+choice.Deciders[j].Name)
			}
		}
	}
	return labels
}

func dotText(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(text) + `"`
}

// mermaidText writes what would end a label or start markup as character codes.
func mermaidText(text string) string {
	return strings.NewReplacer(`"`, "#quot;", "#", "#35;", "<", "#lt;", ">", "#gt;", "&", "#amp;", "`", "#96;", "\n", " ").Replace(text)
}
