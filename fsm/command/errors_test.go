package command_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// codeTable is the table that clients rely on: a changed row breaks them.
var codeTable = []struct {
	name     string // of the sentinel in the source
	sentinel error
	code     string
}{
	{"ErrNotFound", jobs.ErrNotFound, "not_found"},
	{"ErrConflict", jobs.ErrConflict, "conflict"},
	{"ErrUnclaimable", jobs.ErrUnclaimable, "unclaimable"},
	{"ErrJobOver", jobs.ErrJobOver, "job_over"},
	{"ErrDecided", jobs.ErrDecided, "decided"},
	{"ErrSignalsFull", jobs.ErrSignalsFull, "signals_full"},
	{"ErrNobodyWaits", jobs.ErrNobodyWaits, "nobody_waits"},
	{"ErrPublicationsFull", jobs.ErrPublicationsFull, "publications_full"},
	{"ErrSignalled", logbook.ErrSignalled, "signalled"},
	{"ErrFenced", jobs.ErrFenced, "fenced"},
	{"ErrInvalid", jobs.ErrInvalid, "invalid"},
	{"ErrLimit", jobs.ErrLimit, "over_limit"},
	{"ErrNotAllowed", jobs.ErrNotAllowed, "not_allowed"},
	{"ErrUnavailable", jobs.ErrUnavailable, "unavailable"},
	{"ErrUncertain", jobs.ErrUncertain, "uncertain"},
	{"ErrSessionExpired", jobs.ErrSessionExpired, "session_expired"},
	{"ErrCompacted", jobs.ErrCompacted, "compacted"},
	{"ErrOverloaded", jobs.ErrOverloaded, "overloaded"},
	{"ErrWrongCluster", jobs.ErrWrongCluster, "wrong_cluster"},
}

func TestErrorsCrossTheWire(t *testing.T) {
	for _, row := range codeTable {
		for _, sent := range []error{row.sentinel, fmt.Errorf("cannot claim job 7: %w", row.sentinel)} {
			message := command.ErrorToProto(sent)
			if message.Code != row.code {
				t.Errorf("%v has code %q, want %q", sent, message.Code, row.code)
			}
			got := command.ErrorFromProto(message)
			if got.Error() != sent.Error() {
				t.Errorf("%q came back as %q", sent, got)
			}
			for _, other := range codeTable {
				if errors.Is(got, other.sentinel) != errors.Is(sent, other.sentinel) {
					t.Errorf("%q came back with errors.Is(%s) = %t", sent, other.name, errors.Is(got, other.sentinel))
				}
			}
			if again := command.ErrorToProto(got); again.Code != row.code || again.Message != message.Message {
				t.Errorf("a forwarded %q became %v", sent, again)
			}
		}
	}
}

func TestEverySentinelHasACode(t *testing.T) {
	listed := map[string]bool{}
	for _, row := range codeTable {
		listed[row.name] = true
	}
	for _, name := range []string{"ErrReverted", "ErrFailed", "ErrCancelled", "ErrTrashed", "ErrNeedsOperator"} {
		listed[name] = true // created by the client from a job: not sent by nodes
	}
	for _, path := range []string{"../../jobs/errors.go", "../../logbook/errors.go"} {
		for _, name := range sentinels(t, path) {
			if !listed[name] {
				t.Errorf("%s of %s has no code", name, path)
			}
		}
	}
}

// sentinels are the exported variables of a file whose names begin with Err.
func sentinels(t *testing.T, path string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, declaration := range file.Decls {
		general, ok := declaration.(*ast.GenDecl)
		if !ok || general.Tok != token.VAR {
			continue
		}
		for _, spec := range general.Specs {
			for _, name := range spec.(*ast.ValueSpec).Names {
				if strings.HasPrefix(name.Name, "Err") {
					names = append(names, name.Name)
				}
			}
		}
	}
	if len(names) == 0 {
		t.Fatalf("no sentinels found in %s", path)
	}
	return names
}

func TestErrorFieldsCrossTheWire(t *testing.T) {
	invalid := &logbook.InvalidError{Field: "posting name", Reason: "contains the control character U+0007"}
	limit := &logbook.LimitError{Field: "result of pay", Limit: 10, Size: 11, Unit: "bytes"}
	for _, sent := range []error{invalid, fmt.Errorf("posting 2 of 3: %w", invalid)} {
		got := command.ErrorFromProto(command.ErrorToProto(sent))
		var back *logbook.InvalidError
		if !errors.As(got, &back) || *back != *invalid || got.Error() != sent.Error() || !errors.Is(got, jobs.ErrInvalid) {
			t.Errorf("%q came back as %q with %+v", sent, got, back)
		}
	}
	for _, sent := range []error{limit, fmt.Errorf("cannot update flow 1: %w", limit)} {
		got := command.ErrorFromProto(command.ErrorToProto(sent))
		var back *logbook.LimitError
		if !errors.As(got, &back) || *back != *limit || got.Error() != sent.Error() || !errors.Is(got, jobs.ErrLimit) {
			t.Errorf("%q came back as %q with %+v", sent, got, back)
		}
	}
	compacted := &jobs.CompactedError{After: jobs.Position{Index: 7}, Since: jobs.Position{Index: 9, Item: 2}}
	for _, sent := range []error{compacted, fmt.Errorf("cannot watch: %w", compacted)} {
		got := command.ErrorFromProto(command.ErrorToProto(sent))
		var back *jobs.CompactedError
		if !errors.As(got, &back) || back.Since != compacted.Since || got.Error() != sent.Error() || !errors.Is(got, jobs.ErrCompacted) {
			t.Errorf("%q came back as %q with %+v", sent, got, back)
		}
	}
}

func TestErrorsOfNoKind(t *testing.T) {
	if command.ErrorToProto(nil) != nil || command.ErrorFromProto(nil) != nil {
		t.Error("no error must stay none")
	}
	for _, row := range []struct {
		message *v1.Error
		text    string
	}{
		{command.ErrorToProto(errors.New("disk on fire")), "disk on fire"},
		{command.ErrorToProto(context.DeadlineExceeded), "context deadline exceeded"},
		{&v1.Error{Code: "of_a_newer_program", Message: "busy"}, "busy"},
		{&v1.Error{}, "internal error of the server, which says no more"},
	} {
		got := command.ErrorFromProto(row.message)
		if got == nil || got.Error() != row.text {
			t.Errorf("%v became %v", row.message, got)
		}
		for _, known := range codeTable {
			if errors.Is(got, known.sentinel) {
				t.Errorf("%v became a %s", row.message, known.name)
			}
		}
		if again := command.ErrorToProto(got); again.Code != command.CodeInternal {
			t.Errorf("%v was forwarded as %q", row.message, again.Code)
		}
	}
	if got := command.ErrorFromProto(&v1.Error{Code: "fenced"}); got.Error() != jobs.ErrFenced.Error() {
		t.Errorf("an error without a text became %q", got)
	}
}

func TestTheMoreCautiousCodeWins(t *testing.T) {
	for _, row := range []struct {
		err  error
		code string
	}{
		{errors.Join(jobs.ErrNotFound, jobs.ErrUncertain), command.CodeUncertain},
		{errors.Join(jobs.ErrUnavailable, jobs.ErrUncertain), command.CodeUncertain},
		{errors.Join(jobs.ErrConflict, jobs.ErrUnclaimable), command.CodeUnclaimable},
	} {
		if got := command.ErrorToProto(row.err).Code; got != row.code {
			t.Errorf("%q has code %q, want %q", row.err, got, row.code)
		}
	}
}
