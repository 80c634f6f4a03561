package fsm_test

import (
	"fmt"
	"strings"
	"testing"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/logbook"
)

// named returns the id with which an update names a definition.
func named(d *v1.Definition) []byte {
	id := command.DefinitionIDOf(command.DefinitionFromProto(d))
	return id[:]
}

// builtAs is an update that contains a definition, or names it.
func builtAs(flow string, token logbook.Token, sequence uint64, d *v1.Definition, byName bool) *v1.Command {
	u := update(flow, token, sequence, "")
	if byName {
		u.DefinitionId = named(d)
	} else {
		u.Definition = d
	}
	return updateFlow(u)
}

// definitions is the number of stored definitions.
func (r *rig) definitions() (n int) {
	r.Helper()
	rows, err := fsm.Rows(r.Machine)
	if err != nil {
		r.Fatal(err)
	}
	for key := range rows {
		if strings.HasPrefix(key, "definition/") {
			n++
		}
	}
	return n
}

// TestDefinitionsAreShared: flows of the same definition share one row. The row is kept until the
// last such flow is removed or changes its definition.
func TestDefinitionsAreShared(t *testing.T) {
	r := newRig(t)
	r.ok(open("bob"))
	for _, name := range []string{"a", "b", "c"} {
		r.ok(saveBook(book("book of "+name, "flow of "+name)))
	}
	old, changed := definition("x", "y"), definition("x", "z")
	none := logbook.Token{}
	holds := func(flow string, want *v1.Definition) {
		t.Helper()
		if got := r.flow(flow).Definition; got == nil || got.Hash != want.Hash || string(got.Packed) != string(want.Packed) {
			t.Errorf("%s was built as %v, want %v", flow, got, want)
		}
	}
	r.refused(builtAs("flow of a", none, 1, old, true), "invalid")
	r.ok(builtAs("flow of a", none, 1, old, false))
	r.ok(builtAs("flow of b", none, 1, old, true))
	r.ok(builtAs("flow of c", none, 1, old, false))
	if n := r.definitions(); n != 1 {
		t.Errorf("%d definitions are kept", n)
	}
	r.ok(builtAs("flow of c", none, 2, changed, false))
	r.ok(builtAs("flow of c", none, 3, changed, true)) // the flow has this definition already
	holds("flow of a", old)
	holds("flow of b", old)
	holds("flow of c", changed)
	r.ok(destroyBook("book of a"))
	holds("flow of b", old)
	r.ok(builtAs("flow of b", none, 2, changed, true)) // the last flow with the old definition
	holds("flow of b", changed)
	r.harmless(builtAs("flow of b", none, 1, old, true)) // a repeat whose definition was removed
	r.refused(builtAs("flow of b", none, 3, old, true), "invalid")
	r.ok(destroyBook("book of b"))
	r.ok(destroyBook("book of c"))
	if n := r.definitions(); n != 0 {
		t.Errorf("%d definitions are kept of no flow", n)
	}
}

// TestEndingNamesDefinition: the update of an ending can name a definition too.
func TestEndingNamesDefinition(t *testing.T) {
	r := newRig(t)
	r.ok(open("bob"))
	built := definition("x")
	for i, name := range []string{"a", "b"} {
		token := r.claimed("bob", flowPosting(name))
		end := success(name, token)
		r.ok(updateFlow(update("flow of "+name, token, 1, "running")))
		end.Update = update("flow of "+name, token, 2, "success")
		end.Update.DefinitionId = named(built)
		if i == 0 {
			r.refused(consume(end), "invalid")
			end.Update.Definition, end.Update.DefinitionId = built, nil
		}
		r.ok(consume(end))
		if got := r.flow("flow of " + name).Definition; got == nil || got.Hash != built.Hash {
			t.Errorf("the flow of %s was built as %v", name, got)
		}
	}
}

func TestBadDefinitionIDs(t *testing.T) {
	r := newRig(t)
	r.ok(saveBook(book("b", "f")))
	for i, bad := range [][]byte{{1}, make([]byte, 16), make([]byte, 17)} {
		u := update("f", logbook.Token{}, 1, "")
		u.DefinitionId = bad
		r.refused(updateFlow(u), "invalid")
		u.DefinitionId, u.Definition = named(definition("x")), definition("x")
		if i == 0 {
			r.refused(updateFlow(u), "invalid")
		}
	}
	other := *command.DefinitionFromProto(definition("x"))
	other.Hash += "y"
	if fmt.Sprint(command.DefinitionIDOf(&other)) == fmt.Sprint(command.DefinitionID(named(definition("x")))) {
		t.Error("another hash has the same id")
	}
}
