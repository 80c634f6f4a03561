// Package command is the vocabulary of the replicated state machine: the
// commands in the log, their encoding, the checks before the log, and the
// conversions between the messages of the wire and the domain types of packages jobs and
// logbook.
//
// A message is for transport and log only; all other code holds the domain type.
// XToProto converts to the message and cannot fail. It repairs text for people that is
// not UTF-8. XFromProto converts back and checks
// what the message's form allows and the domain does not: ids, words and
// times, with a *logbook.InvalidError that names the field. Unset and zero are
// the same. What a field may hold, and whether it may be unset, is for Check.
// Where both types have the same shape, fsm/command/generate writes the conversions.
//
// The encoding of an entry begins with a version. A node that meets a version,
// a command or a field that it does not know must stop: skipping one would
// make it differ from the others for ever, and silently. For the same reason
// Check refuses unknown fields before they get into the log.
package command

import v1 "github.com/conductord/conductord/api/conductord/v1"

// Size is the length of the encoded command in bytes.
func Size(c *v1.Command) int { return c.SizeVT() }
