package command_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
)

// TestVerbs compares the table with the messages: each command has one row, and the call of a row
// takes only the command's message.
func TestVerbs(t *testing.T) {
	fields := (&v1.Command{}).ProtoReflect().Descriptor().Oneofs().ByName("kind").Fields()
	if rows := len(command.Verbs()); rows != fields.Len() {
		t.Errorf("the table has %d rows, and there are %d commands", rows, fields.Len())
	}
	seen := map[string]bool{}
	for _, verb := range command.Verbs() {
		if seen[verb.Name] {
			t.Errorf("%s has two rows", verb.Name)
		}
		seen[verb.Name] = true
		c := verb.Command(verb.Request())
		if name := command.Name(c); name != verb.Name {
			t.Errorf("the command of %s is called %s", verb.Name, name)
		}
		if command.LeaderOnly(c) && verb.Call != "" {
			t.Errorf("%s is the leader's own and has the call %s", verb.Name, verb.Call)
		}
		if verb.Call == "" {
			continue
		}
		service, method, _ := strings.Cut(verb.Call, "/")
		call := v1.File_conductord_v1_service_proto.Services().ByName(protoreflect.Name(service)).Methods().ByName(protoreflect.Name(method))
		if taken, message := call.Input().FullName(), verb.Request().ProtoReflect().Descriptor().FullName(); taken != message {
			t.Errorf("%s takes a %s, and the message of %s is %s", verb.Call, taken, verb.Name, message)
		}
	}
	for _, c := range []*v1.Command{nil, {}, newerCommand(t)} {
		if name := command.Name(c); name != "unknown" || command.LeaderOnly(c) {
			t.Errorf("%v is called %q, leader only: %t", c, name, command.LeaderOnly(c))
		}
	}
}

func TestSizeIsThatOfTheEncoding(t *testing.T) {
	for _, c := range samples() {
		if got := command.Size(c); got != len(marshal(t, c)) {
			t.Errorf("%s: size %d, encoded %d", command.Name(c), got, len(marshal(t, c)))
		}
	}
}

func TestPostingDigest(t *testing.T) {
	same := map[string]func(*v1.Posting){
		"itself":           func(*v1.Posting) {},
		"the board unsaid": func(p *v1.Posting) { p.Board = "" },
		"another order of values": func(p *v1.Posting) {
			slices.Reverse(p.Store)
		},
	}
	other := map[string]func(*v1.Posting){
		"board":         func(p *v1.Posting) { p.Board = "night" },
		"name":          func(p *v1.Posting) { p.Name += "!" },
		"priority":      func(p *v1.Posting) { p.Priority++ },
		"details":       func(p *v1.Posting) { p.Details = value(`{"customer":18}`) },
		"store":         func(p *v1.Posting) { p.Store[0].Value = value(`3`) },
		"missing value": func(p *v1.Posting) { p.Store = p.Store[1:] },
		"book":          func(p *v1.Posting) { p.Book.Meta[0].Value = value(`8`) },
		"flow":          func(p *v1.Posting) { p.Flow = "" },
		"time":          func(p *v1.Posting) { p.NotBefore.Nanos++ },
		"kind":          func(p *v1.Posting) { p.Kind = "k" },
	}
	want, memory := command.PostingDigest(nil, samplePosting())
	for name, change := range same {
		p := samplePosting()
		change(p)
		board := p.Board
		if got, _ := command.PostingDigest(memory, p); got != want {
			t.Fatalf("%s: another digest", name)
		}
		sorted := samplePosting()
		if sorted.Board = board; !proto.Equal(p, sorted) {
			t.Fatalf("%s: the posting was changed", name)
		}
	}
	for name, change := range other {
		p := samplePosting()
		change(p)
		if got, _ := command.PostingDigest(memory, p); got == want {
			t.Errorf("%s makes no difference", name)
		}
	}
}

// TestPostingDigestIsPinned: digests are stored in the state of running clusters. A changed digest
// of an old posting would turn its repeat into a conflict.
func TestPostingDigestIsPinned(t *testing.T) {
	const want = "0568581b15d132aaf14b546ddb27d9484cf8d5df32acc4843e115e6ca23021de"
	digest, _ := command.PostingDigest(nil, samplePosting())
	if got := hexOf(digest[:]); got != want {
		t.Errorf("the digest of the sample has become %s", got)
	}
}
