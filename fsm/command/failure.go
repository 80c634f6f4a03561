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
		Details:   ValuesToProto(f.Details),
	}
	message.Causes = failuresToProto(f.Causes)
	return message
}

func failuresToProto(failures []logbook.Failure) []*v1.Failure {
	var messages []*v1.Failure
	for i := range failures {
		messages = append(messages, FailureToProto(&failures[i]))
	}
	return messages
}

// FailureFromProto converts a failure and its causes; nil stays nil. Every kind is accepted,
// because programs add their own.
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
		Details:   ValuesFromProto(message.Details),
	}
	f.Causes = failuresFromProto(message.Causes)
	return f
}

func failuresFromProto(messages []*v1.Failure) []logbook.Failure {
	var failures []logbook.Failure
	for _, message := range messages {
		if message != nil {
			failures = append(failures, *FailureFromProto(message))
		}
	}
	return failures
}
