package command

import (
	"slices"

	"google.golang.org/protobuf/proto"
)

// generated is a message that has plain code for its encoding: those that are
// logged, stored or carried by streams (api/generate lists them). That code does not ask whether text is
// UTF-8; so what comes from outside is encoded by package proto, which does,
// before it gets into the log, and by this code when it is known to be.
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

// AppendMessage encodes a message behind what is there, in protobuf's
// deterministic form: a message has the same bytes on every node. Its text must
// be UTF-8, as that of every message which was decoded is. Room is what the
// encoding takes: SizeOf.
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

// DecodeMessage reads what AppendMessage or protobuf has encoded into a message,
// which must be empty. Bytes and texts of it are copies.
//
// Generated code does that in a third of protobuf's time. It lets text pass that
// is not UTF-8: so what comes from outside is decoded by protobuf itself, and
// this is for what a node has encoded.
func DecodeMessage(data []byte, into proto.Message) error {
	if own, ok := into.(generated); ok {
		return own.UnmarshalVT(data)
	}
	return proto.Unmarshal(data, into)
}
