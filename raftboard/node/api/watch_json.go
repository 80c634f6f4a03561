package api

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"connectrpc.com/connect"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/raftboard/wire"
)

// lines serves watches to clients without connect's protocol: it answers a request of the content
// type application/json with one JSON object per line. connect's own protocol frames each message
// in bytes that curl cannot write. Other requests go to next.
func (s *watchService) lines(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !IsPlain(r) {
			next.ServeHTTP(w, r)
			return
		}
		lines := &lineStream{writer: w, codec: wire.JSONCodec{}, refuse: func(err error) { s.guard.WriteRefusal(w, r, err) }}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, wire.MaxMessage))
		request := connect.NewRequest(&conductordv1.WatchRequest{})
		if err == nil {
			err = lines.codec.Unmarshal(body, request.Msg)
		}
		if err != nil {
			lines.fail(connect.NewError(connect.CodeInvalidArgument, err))
			return
		}
		for name, values := range r.Header {
			request.Header()[name] = values
		}
		if err := s.watch(r.Context(), request.Msg, request.Header(), lines.send); err != nil && r.Context().Err() == nil {
			lines.fail(wire.ErrorToConnect(err))
		}
	})
}

// IsPlain reports whether a program without connect's protocol makes a streaming call.
func IsPlain(r *http.Request) bool {
	media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	return r.Method == http.MethodPost && strings.TrimSpace(media) == "application/json"
}

// lineStream writes messages as lines.
type lineStream struct {
	writer http.ResponseWriter
	codec  wire.JSONCodec
	refuse func(error) // answers a watch that has not started, like any call
	begun  bool
}

func (l *lineStream) send(message *conductordv1.WatchResponse) error {
	line, err := l.codec.Marshal(message)
	if err != nil {
		return err
	}
	if !l.begun {
		l.writer.Header().Set("Content-Type", "application/x-ndjson")
		l.begun = true
	}
	if _, err := l.writer.Write(append(line, '\n')); err != nil {
		return err
	}
	return http.NewResponseController(l.writer).Flush()
}

// errorLine is an error in JSON, in the form of connect's own answers.
type errorLine struct {
	Code    string        `json:"code"`
	Message string        `json:"message"`
	Details []errorDetail `json:"details,omitempty"`
}

type errorDetail struct {
	Type  string          `json:"type"`
	Value []byte          `json:"value"` // encoded
	Debug json.RawMessage `json:"debug,omitempty"`
}

// fail writes why the watch ends: as the answer if nothing was sent yet, and as the
// last line otherwise.
func (l *lineStream) fail(err *connect.Error) {
	if !l.begun {
		l.refuse(err)
		return
	}
	line := errorLine{Code: err.Code().String(), Message: err.Message()}
	for _, detail := range err.Details() {
		shown := errorDetail{Type: detail.Type(), Value: detail.Bytes()}
		if value, valueErr := detail.Value(); valueErr == nil {
			shown.Debug, _ = l.codec.Marshal(value) // without it, value has the same data
		}
		line.Details = append(line.Details, shown)
	}
	if said, encodeErr := json.Marshal(map[string]errorLine{"error": line}); encodeErr == nil {
		_, _ = l.writer.Write(append(said, '\n')) // the client may have left
	}
}
