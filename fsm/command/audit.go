package command

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/logbook"
)

const (
	// maxTarget limits the target of a record, in bytes.
	maxTarget = 1 << 10
	// enoughChange is the size in bytes to which the change of a record is cut; only grants are
	// always complete.
	enoughChange = 2 << 10
	// maxAuditText limits one text in a record, such as a reason, in bytes.
	maxAuditText = 512
	// maxChange is the largest change: the largest possible grants of a principal fit.
	maxChange = 128 << 10
)

// unseen are the ranges of spaces and of format and direction marks: first and last character.
var unseen = [][2]rune{
	{0xa0, 0xa0}, {0xad, 0xad}, {0x34f, 0x34f}, {0x61c, 0x61c}, {0x115f, 0x1160}, {0x1680, 0x1680}, {0x180b, 0x180f}, {0x2000, 0x200f}, {0x2028, 0x202f}, {0x205f, 0x206f},
	{0x3000, 0x3000}, {0x3164, 0x3164}, {0xfe00, 0xfe0f}, {0xfeff, 0xfeff}, {0xffa0, 0xffa0}, {0xfff0, 0xfffb}, {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff},
}

// Audited reports whether the audit log records a command. It records all verbs whose effect no event
// of a job shows, and jobs that an operator trashes. Jobs that conductors trash are not recorded: after a
// bad deployment there can be enough of them to remove all older records.
func Audited(c *v1.Command) bool {
	return !VerbOf(c).Rule.GetUnaudited() || c.GetTrash().GetFailure().GetKind() == logbook.FailureOperator
}

// Target returns the object of a message as text for the audit log.
func Target(message proto.Message) string {
	var target []byte
	options := OptionsOf(message.ProtoReflect().Descriptor())
	for _, field := range options.target {
		if value := options.Text(message.ProtoReflect(), field.path); value != "" && len(target) < maxTarget {
			target = fmt.Appendf(target, "%s=%s ", field.name, auditText(value))
		}
	}
	return text(strings.TrimRight(string(target[:min(len(target), maxTarget)]), " "))
}

// ChangeOf returns the content of a message as text for the audit log: the fields without the
// target, in their order, without values of programs. It depends only on the message, so all nodes
// record the same text.
func ChangeOf(message proto.Message) string {
	reflected := message.ProtoReflect()
	target := OptionsOf(reflected.Descriptor()).target
	return strings.Join(changes(reflected, func(field protoreflect.FieldDescriptor) bool {
		return slices.ContainsFunc(target, func(of targetField) bool { return of.name == string(field.Name()) && of.path == of.name })
	}), " ")
}

func changes(message protoreflect.Message, leaveOut func(protoreflect.FieldDescriptor) bool) (told []string) {
	size, options := 0, OptionsOf(message.Descriptor())
	for i := range options.untold {
		field := message.Descriptor().Fields().Get(i)
		if leaveOut(field) || options.untold[i] || !options.told[i] && !field.IsList() && !message.Has(field) {
			continue
		}
		value := changed(field, message.Get(field))
		if value == "" {
			continue
		}
		if size > enoughChange {
			return append(told, "…")
		}
		told = append(told, string(field.Name())+"="+value)
		size += len(value)
	}
	return told
}

// changed returns the text of a field; empty: the audit log omits the field.
func changed(field protoreflect.FieldDescriptor, value protoreflect.Value) string {
	switch {
	case field.IsMap(), field.Kind() == protoreflect.BytesKind, HasValues(field):
		return ""
	case field.IsList() && (field.Message() == nil || field.Message().Name() == "Grant"):
		items := make([]string, value.List().Len())
		for i := range items {
			items[i] = changedItem(field, value.List().Get(i))
		}
		return "[" + strings.Join(items, ",") + "]"
	case field.IsList() && value.List().Len() == 0:
		return ""
	case field.IsList():
		return fmt.Sprint(value.List().Len())
	}
	return changedItem(field, value)
}

func changedItem(field protoreflect.FieldDescriptor, value protoreflect.Value) string {
	if field.Message() == nil {
		return auditText(value.String())
	}
	switch m := value.Message().Interface().(type) {
	case *v1.Grant:
		return auditText(m.GetRole()) + ":" + auditText(m.GetBoards())
	case *durationpb.Duration:
		return m.AsDuration().String()
	case *timestamppb.Timestamp:
		return m.AsTime().Format(time.RFC3339)
	}
	return "{" + strings.Join(changes(value.Message(), func(protoreflect.FieldDescriptor) bool { return false }), " ") + "}"
}

// auditText formats a text so that it cannot be taken for another field: it quotes the text, unless it has
// only ASCII characters of ids and names. It escapes invisible characters and marks of writing direction. It
// does not use package unicode, whose tables change between versions, because records must not change.
func auditText(said string) string {
	if len(said) > maxAuditText {
		said = strings.ToValidUTF8(said[:maxAuditText], "") + "…"
	}
	isPlain := func(r rune) bool {
		return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune("._-:/@+*…", r)
	}
	if said != "" && strings.IndexFunc(said, func(r rune) bool { return !isPlain(r) }) < 0 {
		return said
	}
	var quoted strings.Builder
	quoted.WriteByte('"')
	for _, r := range said {
		switch {
		case r == '"' || r == '\\':
			quoted.WriteByte('\\')
			quoted.WriteRune(r)
		case r < ' ' || r >= 0x7f && r < 0xa0:
			fmt.Fprintf(&quoted, `\x%02x`, r)
		case slices.ContainsFunc(unseen, func(span [2]rune) bool { return span[0] <= r && r <= span[1] }):
			fmt.Fprintf(&quoted, `\u{%x}`, r)
		default:
			quoted.WriteRune(r)
		}
	}
	quoted.WriteByte('"')
	return quoted.String()
}
