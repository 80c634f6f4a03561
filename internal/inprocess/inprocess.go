// Package inprocess carries HTTP requests to a handler of the same process, without a network.
// Requests and answers can stream at the same time, as over HTTP/2.
package inprocess

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"runtime/debug"
	"sync"
)

// Transport is an http.RoundTripper that calls a handler.
type Transport struct {
	Handler http.Handler
	// Prepare completes the handler's own copy of a request: its address, its protocol, its headers.
	// The answer has the protocol of the request.
	Prepare func(*http.Request)
	// Panicked gets the panic of a handler. The caller gets the status 500, or an answer that breaks
	// off. nil: the panic continues.
	Panicked func(r *http.Request, fault any, stack []byte)
}

// RoundTrip implements http.RoundTripper. The handler runs in a goroutine that ends when the handler
// returns. The context of the request ends when the context of the call ends, the handler returns,
// or the body of the answer is closed.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	call := r.Clone(ctx)
	call.RequestURI = r.URL.RequestURI()
	if call.Body == nil {
		call.Body = http.NoBody
	}
	t.Prepare(call)
	reader, writer := io.Pipe()
	answer := &answerWriter{header: make(http.Header), began: make(chan struct{}), body: writer}
	go func() {
		defer cancel()
		t.serve(answer, call)
	}()
	stop := context.AfterFunc(r.Context(), func() { _ = reader.CloseWithError(r.Context().Err()) })
	select {
	case <-answer.began:
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	return &http.Response{
		Status: http.StatusText(answer.status), StatusCode: answer.status, Header: answer.sent, Request: r, ContentLength: -1,
		Proto: call.Proto, ProtoMajor: call.ProtoMajor, ProtoMinor: call.ProtoMinor, Body: &answerBody{reader, stop, cancel},
	}, nil
}

// serve runs the handler, and ends both bodies.
func (t *Transport) serve(answer *answerWriter, call *http.Request) {
	end := io.EOF
	defer func() {
		_ = call.Body.Close()
		answer.WriteHeader(http.StatusOK)
		_ = answer.body.CloseWithError(end)
	}()
	if t.Panicked != nil {
		defer func() {
			if fault := recover(); fault != nil {
				t.Panicked(call, fault, debug.Stack())
				answer.WriteHeader(http.StatusInternalServerError)
				end = io.ErrUnexpectedEOF
			}
		}()
	}
	t.Handler.ServeHTTP(answer, call)
}

// answerBody is the body of an answer.
type answerBody struct {
	*io.PipeReader
	stop   func() bool
	cancel context.CancelFunc
}

// Close implements io.Closer. It ends the handler's context and writes.
func (b *answerBody) Close() error {
	b.stop()
	b.cancel()
	return b.PipeReader.Close()
}

// answerWriter is the http.ResponseWriter of a request in this process.
type answerWriter struct {
	header http.Header
	once   sync.Once
	began  chan struct{} // closed when status and sent are set
	status int
	sent   http.Header
	body   *io.PipeWriter
}

// Header implements http.ResponseWriter.
func (w *answerWriter) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *answerWriter) WriteHeader(status int) {
	w.once.Do(func() {
		w.status, w.sent = status, w.header.Clone()
		close(w.began)
	})
}

// Write implements http.ResponseWriter.
func (w *answerWriter) Write(data []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(bytes.Clone(data))
}

// Flush implements http.Flusher. Write has already passed the data on.
func (w *answerWriter) Flush() { w.WriteHeader(http.StatusOK) }
