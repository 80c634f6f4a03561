package wire_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"

	"connectrpc.com/connect"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/wire"
)

// sentinels are all possible results of ErrorFromConnect.
var sentinels = []error{
	jobs.ErrUncertain, jobs.ErrUnavailable, jobs.ErrNotFound, jobs.ErrUnclaimable, jobs.ErrConflict, jobs.ErrFenced,
	jobs.ErrSessionExpired, jobs.ErrInvalid, jobs.ErrLimit, jobs.ErrNotAllowed, jobs.ErrCompacted, jobs.ErrOverloaded, jobs.ErrWrongCluster,
	context.Canceled, context.DeadlineExceeded,
}

// is returns the sentinels that an error wraps.
func is(err error) []error {
	var found []error
	for _, sentinel := range sentinels {
		if errors.Is(err, sentinel) {
			found = append(found, sentinel)
		}
	}
	return found
}

func TestErrorsCross(t *testing.T) {
	tests := []struct {
		err  error
		code connect.Code
	}{
		{jobs.ErrUncertain, connect.CodeUnknown},
		{jobs.ErrUnavailable, connect.CodeUnavailable},
		{jobs.ErrOverloaded, connect.CodeUnavailable},
		{jobs.ErrNotFound, connect.CodeNotFound},
		{jobs.ErrUnclaimable, connect.CodeAborted},
		{jobs.ErrConflict, connect.CodeAborted},
		{jobs.ErrFenced, connect.CodeFailedPrecondition},
		{jobs.ErrSessionExpired, connect.CodeFailedPrecondition},
		{jobs.ErrInvalid, connect.CodeInvalidArgument},
		{&logbook.InvalidError{Field: "name", Reason: "empty"}, connect.CodeInvalidArgument},
		{jobs.ErrLimit, connect.CodeResourceExhausted},
		{&logbook.LimitError{Field: "details", Limit: 10, Size: 11, Unit: "bytes"}, connect.CodeResourceExhausted},
		{jobs.ErrNotAllowed, connect.CodePermissionDenied},
		{jobs.ErrCompacted, connect.CodeOutOfRange},
		{jobs.ErrWrongCluster, connect.CodeFailedPrecondition},
		{errors.New("a fault of ours"), connect.CodeInternal},
	}
	for _, test := range tests {
		sent := fmt.Errorf("cannot do it: %w", test.err)
		crossing := wire.ErrorToConnect(sent)
		if crossing.Code() != test.code {
			t.Errorf("%v: code %s, want %s", test.err, crossing.Code(), test.code)
		}
		got := wire.ErrorFromConnect(crossing)
		if fmt.Sprint(is(got)) != fmt.Sprint(is(sent)) || got.Error() != sent.Error() {
			t.Errorf("sent %q %v, got %q %v", sent, is(sent), got, is(got))
		}
	}
	var limit *logbook.LimitError
	if got := wire.ErrorFromConnect(wire.ErrorToConnect(&logbook.LimitError{Field: "details", Limit: 10, Size: 11, Unit: "bytes"})); !errors.As(got, &limit) || limit.Size != 11 {
		t.Errorf("the size over the limit is lost: %#v", got)
	}
}

func TestUncertainIsNeverUnavailable(t *testing.T) {
	both := fmt.Errorf("%w: the leader said: %w", jobs.ErrUncertain, jobs.ErrUnavailable)
	if got := wire.ErrorFromConnect(wire.ErrorToConnect(both)); errors.Is(got, jobs.ErrUnavailable) || !errors.Is(got, jobs.ErrUncertain) {
		t.Errorf("got %v of kinds %v, want uncertain only", got, is(got))
	}
}

func TestWithoutClass(t *testing.T) {
	for _, row := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("%w: no leader", jobs.ErrUnavailable), "no leader"},
		{fmt.Errorf("cannot post: %w: EOF", jobs.ErrUncertain), "cannot post: EOF"},
		{fmt.Errorf("%w: %w: 9 calls", jobs.ErrUncertain, jobs.ErrOverloaded), "overloaded: 9 calls"},
		{jobs.ErrUnavailable, "unavailable"},
	} {
		if got := wire.WithoutClass(row.err); got != row.want {
			t.Errorf("%v: %q, want %q", row.err, got, row.want)
		}
	}
}

