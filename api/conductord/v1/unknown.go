package conductordv1

import "google.golang.org/protobuf/proto"

// unknownIn is UnknownField for a message of another package.
func unknownIn(message proto.Message) (name string, found bool) {
	m := message.ProtoReflect()
	if !m.IsValid() || len(m.GetUnknown()) == 0 {
		return "", false
	}
	return string(m.Descriptor().FullName()), true
}
