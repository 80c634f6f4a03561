package conductordv1

import (
	"math"
	"unicode/utf8"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// maxDecodeDepth is how deep messages may lie in each other for the generated
// decoders. What lies deeper is left to protobuf, which refuses more than
// 10,000 levels.
const maxDecodeDepth = 100

// Decode reads what is encoded in the text into a message, which must be empty.
// The verdict and the message are those of proto.Unmarshal, which takes two to
// four times as long; see FuzzDecode. The message's texts are parts of the given
// one and keep all of it in memory; its bytes are copies. So who has bytes that
// change later hands in a copy.
//
// Unknown tells that there may be fields which this program does not know; they
// are kept in the message.
func Decode(text string, into proto.Message) (unknown bool, err error) {
	own, generated := into.(interface {
		decode(text string, depth int, unknown *bool) bool
	})
	if generated && own.decode(text, maxDecodeDepth, &unknown) {
		return unknown, nil
	}
	// The generated code reads the usual form. Anything else, good or bad, is
	// for protobuf to judge.
	proto.Reset(into)
	return true, proto.Unmarshal([]byte(text), into)
}

// The readers below give the index behind what they have read; -1 says that
// there is no such thing. They take such an index too, and answer with -1
// again: so a decoder need not look at each, and ends where it finds no tag.

// numberAt reads a number of variable length. The number is 0, which is no
// tag of a field either, where there is none.
func numberAt(text string, at int) (n uint64, end int) {
	if at >= 0 && at < len(text) && text[at] < 0x80 {
		return uint64(text[at]), at + 1
	}
	return longNumberAt(text, at)
}

func longNumberAt(text string, at int) (n uint64, end int) {
	if at < 0 || at > len(text) {
		return 0, -1
	}
	n, size := protowire.ConsumeVarint(bytesOf(text)[at:])
	if size < 0 {
		return 0, -1
	}
	return n, at + size
}

// partAt reads what stands behind its length.
func partAt(text string, at int) (part string, end int) {
	size, start := numberAt(text, at)
	if start < 0 || size > uint64(len(text)-start) {
		return "", -1
	}
	end = start + int(size)
	return text[start:end], end
}

// textAt is partAt for what must be UTF-8.
func textAt(text string, at int) (part string, end int) {
	part, end = partAt(text, at)
	if !utf8.ValidString(part) {
		return "", -1
	}
	return part, end
}

// zigzag is the number with a sign that is encoded as one without.
func zigzag(n uint64) int32 { return int32(protowire.DecodeZigZag(n & math.MaxUint32)) }

// appendUnknown keeps a field of which only the tag is known, and gives the
// index behind it. What is no field at all has none.
func appendUnknown(to []byte, text string, tag uint64, value int) ([]byte, int) {
	number, kind := tag>>3, protowire.Type(tag&7)
	if value < 0 || number < uint64(protowire.MinValidNumber) || number > uint64(protowire.MaxValidNumber) {
		return to, -1
	}
	size := protowire.ConsumeFieldValue(protowire.Number(number), kind, bytesOf(text)[value:])
	if size < 0 {
		return to, -1
	}
	to = protowire.AppendTag(to, protowire.Number(number), kind)
	return append(to, text[value:value+size]...), value + size
}

// timeFrom reads a google.protobuf.Timestamp or Duration.
func timeFrom(text string, seconds *int64, nanos *int32) bool {
	for at := 0; at < len(text); {
		tag, value := numberAt(text, at)
		n, end := numberAt(text, value)
		if end < 0 {
			return false
		}
		switch tag {
		case 1 << 3:
			*seconds = int64(n)
		case 2 << 3:
			*nanos = int32(n)
		default:
			return false
		}
		at = end
	}
	return true
}

// unknownIn is UnknownField of a message that is not ours.
func unknownIn(message proto.Message) (name string, found bool) {
	m := message.ProtoReflect()
	if !m.IsValid() || len(m.GetUnknown()) == 0 {
		return "", false
	}
	return string(m.Descriptor().FullName()), true
}

// bytesOf gives the bytes of a text, to be read only.
func bytesOf(text string) []byte { return unsafe.Slice(unsafe.StringData(text), len(text)) }
