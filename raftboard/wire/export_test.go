package wire

import "google.golang.org/protobuf/proto"

// AnswerCodec is the codec with which servers write answers.
var AnswerCodec answerCodec

// ValueFault is the fault that an error names, if protojson refuses the data.
func ValueFault(data []byte, message proto.Message) error {
	return valueFault(data, message.ProtoReflect().Descriptor())
}
