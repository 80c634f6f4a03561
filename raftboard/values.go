package raftboard

import (
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/valuekeys"
)

// EncryptText encrypts a text for display; without ValueKeys it returns the text unchanged.
func (c *Client) EncryptText(text string) string {
	if c.options.ValueKeys == nil {
		return text
	}
	return c.options.ValueKeys.Encrypt(textPlace, []byte(text))
}

// valueWalk encrypts or decrypts all values in a message.
type valueWalk struct {
	keys     *valuekeys.Keys
	encrypts bool
}

// encrypt encrypts the values of a message that was made for one call. Without keys it does nothing.
func (c *core) encrypt(message proto.Message) {
	if keys := c.options.ValueKeys; keys != nil {
		walk := valueWalk{keys: keys, encrypts: true}
		walk.message(message.ProtoReflect(), valuekeys.Place{})
	}
}

// decrypt decrypts the values of an answer. Values that it cannot decrypt stay encrypted.
func (c *core) decrypt(message proto.Message) {
	if keys := c.options.ValueKeys; keys != nil {
		walk := valueWalk{keys: keys}
		walk.message(message.ProtoReflect(), valuekeys.Place{})
	}
}

// textPlace is the place of all texts, because nodes copy them between a job, its flow and their
// records.
var textPlace = valuekeys.Place{Field: "text"}

// inside returns the place of a message's values, given the place of the containing message.
func inside(message protoreflect.Message, at valuekeys.Place) valuekeys.Place {
	options := command.OptionsOf(message.Descriptor())
	stated := options.Place
	switch {
	case stated == nil:
		return at
	case !stated.GetWithin():
		at = valuekeys.Place{Owner: options.Text(message, stated.GetOwner())}
	}
	if stated.GetStep() != "" {
		at.Step = options.Text(message, stated.GetStep())
	}
	for i, name := range stated.GetName() {
		if i == 0 {
			at.Name = ""
		} else {
			at.Name += " "
		}
		at.Name += options.Text(message, name)
	}
	return at
}

func (w valueWalk) message(message protoreflect.Message, at valuekeys.Place) {
	switch m := message.Interface().(type) {
	case *v1.Entity:
		return // its metadata belongs to a conductor, not to a job
	case *v1.Definition:
		w.definition(m, at)
		return
	case *v1.Attempt:
		if w.encrypts {
			cutStderr(m)
		}
	}
	at = inside(message, at)
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case command.ClassOf(field) != v1.Class_SHOWN:
			message.Set(field, protoreflect.ValueOfString(w.text(message.Interface(), value.String())))
		case field.Message() == nil || field.IsMap() || command.IsPlain(field):
		case ofOrigin(message, field):
			inner := at
			inner.Owner = message.Interface().(*v1.FlowDetail).GetOrigin()
			w.fields(field, value, inner)
		default:
			w.fields(field, value, at)
		}
		return true
	})
}

// ofOrigin reports whether a field of a flow was copied from the first iteration of the flow, with its values.
func ofOrigin(message protoreflect.Message, field protoreflect.FieldDescriptor) bool {
	flow, ok := message.Interface().(*v1.FlowDetail)
	if !ok || flow.GetOrigin() == "" {
		return false
	}
	switch field.Name() {
	case "factory", "store", "meta":
		return true
	}
	return false
}

// fields walks a field with one message, or with a list of them.
func (w valueWalk) fields(field protoreflect.FieldDescriptor, value protoreflect.Value, at valuekeys.Place) {
	if !field.IsList() {
		w.field(field, value.Message(), at)
		return
	}
	for i := range value.List().Len() {
		w.field(field, value.List().Get(i).Message(), at)
	}
}

// field returns a field's message, or an element of a list of messages.
func (w valueWalk) field(field protoreflect.FieldDescriptor, message protoreflect.Message, at valuekeys.Place) {
	at.Field = string(field.Name())
	switch m := message.Interface().(type) {
	case *v1.Value:
		w.value(m, at)
	case *v1.NamedValue:
		at.Name = m.GetName()
		w.value(m.GetValue(), at)
	default:
		w.message(message, at)
	}
}

func (w valueWalk) value(value *v1.Value, at valuekeys.Place) {
	switch {
	case len(value.GetJson()) == 0:
	case w.encrypts:
		value.Json = w.keys.EncryptJSON(at, value.GetJson())
	default:
		// The values of a schedule have no owner, because nodes make the ids of its jobs.
		scheduled := at
		scheduled.Owner = ""
		if plain, err := w.keys.DecryptJSON(value.GetJson(), at, scheduled); err == nil {
			value.Json = plain
		}
	}
}

// definition encrypts or decrypts a flow's definition: it has hashes of the values in the flow's
// document, with which a reader without the key could test guesses.
func (w valueWalk) definition(definition *v1.Definition, at valuekeys.Place) {
	hash, packed := at, at
	hash.Field, packed.Field = "definition hash", "definition steps"
	if w.encrypts {
		definition.Hash = w.keys.Encrypt(hash, []byte(definition.GetHash()))
		if len(definition.GetPacked()) > 0 {
			definition.Packed = []byte(w.keys.Encrypt(packed, definition.GetPacked()))
		}
		return
	}
	definition.Hash = w.keys.DecryptWithin(definition.GetHash(), hash)
	if steps, err := w.keys.Decrypt(string(definition.GetPacked()), packed); err == nil {
		definition.Packed = steps
	}
}

func (w valueWalk) text(of proto.Message, text string) string {
	if !w.encrypts {
		return w.keys.DecryptWithin(text, textPlace)
	}
	if ending, ok := of.(*v1.Ending); ok {
		// A reason without a failure is a decision of the conductor or an operator.
		if ending.GetFailure() == nil {
			return text
		}
		text = keepBeginning(text, valuekeys.PlainSize(jobs.MaxReason))
	}
	return w.keys.Encrypt(textPlace, []byte(text))
}

func keepBeginning(text string, most int) string {
	if len(text) <= most {
		return text
	}
	const mark = "…"
	return strings.ToValidUTF8(text[:most-len(mark)], "") + mark
}

// cutStderr shortens stderr to the longest end that fits when it is encrypted.
func cutStderr(attempt *v1.Attempt) {
	most := valuekeys.PlainSize(logbook.MaxStderr)
	if text := attempt.GetStderr(); len(text) > most {
		attempt.Stderr, attempt.StderrTruncated = strings.ToValidUTF8(text[len(text)-most:], ""), true
	}
}

// plainLimits are the limits of values in this program, before encryption.
func (c *core) plainLimits() logbook.Limits {
	limits := c.options.ValueKeys.PlainLimits(logbook.MaxLimits)
	limits.Command = logbook.MaxLimits.Command // the size of the sent values is checked later
	return limits
}

// PlainLimits are the limits for values that a program gives to the client, derived from the
// limits of the cluster: encrypted values are longer.
func (c *Client) PlainLimits(cluster logbook.Limits) logbook.Limits {
	return c.options.ValueKeys.PlainLimits(cluster)
}

// prepare checks a command and encrypts its values.
func (c *core) prepare(message *v1.Command) error {
	if err := command.Check(c.plainLimits(), message); err != nil || c.options.ValueKeys == nil {
		return err
	}
	c.encrypt(message)
	return checkSize("command", command.Size(message))
}
