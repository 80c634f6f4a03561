package stream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/raftboard/wire"
)

// prefix is the start of a procedure in a URL, but not on a stream.
const prefix = "/conductord.v1."

// Offer is a call that a node accepts on streams.
type Offer struct {
	procedure string // with prefix
	answer    func(context.Context, *v1.StreamedCall) (proto.Message, http.Header, error)
}

// Offered makes an offer from the handler of a plain call.
func Offered[Req, Res any](procedure string, handle func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error)) Offer {
	_, requests := any(new(Req)).(proto.Message)
	_, responds := any(new(Res)).(proto.Message)
	if !strings.HasPrefix(procedure, prefix) || !requests || !responds {
		panic(fmt.Sprintf("internal error: %s cannot be offered on streams", procedure))
	}
	return Offer{procedure, func(ctx context.Context, call *v1.StreamedCall) (proto.Message, http.Header, error) {
		message := new(Req)
		if err := wire.DecodeCall(call.GetMessage(), any(message).(proto.Message)); err != nil {
			return nil, nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("unmarshal message: %w", err)) // same as connect
		}
		request := connect.NewRequest(message)
		if index := call.GetMinIndex(); index > 0 {
			request.Header().Set(wire.HeaderMinIndex, strconv.FormatUint(index, 10))
		}
		response, err := handle(ctx, request)
		if err != nil {
			return nil, nil, err
		}
		return any(response.Msg).(proto.Message), response.Header(), nil
	}}
}

// answerOf converts the result of a call's handler into an answer.
func answerOf(number uint64, message proto.Message, header http.Header, err error) *v1.StreamedAnswer {
	var encoded []byte
	if err == nil {
		if encoded, err = wire.EncodeAnswer(message); err != nil {
			err = connect.NewError(connect.CodeInternal, fmt.Errorf("marshal message: %w", err))
		} else if limit := wire.MaxMessage - frameBytes; len(encoded) > limit {
			err = connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("message size %d is larger than configured max %d", len(encoded), limit))
		}
	}
	if err != nil {
		return refusal(number, err)
	}
	answer := &v1.StreamedAnswer{Number: number, Message: encoded}
	// An unreadable index counts as none, like for the reader of a header.
	answer.Index, _ = strconv.ParseUint(header.Get(wire.HeaderIndex), 10, 64)
	answer.Age = header.Get(wire.HeaderAge)
	return answer
}

// refusal converts an error into an answer.
func refusal(number uint64, err error) *v1.StreamedAnswer {
	var crossing *connect.Error
	if !errors.As(err, &crossing) {
		crossing = wire.ErrorToConnect(err)
	}
	answer := &v1.StreamedAnswer{Number: number, Code: uint32(crossing.Code()), Text: strings.ToValidUTF8(crossing.Message(), "\uFFFD")}
	for _, detail := range crossing.Details() {
		value, valueErr := detail.Value()
		if reason, ok := value.(*v1.Error); ok && valueErr == nil {
			answer.Error = reason
		}
	}
	return answer
}

// failure is the inverse of refusal: the error of a plain call.
func (r reply) failure(code connect.Code) error {
	crossed := connect.NewWireError(code, errors.New(r.answer.GetText()))
	if reason := r.answer.GetError(); reason != nil {
		if detail, err := connect.NewErrorDetail(reason); err == nil {
			crossed.AddDetail(detail)
		}
	}
	if r.leader != "" {
		crossed.Meta().Set(wire.HeaderLeader, r.leader)
	}
	return crossed
}
