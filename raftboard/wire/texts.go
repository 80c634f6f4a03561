package wire

import "google.golang.org/protobuf/reflect/protoreflect"

// A TextField is how a field with texts of programs is kept from readers that may not see values.
// Clients with keys for values encrypt them all.
type TextField int

const (
	NoText  TextField = iota // the field has no texts of programs, or is of a type with values
	Cleared                  // left out of answers
	Reduced                  // nodes make it without the texts of programs
)

// texts are the fields with texts of programs, or texts that nodes make from them.
var texts = map[protoreflect.FullName]TextField{
	"conductord.v1.Failure.message": Cleared, "conductord.v1.Failure.stack": Cleared, "conductord.v1.Attempt.stderr": Cleared,
	"conductord.v1.Ending.reason": Cleared, "conductord.v1.Job.reason": Cleared, "conductord.v1.JobError.reason": Cleared,
	"conductord.v1.Event.reason": Cleared, "conductord.v1.LogLine.text": Cleared, "conductord.v1.ExplainResponse.text": Reduced,
	"conductord.v1.StepOutcome.output": Cleared, "conductord.v1.StepOutcome.stderr": Cleared,
}

// TextOf reports whether a field has texts of programs.
func TextOf(field protoreflect.FieldDescriptor) TextField { return texts[field.FullName()] }

// HasValues reports whether a field is of a type with values of programs. The hash of a definition
// is that of values, and lets a reader test guesses.
func HasValues(field protoreflect.FieldDescriptor) bool {
	if field.Message() == nil {
		return false
	}
	switch field.Message().FullName() {
	case "conductord.v1.Value", "conductord.v1.NamedValue", "conductord.v1.Definition":
		return true
	}
	return false
}
