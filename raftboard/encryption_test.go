package raftboard_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/internal/filled"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/valuekeys"
)

// ofPrograms are the fields of calls with texts of programs, or with texts that nodes derive from
// them.
var ofPrograms = []protoreflect.FullName{
	"conductord.v1.Approval.text", "conductord.v1.Attempt.stderr", "conductord.v1.Definition.hash", "conductord.v1.Definition.packed", "conductord.v1.Ending.reason",
	"conductord.v1.Event.reason", "conductord.v1.ExplainResponse.text", "conductord.v1.Failure.message", "conductord.v1.Failure.stack",
	"conductord.v1.Job.reason", "conductord.v1.JobError.reason", "conductord.v1.LogLine.text", "conductord.v1.PublishCommand.reject", "conductord.v1.RevertCause.reason", "conductord.v1.Signal.reject",
	"conductord.v1.SignalCommand.reject", "conductord.v1.StepOutcome.output", "conductord.v1.StepOutcome.stderr", "conductord.v1.Value.json",
}

// TestEveryMessageIsEncrypted fills the messages of every call. With keys, each text of a program
// is encrypted, and nothing else. The same keys decrypt it.
func TestEveryMessageIsEncrypted(t *testing.T) {
	t.Parallel()
	keys, err := valuekeys.Add(t.TempDir()+"/keys", "k")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[protoreflect.FullName]bool{}
	for name, call := range filled.Calls(v1.File_conductord_v1_service_proto) {
		for _, of := range []protoreflect.FullName{call.Input().FullName(), call.Output().FullName(), "conductord.v1.Command"} {
			if seen[of] { // the command, and the empty answer of several calls
				continue
			}
			seen[of] = true
			kind, err := protoregistry.GlobalTypes.FindMessageByName(of)
			if err != nil {
				t.Fatal(err)
			}
			for _, message := range filled.Messages(kind, func(protoreflect.FieldDescriptor) string { return `"canary"` }) {
				withoutPlain(message.ProtoReflect())
				plain := proto.Clone(message)
				raftboard.Encrypt(keys, message)
				filled.Texts(message.ProtoReflect(), func(field protoreflect.FieldDescriptor, text string) {
					if encrypted := !strings.Contains(text, "canary"); encrypted != slices.Contains(ofPrograms, field.FullName()) {
						t.Errorf("%s, %s: %s is encrypted %t", name, of, field.FullName(), encrypted)
					}
				})
				if raftboard.Decrypt(keys, message); !proto.Equal(message, plain) {
					t.Errorf("%s: %s is not decrypted: %v", name, of, message)
				}
			}
		}
	}
}

// withoutPlain clears what clients do not encrypt: the metadata of entities, which come from conductors, and fields with
// the option plain, which TestPlainFieldsAreKept covers.
func withoutPlain(message protoreflect.Message) {
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.FullName() == "conductord.v1.Entity.metadata" || isPlain(field):
			message.Clear(field)
		case field.Message() == nil || field.IsMap():
		case field.IsList():
			for i := range value.List().Len() {
				withoutPlain(value.List().Get(i).Message())
			}
		default:
			withoutPlain(value.Message())
		}
		return true
	})
}

func isPlain(field protoreflect.FieldDescriptor) bool {
	plain, _ := proto.GetExtension(field.Options(), v1.E_Plain).(bool)
	return plain
}

// TestPlainFieldsAreKept: the leader checks the answers of an approval, so clients do not encrypt them.
func TestPlainFieldsAreKept(t *testing.T) {
	t.Parallel()
	keys, err := valuekeys.Add(t.TempDir()+"/keys", "k")
	if err != nil {
		t.Fatal(err)
	}
	decision := &v1.DecideCommand{Job: "j", Answers: &v1.Value{Json: []byte(`{"size":1}`)}}
	approval := &v1.Approval{Text: "Delete it?", Fields: &v1.Value{Json: []byte(`{}`)}}
	raftboard.Encrypt(keys, decision)
	raftboard.Encrypt(keys, approval)
	if string(decision.Answers.Json) != `{"size":1}` || string(approval.Fields.Json) != "{}" || approval.Text == "Delete it?" {
		t.Errorf("encrypted as %v and %v", decision, approval)
	}
}

// TestIterationsAreDecrypted: the cluster copies the encrypted values of a flow into its next iteration, which has
// another id. The ending of an iteration gives values to the stores of the job and of the next flow.
func TestIterationsAreDecrypted(t *testing.T) {
	t.Parallel()
	keys, err := valuekeys.Add(t.TempDir()+"/keys", "k")
	if err != nil {
		t.Fatal(err)
	}
	named := func() []*v1.NamedValue { return []*v1.NamedValue{{Name: "n", Value: &v1.Value{Json: []byte("1")}}} }
	flow := &v1.FlowDetail{Id: "first", Store: named(), Meta: named(), Factory: &v1.Factory{Name: "f", Args: &v1.Value{Json: []byte("2")}}}
	ending := &v1.Ending{Job: "job", Again: &v1.Continuation{Store: named()}}
	raftboard.Encrypt(keys, flow)
	raftboard.Encrypt(keys, ending)
	next := proto.Clone(flow).(*v1.FlowDetail)
	next.Id, next.Origin, next.Iteration = "second", "first", 2
	given := &v1.FlowDetail{Id: "third", Origin: "first", Store: proto.Clone(ending).(*v1.Ending).Again.Store}
	job := &v1.Job{Id: "job", Store: ending.Again.Store}
	raftboard.Decrypt(keys, next)
	raftboard.Decrypt(keys, given)
	raftboard.Decrypt(keys, job)
	for what, value := range map[string]*v1.Value{"the flow's store": next.Store[0].Value, "its given store": given.Store[0].Value, "its meta": next.Meta[0].Value, "its document": next.Factory.Args, "the job's store": job.Store[0].Value} {
		if len(value.GetJson()) != 1 {
			t.Errorf("%s is %s", what, value.GetJson())
		}
	}
}
