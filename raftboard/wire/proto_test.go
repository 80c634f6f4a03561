package wire_test

import (
	"bytes"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/raftboard/wire"
)

var _ connect.Codec = wire.ProtoCodec{}

func TestProtoCodec(t *testing.T) {
	sent := &v1.PostRequest{Postings: []*v1.Posting{{Id: "a", Name: "Zürich", Details: &v1.Value{Json: []byte(`{"n":1}`)}}}}
	for name, marshal := range map[string]func(any) ([]byte, error){
		"Marshal":       wire.ProtoCodec{}.Marshal,
		"MarshalStable": wire.ProtoCodec{}.MarshalStable,
		"MarshalAppend": func(m any) ([]byte, error) { return wire.ProtoCodec{}.MarshalAppend(nil, m) },
		"an answer":     func(m any) ([]byte, error) { return wire.AnswerCodec.MarshalAppend(nil, m) },
	} {
		data, err := marshal(sent)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := &v1.PostRequest{}
		asked := &v1.PostRequest{}
		if err := wire.DecodeCall(data, asked); err != nil || !proto.Equal(asked, sent) {
			t.Errorf("%s: %v became %v, %v, for who answers", name, sent, asked, err)
		}
		if err := (wire.ProtoCodec{}).Unmarshal(data, got); err != nil || !proto.Equal(got, sent) {
			t.Errorf("%s: %v became %v, %v, for who asks", name, sent, got, err)
		}
		// Connect reuses the memory of a request.
		copy(data, bytes.Repeat([]byte("?"), len(data)))
		if !proto.Equal(got, sent) {
			t.Errorf("%s: the message has changed with the bytes that it was read from: %v", name, got)
		}
	}
}

func TestProtoCodecRefuses(t *testing.T) {
	bad := &v1.PostRequest{Postings: []*v1.Posting{{Name: "\xff"}}}
	if data, err := (wire.ProtoCodec{}).Marshal(bad); err == nil {
		t.Errorf("text that is not UTF-8 was sent as %x", data)
	}
	data, err := wire.AnswerCodec.MarshalAppend(nil, bad)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range [][]byte{data, {0x0a, 0x05, 'x'}, {0x00, 0x01}} {
		if err := wire.DecodeCall(row, &v1.PostRequest{}); err == nil {
			t.Errorf("%x was read", row)
		}
	}
	if _, err := (wire.ProtoCodec{}).Marshal(7); err == nil {
		t.Error("a number was sent")
	}
	for _, codec := range []connect.Codec{wire.ProtoCodec{}, wire.AnswerCodec} {
		if err := codec.Unmarshal(nil, 7); err == nil {
			t.Error("a number was read")
		}
	}
	// Nodes check messages on arrival, so this test is about requests.
	if err := (wire.ProtoCodec{}).Unmarshal([]byte{0x0a, 0x05, 'x'}, &v1.PostRequest{}); err == nil {
		t.Error("half a message was read")
	}
}
