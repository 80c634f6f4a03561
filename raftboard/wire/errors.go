package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"

	"connectrpc.com/connect"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
)

// codes has the connect code of each error. The first matching row decides, so special errors come before
// general ones. ErrUncertain comes first, because it must never be read as "it did not happen".
var codes = []struct {
	kind error
	code connect.Code
}{
	{jobs.ErrUncertain, connect.CodeUnknown},
	{jobs.ErrUnavailable, connect.CodeUnavailable},
	{jobs.ErrNotFound, connect.CodeNotFound},
	{jobs.ErrUnclaimable, connect.CodeAborted},
	{jobs.ErrConflict, connect.CodeAborted},
	{jobs.ErrFenced, connect.CodeFailedPrecondition},
	{jobs.ErrSessionExpired, connect.CodeFailedPrecondition},
	{jobs.ErrInvalid, connect.CodeInvalidArgument},
	{jobs.ErrLimit, connect.CodeResourceExhausted},
	{access.ErrUnknown, connect.CodeUnauthenticated}, // wraps ErrNotAllowed
	{jobs.ErrNotAllowed, connect.CodePermissionDenied},
	{jobs.ErrCompacted, connect.CodeOutOfRange},
	{jobs.ErrWrongCluster, connect.CodeFailedPrecondition},
	{context.Canceled, connect.CodeCanceled},
	{context.DeadlineExceeded, connect.CodeDeadlineExceeded},
}

// retryAfter is the pause in seconds that an overloaded node requests.
const retryAfter = "1"

// ErrorToConnect encodes an error: a code for HTTP and gRPC, and a conductord.v1.Error as its detail.
// ErrOverloaded has the header Retry-After. An unknown error has the code internal. A context's error has
// no detail, because its code is enough. ErrorToConnect(nil) is nil.
func ErrorToConnect(err error) *connect.Error {
	if err == nil {
		return nil
	}
	code := connect.CodeInternal
	for _, row := range codes {
		if errors.Is(err, row.kind) {
			code = row.code
			break
		}
	}
	crossing := connect.NewError(code, err)
	if code == connect.CodeCanceled || code == connect.CodeDeadlineExceeded {
		return crossing
	}
	if errors.Is(err, jobs.ErrOverloaded) {
		crossing.Meta().Set("Retry-After", retryAfter)
	}
	if detail, detailErr := connect.NewErrorDetail(command.ErrorToProto(err)); detailErr == nil {
		crossing.AddDetail(detail)
	}
	return crossing
}

// ErrorFromConnect decodes an error. If the error has a detail, the detail decides. Otherwise the error
// comes from connect, a proxy or the network:
//
//   - A context's error stays as it is. If the other end reports it, it also wraps ErrUncertain, because
//     the call was sent.
//   - A connection that was never made is ErrUnavailable.
//   - An answer that can only be a refusal is ErrInvalid, ErrLimit or ErrNotAllowed. From a server
//     without the call, it is ErrUnavailable.
//   - Every other error is ErrUncertain.
func ErrorFromConnect(err error) error {
	if err == nil {
		return nil
	}
	var crossed *connect.Error
	if !errors.As(err, &crossed) {
		return fromNetwork(err)
	}
	for _, detail := range crossed.Details() {
		value, valueErr := detail.Value()
		if reason, ok := value.(*v1.Error); ok && valueErr == nil {
			return command.ErrorFromProto(reason)
		}
	}
	if !connect.IsWireError(err) {
		return fromNetwork(err)
	}
	return fromCode(crossed)
}

// fromNetwork classifies an error that this end has created.
func fromNetwork(err error) error {
	var operation *net.OpError
	switch {
	// This case comes before the context's errors, because a dial timeout also matches them.
	case errors.As(err, &operation) && operation.Op == "dial", errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w: %w", jobs.ErrUnavailable, withoutCode(err))
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case connect.CodeOf(err) == connect.CodeResourceExhausted:
		return fmt.Errorf("%w: %w", jobs.ErrLimit, err) // larger than MaxMessage
	}
	switch connect.CodeOf(err) {
	case connect.CodeUnimplemented: // an HTTP server of another program
		return fmt.Errorf("%w: %w", jobs.ErrUnavailable, err)
	case connect.CodePermissionDenied, connect.CodeUnauthenticated: // HTTP status 403 and 401
		return fmt.Errorf("%w: %w", jobs.ErrNotAllowed, err)
	}
	return fmt.Errorf("%w: %w", jobs.ErrUncertain, withoutCode(err))
}

// withoutCode removes connect's code, which can be "unavailable" although the call may have happened.
func withoutCode(err error) error {
	if crossed := new(connect.Error); errors.As(err, &crossed) && crossed.Message() != "" {
		return crossed.Unwrap()
	}
	return err
}

// classTexts are the parts of error texts about the effect of a call. A text that starts with such an error
// keeps only its reason.
var classTexts = strings.NewReplacer(
	jobs.ErrUnavailable.Error()+": ", "", jobs.ErrUncertain.Error()+": ", "",
	": it did not happen", "", ": it may have happened", "")

// WithoutClass returns the text of an error without "it did not happen" and "it may have happened". Use
// it to quote the error in an error of another class.
func WithoutClass(err error) string { return classTexts.Replace(err.Error()) }

// fromCode classifies an error without a detail from the other end, by its code.
func fromCode(crossed *connect.Error) error {
	switch crossed.Code() {
	case connect.CodeInvalidArgument:
		return fmt.Errorf("%w: %w", jobs.ErrInvalid, crossed)
	case connect.CodeResourceExhausted:
		return fmt.Errorf("%w: %w", jobs.ErrLimit, crossed)
	case connect.CodePermissionDenied, connect.CodeUnauthenticated:
		return fmt.Errorf("%w: %w", jobs.ErrNotAllowed, crossed)
	case connect.CodeUnimplemented:
		return fmt.Errorf("%w: %w", jobs.ErrUnavailable, crossed)
	case connect.CodeCanceled:
		return fmt.Errorf("%w: %w: %w", jobs.ErrUncertain, context.Canceled, crossed)
	case connect.CodeDeadlineExceeded:
		return fmt.Errorf("%w: %w: %w", jobs.ErrUncertain, context.DeadlineExceeded, crossed)
	}
	return fmt.Errorf("%w: %w", jobs.ErrUncertain, withoutCode(crossed))
}
