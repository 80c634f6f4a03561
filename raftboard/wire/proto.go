package wire

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/conductord/conductord/fsm/command"
)

// ProtoCodec is protobuf's binary form of the API's messages, for those who call.
// What they send is written by package proto, which refuses text that is not
// UTF-8, and the answers are read by generated code.
type ProtoCodec struct{}

// Name is the codec's name in content types: application/proto.
func (ProtoCodec) Name() string { return "proto" }

// Marshal writes a message.
func (c ProtoCodec) Marshal(message any) ([]byte, error) { return c.MarshalAppend(nil, message) }

// MarshalAppend writes a message behind what is there.
func (ProtoCodec) MarshalAppend(to []byte, message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("cannot encode: %T is not a message", message)
	}
	return proto.MarshalOptions{}.MarshalAppend(to, m)
}

// MarshalStable writes a message, the same for the same message.
func (ProtoCodec) MarshalStable(message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("cannot encode: %T is not a message", message)
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}

// IsBinary tells connect that the form is no text.
func (ProtoCodec) IsBinary() bool { return true }

// Unmarshal reads a message. The data may change afterwards.
func (ProtoCodec) Unmarshal(data []byte, message any) error {
	return decode(data, message, command.DecodeMessage)
}

func decode(data []byte, message any, by func([]byte, proto.Message) error) error {
	m, ok := message.(proto.Message)
	if !ok {
		return fmt.Errorf("cannot decode: %T is not a message", message)
	}
	if err := by(data, m); err != nil {
		return fmt.Errorf("cannot decode a %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	return nil
}

// answerCodec is ProtoCodec for those who answer: what they read comes from
// outside, and package proto refuses text in it that is not UTF-8; what they send
// was decoded so, or is made by themselves.
type answerCodec struct{ ProtoCodec }

func (answerCodec) Unmarshal(data []byte, message any) error {
	return decode(data, message, proto.Unmarshal)
}

func (c answerCodec) Marshal(message any) ([]byte, error) { return c.MarshalAppend(nil, message) }

func (answerCodec) MarshalAppend(to []byte, message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("cannot encode: %T is not a message", message)
	}
	return command.AppendMessage(to, m, command.SizeOf(m))
}

// DecodeCall reads a message as those do who answer.
func DecodeCall(data []byte, message proto.Message) error {
	return answerCodec{}.Unmarshal(data, message)
}

// EncodeAnswer writes a message as those do who answer.
func EncodeAnswer(message proto.Message) ([]byte, error) { return answerCodec{}.Marshal(message) }
