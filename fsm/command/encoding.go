package command

import (
	"slices"

	"google.golang.org/protobuf/proto"
)

// generated is a message with generated code for its encoding: messages that are logged, stored or
// carried by streams (api/generate lists them). The generated code does not check that text is
// UTF-8. So package proto, which checks it, encodes messages from outside before they reach the
// log. This code encodes messages that were checked.
type generated interface {
	SizeVT() int
	MarshalToSizedBufferVT([]byte) (int, error)
	UnmarshalVT([]byte) error
}

// SizeOf is the length of an encoded message in bytes.
func SizeOf(message proto.Message) int {
	if own, ok := message.(generated); ok {
		return own.SizeVT()
	}
	return proto.Size(message)
}

// AppendMessage appends the encoding of a message in protobuf's deterministic form: a message has
// the same bytes on every node. Its text must be UTF-8, which is true for every decoded message.
// room is the size of the encoding: SizeOf.
func AppendMessage(to []byte, message proto.Message, room int) ([]byte, error) {
	own, ok := message.(generated)
	if !ok {
		return proto.MarshalOptions{Deterministic: true}.MarshalAppend(to, message)
	}
	to = slices.Grow(to, room)
	whole := to[:len(to)+room]
	_, err := own.MarshalToSizedBufferVT(whole[len(to):])
	return whole, err
}

// DecodeMessage decodes the result of AppendMessage or protobuf into an empty message. The
// message's bytes and texts are copies.
//
// Generated code decodes in a third of protobuf's time, but accepts text that is not UTF-8. So
// protobuf itself decodes messages from outside, and DecodeMessage decodes only what a node has
// encoded.
func DecodeMessage(data []byte, into proto.Message) error {
	if own, ok := into.(generated); ok {
		return own.UnmarshalVT(data)
	}
	return proto.Unmarshal(data, into)
}
