package guard_test

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/internal/filled"
	"github.com/conductord/conductord/raftboard/node/guard"
)

// ofPrograms are the fields of answers with texts of programs.
var ofPrograms = []protoreflect.FullName{
	"conductord.v1.Attempt.stderr", "conductord.v1.Definition.hash", "conductord.v1.Definition.packed", "conductord.v1.Event.reason",
	"conductord.v1.Failure.message", "conductord.v1.Failure.stack", "conductord.v1.Job.reason", "conductord.v1.JobError.reason",
	"conductord.v1.LogLine.text", "conductord.v1.NamedValue.name", "conductord.v1.RevertCause.reason", "conductord.v1.Signal.reject",
	"conductord.v1.Approval.text", "conductord.v1.StepOutcome.output", "conductord.v1.StepOutcome.stderr", "conductord.v1.Value.json",
}

// TestEveryAnswerIsHidden fills the answer of every call: hiding clears each text of a program at
// any depth, and nothing else.
func TestEveryAnswerIsHidden(t *testing.T) {
	t.Parallel()
	met := map[protoreflect.FullName]bool{}
	for name, call := range filled.Calls(v1.File_conductord_v1_service_proto) {
		of, err := protoregistry.GlobalTypes.FindMessageByName(call.Output().FullName())
		if err != nil {
			t.Fatal(err)
		}
		for _, answer := range filled.Messages(of, func(field protoreflect.FieldDescriptor) string { return string(field.FullName()) }) {
			shown, left := map[protoreflect.FullName]bool{}, map[protoreflect.FullName]bool{}
			filled.Texts(answer.ProtoReflect(), func(field protoreflect.FieldDescriptor, _ string) {
				met[field.FullName()] = true
				shown[field.FullName()] = !slices.Contains(ofPrograms, field.FullName())
			})
			guard.WithoutValues(answer)
			filled.Texts(answer.ProtoReflect(), func(field protoreflect.FieldDescriptor, _ string) { left[field.FullName()] = true })
			for field, isShown := range shown {
				if isShown != left[field] {
					t.Errorf("%s: %s is shown %t, and must be %t", name, field, left[field], isShown)
				}
			}
		}
	}
	for _, field := range ofPrograms {
		if !met[field] {
			t.Errorf("no answer has %s", field)
		}
	}
}
