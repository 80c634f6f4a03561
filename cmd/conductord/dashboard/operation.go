package dashboard

import (
	"context"
	"fmt"
	"slices"

	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
)

// operation is one possible operation on a job, a flow, a board, a conductor or a member.
type operation struct {
	Verb, Text string // for its address, and for its button
	Sure       string // text of the button in its form; empty: Text
	Command    string // command line with the same effect
	Help       string // the effect
	Danger     bool   // requires a confirmation
	Inputs     []input
	Address    string // set for the page
	Of         string // the object, if a page offers the operation for several objects; empty: only one

	permission command.Permission
	unfit      bool // not applicable now
	do         func(ctx context.Context, v *visit) (next string, err error)
}

// ID is the id of its element in the page.
func (o operation) ID() string {
	if o.Of == "" {
		return o.Verb
	}
	return o.Verb + "-" + o.Of
}

// input is a field of the form of an operation.
type input struct {
	Name, Label string
	Kind        string // check, hidden, lines, number, integer, decimal or datetime-local; empty: text
	Required    bool
	Value       string
	Choices     []string // empty: not a choice
	Unchosen    string   // the choice that sends nothing; empty: one must be chosen
}

// why is the form field for the reason of an operation. keep is the field for a cancel without a
// revert.
var (
	why  = input{Name: "reason", Label: "Reason"}
	keep = input{Name: "keep", Label: "keep finished steps, and revert nothing", Kind: "check"}
)

// offered are the applicable operations that the user may perform.
func (v *visit) offered(all []operation, board string, address ...string) (offered []operation) {
	for _, o := range all {
		if !o.unfit && v.may(o.permission, board) {
			o.Address = v.dashboard.views.address(append(slices.Clip(address), o.Verb)...)
			offered = append(offered, o)
		}
	}
	return offered
}

// operate makes the action that performs one row of a table. name is the operation's name in the
// address.
func operate[T any](table func(name string, of T) []operation) func(context.Context, *visit) (string, error) {
	return func(ctx context.Context, v *visit) (string, error) {
		var unknown T // the API decides whether it is applicable
		o, err := v.chosen(table(v.part("name"), unknown))
		if err != nil {
			return "", err
		}
		return o.do(ctx, v)
	}
}

// chosen is the row that the address names.
func (v *visit) chosen(all []operation) (operation, error) {
	verb := v.part("verb")
	if i := slices.IndexFunc(all, func(o operation) bool { return o.Verb == verb }); i >= 0 {
		return all[i], nil
	}
	return operation{}, fmt.Errorf("%w: there is no action %.64q", jobs.ErrNotFound, verb)
}

// pager has the addresses of the first and the next page of a list; empty: there is none.
type pager struct{ First, Next string }

func (v *visit) more(next string) (p pager) {
	if next != "" {
		p.Next = v.with("after", next)
	}
	if v.query("after") != "" {
		p.First = v.with()
	}
	return p
}
