package command

import (
	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/logbook"
)

// FailureToProto converts a failure and its causes; nil stays nil.
func FailureToProto(f *logbook.Failure) *v1.Failure {
	if f == nil {
		return nil
	}
	message := &v1.Failure{
		Kind:      f.Kind,
		Message:   text(f.Message),
		Step:      f.Step,
		Code:      numberOf(f.Code),
		Permanent: f.Permanent,
		Stack:     text(f.Stack),
	}
	for i := range f.Causes {
		message.Causes = append(message.Causes, FailureToProto(&f.Causes[i]))
	}
	return message
}

// FailureFromProto converts a failure and its causes; nil stays nil. Any kind
// will do, since programs add their own.
func FailureFromProto(message *v1.Failure) *logbook.Failure {
	if message == nil {
		return nil
	}
	f := &logbook.Failure{
		Kind:      message.Kind,
		Message:   message.Message,
		Step:      message.Step,
		Code:      int(message.Code),
		Permanent: message.Permanent,
		Stack:     message.Stack,
	}
	for _, cause := range message.Causes {
		if cause != nil {
			f.Causes = append(f.Causes, *FailureFromProto(cause))
		}
	}
	return f
}
