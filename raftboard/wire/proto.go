package wire

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
)

// ProtoCodec is protobuf's binary form of the API's messages, read by generated
// code. What a caller sends is written by package proto, which refuses text that
// is not UTF-8.
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
	m, ok := message.(proto.Message)
	if !ok {
		return fmt.Errorf("cannot decode: %T is not a message", message)
	}
	if _, err := v1.Decode(string(data), m); err != nil {
		return fmt.Errorf("cannot decode a %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	return nil
}

// answerCodec is ProtoCodec for those who answer: what they send was decoded
// before or is made by themselves, and its text is UTF-8.
type answerCodec struct{ ProtoCodec }

func (c answerCodec) Marshal(message any) ([]byte, error) { return c.MarshalAppend(nil, message) }

func (answerCodec) MarshalAppend(to []byte, message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("cannot encode: %T is not a message", message)
	}
	return command.AppendMessage(to, m, command.SizeOf(m))
}

// EncodeAnswer writes a message as those do who answer.
func EncodeAnswer(message proto.Message) ([]byte, error) { return answerCodec{}.Marshal(message) }