// crossed converts a server's error like the client's side of connect.
func crossed(sent *connect.Error) error {
	received := connect.NewWireError(sent.Code(), errors.New(sent.Message()))
	for _, detail := range sent.Details() {
		received.AddDetail(detail)
	}
	return received
}

func TestErrorsWithoutDetail(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	timedOut := &net.OpError{Op: "dial", Net: "tcp", Err: context.DeadlineExceeded}
	broken := &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	sent := func(code connect.Code) error { return connect.NewWireError(code, errors.New("bare")) }
	own := func(code connect.Code, err error) error { return connect.NewError(code, err) }
	tests := []struct {
		name string
		err  error
		want []error
	}{
		{"nothing", nil, nil},
		{"refused", own(connect.CodeUnavailable, refused), []error{jobs.ErrUnavailable}},
		{"refused, not wrapped", refused, []error{jobs.ErrUnavailable}},
		{"dial took too long", own(connect.CodeDeadlineExceeded, timedOut), []error{jobs.ErrUnavailable, context.DeadlineExceeded}},
		{"broken connection", own(connect.CodeUnavailable, broken), []error{jobs.ErrUncertain}},
		{"unknown error", errors.New("?"), []error{jobs.ErrUncertain}},
		{"context ended here", own(connect.CodeCanceled, context.Canceled), []error{context.Canceled}},
		{"time ended here", own(connect.CodeDeadlineExceeded, context.DeadlineExceeded), []error{context.DeadlineExceeded}},
		{"too large to send or read", own(connect.CodeResourceExhausted, errors.New("too large")), []error{jobs.ErrLimit}},
		{"not our server", own(connect.CodeUnimplemented, errors.New("404")), []error{jobs.ErrUnavailable}},
		{"HTTP 401", own(connect.CodeUnauthenticated, errors.New("401")), []error{jobs.ErrNotAllowed}},
		{"answer cannot be read", own(connect.CodeInvalidArgument, errors.New("unmarshal")), []error{jobs.ErrUncertain}},
		{"sent unavailable", sent(connect.CodeUnavailable), []error{jobs.ErrUncertain}},
		{"sent invalid", sent(connect.CodeInvalidArgument), []error{jobs.ErrInvalid}},
		{"sent too large", sent(connect.CodeResourceExhausted), []error{jobs.ErrLimit}},
		{"sent not allowed", sent(connect.CodePermissionDenied), []error{jobs.ErrNotAllowed}},
		{"sent not known who", sent(connect.CodeUnauthenticated), []error{jobs.ErrNotAllowed}},
		{"sent unimplemented", sent(connect.CodeUnimplemented), []error{jobs.ErrUnavailable}},
		{"sent canceled", sent(connect.CodeCanceled), []error{jobs.ErrUncertain, context.Canceled}},
		{"sent time over", sent(connect.CodeDeadlineExceeded), []error{jobs.ErrUncertain, context.DeadlineExceeded}},
		{"our server's own time", crossed(wire.ErrorToConnect(fmt.Errorf("cannot wait: %w", context.DeadlineExceeded))), []error{jobs.ErrUncertain, context.DeadlineExceeded}},
		{"our server's own end", crossed(wire.ErrorToConnect(context.Canceled)), []error{jobs.ErrUncertain, context.Canceled}},
		{"sent internal", sent(connect.CodeInternal), []error{jobs.ErrUncertain}},
		{"sent data loss", sent(connect.CodeDataLoss), []error{jobs.ErrUncertain}},
	}
	for _, test := range tests {
		err := wire.ErrorFromConnect(test.err)
		if got := is(err); fmt.Sprint(got) != fmt.Sprint(test.want) {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
		if errors.Is(err, jobs.ErrUncertain) && strings.Contains(err.Error(), "unavailable") {
			t.Errorf("%s: it names two classes: %v", test.name, err)
		}
	}
}
