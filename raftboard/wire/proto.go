package wire

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/conductord/conductord/fsm/command"
)

// ProtoCodec is the binary protobuf form of the API's messages, for clients. Package proto encodes
// requests, because it refuses text that is not UTF-8. Generated code decodes answers.
type ProtoCodec struct{}

// Name is the codec's name in content types: application/proto.
func (ProtoCodec) Name() string { return "proto" }

// Marshal writes a message.
func (c ProtoCodec) Marshal(message any) ([]byte, error) { return c.MarshalAppend(nil, message) }

// MarshalAppend appends a message.
func (ProtoCodec) MarshalAppend(to []byte, message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("cannot encode: %T is not a message", message)
	}
	return proto.MarshalOptions{}.MarshalAppend(to, m)
}

// MarshalStable writes a message. Equal messages have equal encodings.
func (ProtoCodec) MarshalStable(message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("cannot encode: %T is not a message", message)
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}

// IsBinary returns true: the form is not text.
func (ProtoCodec) IsBinary() bool { return true }

// Unmarshal reads a message. The message keeps no reference to data.
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

// answerCodec is ProtoCodec for nodes. Package proto decodes requests, because it refuses text that is not
// UTF-8. Generated code encodes answers: all their text comes from checked requests or from the node.
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

// DecodeCall decodes a request, as a node does.
func DecodeCall(data []byte, message proto.Message) error {
	return answerCodec{}.Unmarshal(data, message)
}

// EncodeAnswer encodes an answer, as a node does.
func EncodeAnswer(message proto.Message) ([]byte, error) { return answerCodec{}.Marshal(message) }
