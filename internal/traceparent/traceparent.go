// Package traceparent reads and writes the W3C trace context of a span: the header
// traceparent of HTTP, version 00. A tracestate is neither read nor written.
package traceparent

import (
	"context"
	"encoding/hex"
	"fmt"

	"go.opentelemetry.io/otel/trace"

	"github.com/conductord/conductord/logbook"
)

// Names of a traceparent.
const (
	Header   = "Traceparent" // in HTTP
	Variable = "TRACEPARENT" // in the environment
)

// size is the length of 00-TRACE-SPAN-FLAGS, version 00.
const size = 2 + 1 + 32 + 1 + 16 + 1 + 2

// Parse reads a traceparent. It accepts version 00 in small letters only. The error is a
// logbook.ErrInvalid, or a logbook.ErrLimit for a text that is too long, and names the field.
func Parse(field, text string) (trace.SpanContext, error) {
	if len(text) > size {
		return trace.SpanContext{}, &logbook.LimitError{Field: field, Limit: size, Size: int64(len(text)), Unit: "bytes"}
	}
	var config trace.SpanContextConfig
	ok := len(text) == size && text[:3] == "00-" && text[35] == '-' && text[52] == '-'
	if ok {
		var errTrace, errSpan error
		config.TraceID, errTrace = trace.TraceIDFromHex(text[3:35])
		config.SpanID, errSpan = trace.SpanIDFromHex(text[36:52])
		flags, errFlags := hex.DecodeString(text[53:])
		ok = errTrace == nil && errSpan == nil && errFlags == nil && hex.EncodeToString(flags) == text[53:]
		if ok {
			config.TraceFlags, config.Remote = trace.TraceFlags(flags[0]), true
		}
	}
	if !ok {
		return trace.SpanContext{}, &logbook.InvalidError{Field: field, Reason: fmt.Sprintf(
			"%q is not 00-TRACE-SPAN-FLAGS of W3C trace context, with 32, 16 and 2 hexadecimal digits in small letters, the first two not all zero", text)}
	}
	return trace.NewSpanContext(config), nil
}

// Of is the traceparent of the span in a context; empty: none.
func Of(ctx context.Context) string {
	span := trace.SpanContextFromContext(ctx)
	if !span.IsValid() {
		return ""
	}
	return "00-" + span.TraceID().String() + "-" + span.SpanID().String() + "-" + span.TraceFlags().String()
}
