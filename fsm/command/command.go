// Package command is the vocabulary of the replicated state machine: the commands in the log, their
// encoding, the checks before the log, and the conversions between messages and the domain types of
// packages jobs and logbook.
//
// Messages are only for transport and log; all other code uses the domain types. XToProto converts
// to the message and cannot fail. It repairs text for people that is not UTF-8. XFromProto converts
// back and checks what the message's form allows and the domain does not: ids, words and times. Its
// error is a *logbook.InvalidError that names the field. Unset and zero are equal. Check decides
// which values a field can have, and whether it can be unset. Where both types have the same shape,
// fsm/command/generate writes the conversions.
//
// The encoding of an entry starts with a version. A node stops at an unknown version, command or
// field: if it skipped one, its state would silently differ from the other nodes from then on. For
// the same reason, Check refuses unknown fields before they reach the log.
package command

import v1 "github.com/conductord/conductord/api/conductord/v1"

// Size is the length of the encoded command in bytes.
func Size(c *v1.Command) int { return c.SizeVT() }
