// Package command is the vocabulary of the replicated state machine: the
// commands that stand in the log, their encoding, what is refused before the
// log, and the conversions between the messages of the wire and the domain
// types of packages jobs and logbook.
//
// A message is for transport and log only; everybody else holds the domain
// type. XToProto converts to the message and cannot fail; text for people that
// is not UTF-8 is repaired on the way. XFromProto converts back and checks
// what the message's form allows and the domain does not: ids, words and
// times, with a *logbook.InvalidError that names the field. Unset and zero are
// the same. What a field may hold, and whether it may be unset, is for Check.
//
// The encoding of an entry begins with a version. A node that meets a version,
// a command or a field that it does not know must stop: skipping one would
// make it differ from the others for ever, and silently. For the same reason
// Check refuses unknown fields before they get into the log.
package command

import (
	"google.golang.org/protobuf/reflect/protoreflect"

	v1 "github.com/conductord/conductord/api/conductord/v1"
)

// firstLeaderCommand is the field number in message Command from which on
// commands are proposed by the leader alone.
const firstLeaderCommand = 32

// unknownName is the name of a command that this program does not know.
const unknownName = "unknown"

// Name is the word for a command in logs and metrics, such as "claim_next":
// the name of its field in message Command.
func Name(c *v1.Command) string {
	if field := kindField(c); field != nil {
		return string(field.Name())
	}
	return unknownName
}

// LeaderOnly tells whether only the leader itself may propose the command;
// from a client it is to be refused with ErrNotAllowed.
func LeaderOnly(c *v1.Command) bool {
	field := kindField(c)
	return field != nil && field.Number() >= firstLeaderCommand
}

// Size is the length of the encoded command in bytes.
func Size(c *v1.Command) int { return c.SizeVT() }

// kindField is the field that is set in a command; nil if none is, or only one
// that this program does not know.
func kindField(c *v1.Command) protoreflect.FieldDescriptor {
	message := c.ProtoReflect()
	return message.WhichOneof(message.Descriptor().Oneofs().ByName("kind"))
}
