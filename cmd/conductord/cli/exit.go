package cli

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"syscall"

	"connectrpc.com/connect"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard"
)

// The exit codes.
const (
	ExitOK          = 0
	ExitFailed      = 1   // the job did not succeed, or the command itself failed on this machine
	ExitUsage       = 2   // the command line, a file or a value is wrong
	ExitNotFound    = 3   // the named object does not exist
	ExitConflict    = 4   // another owner has the object, or its state does not allow the call
	ExitTimeout     = 5   // timeout, or an ambiguous result; repeating is harmless
	ExitUnavailable = 6   // no leader was available: no effect
	ExitNotAllowed  = 7   // the caller may not do this
	ExitLimit       = 8   // too large, or over a limit
	ExitInterrupted = 130 // interrupted from the keyboard, as in shells
)

// errUsage marks an error in the command line.
var errUsage = errors.New("usage")

// ErrRunFailed: the command itself worked, but its job did not succeed. The output already has the
// reason.
var ErrRunFailed = errors.New("the run did not succeed")

type usageError struct{ error }

// UsageError marks an error as a usage error.
func UsageError(err error) error { return usageError{err} }

func (usageError) Is(target error) bool { return target == errUsage }

func (e usageError) Unwrap() error { return e.error }

// exitCodes is searched from the top; the first error kind that matches decides. "May have
// happened" comes before an interruption, and "certainly did not happen" comes before a
// timeout: a script must know these first. ErrUnclaimable is an ErrConflict.
func exitCodes() []exitRule {
	return []exitRule{
		{ErrRunFailed, ExitFailed},
		{errUsage, ExitUsage},
		{jobs.ErrInvalid, ExitUsage},
		{jobs.ErrLimit, ExitLimit},
		{jobs.ErrNotFound, ExitNotFound},
		{jobs.ErrFenced, ExitConflict},
		{jobs.ErrConflict, ExitConflict},
		{jobs.ErrSessionExpired, ExitConflict},
		{jobs.ErrCompacted, ExitConflict},
		{jobs.ErrWrongCluster, ExitConflict},
		{jobs.ErrNotAllowed, ExitNotAllowed},
		{jobs.ErrUncertain, ExitTimeout},
		{context.Canceled, ExitInterrupted},
		{jobs.ErrUnavailable, ExitUnavailable},
		{context.DeadlineExceeded, ExitTimeout},
	}
}

type exitRule struct {
	kind error
	code int
}

// ExitCode returns the program's exit code for an error.
func ExitCode(err error) int {
	if err == nil {
		return ExitOK
	}
	if faults := (config.Faults)(nil); errors.As(err, &faults) {
		return ExitUsage
	}
	for _, rule := range exitCodes() {
		if errors.Is(err, rule.kind) {
			return rule.code
		}
	}
	return ExitFailed
}

// errorDocument is an error with -o json.
type errorDocument struct {
	Error Part   `json:"error"` // as in the API
	Hint  string `json:"hint,omitempty"`
}

// errorMessage is an error in the form of the API, with Connect's codes for errors that only
// the caller can detect.
func errorMessage(err error) *v1.Error {
	message := command.ErrorToProto(err)
	if message.Code != command.CodeInternal {
		return message
	}
	switch ExitCode(err) {
	case ExitUsage:
		message.Code = command.CodeInvalid
	case ExitTimeout:
		message.Code = connect.CodeDeadlineExceeded.String()
	case ExitInterrupted:
		message.Code = connect.CodeCanceled.String()
	}
	return message
}

// Because adds the failed action to an error, unless the error already contains it, like errors of
// the client library. For nil, it returns nil.
func Because(err error, format string, args ...any) error {
	if err == nil || strings.HasPrefix(err.Error(), "cannot ") {
		return err
	}
	return fmt.Errorf("cannot "+format+": %w", append(args, err)...)
}

// Advised adds advice to an error.
func Advised(err error, advice string) error { return advisedError{err, advice} }

// advisedError is an error with advice.
type advisedError struct {
	error
	advice string
}

func (a advisedError) Unwrap() error { return a.error }

// hint returns the advice for an error; empty if there is none.
func hint(err error) string {
	var given advisedError
	var compacted *jobs.CompactedError
	switch {
	case errors.As(err, &given):
		return given.advice
	case mismatchRemedy(err) != "":
		return mismatchRemedy(err)
	case withoutQuorum(err) != "":
		return withoutQuorum(err)
	case errors.As(err, &compacted):
		return fmt.Sprintf("--after %s shows all events that are kept; for the effects of earlier events, see `conductord job list`", compacted.Since)
	case errors.Is(err, syscall.EADDRINUSE):
		return "another process, such as another conductord, uses this port: stop that process, or choose another address (`conductord dev`: --api-listen; `conductord config init`: --port)"
	case errors.Is(err, jobs.ErrUnavailable):
		return "is a server running, and is --server right? start one with `conductord dev`"
	case errors.Is(err, jobs.ErrUncertain):
		return "the command may have had an effect; repeat it with the same ids: it takes effect only once"
	case errors.Is(err, jobs.ErrFenced):
		return fmt.Sprintf("`conductord job get %s` shows the job's state, and the token of its claim if there is one", cmp.Or(idPattern.FindString(err.Error()), "ID"))
	case errors.Is(err, context.DeadlineExceeded):
		return "a longer --timeout may help; `conductord cluster status` shows the nodes"
	}
	return ""
}

// idPattern finds an id in a text.
var idPattern = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// mismatchRemedy is the advice when the protocol versions of this client and a node do not match;
// empty for other errors.
func mismatchRemedy(err error) string {
	var unsettled *raftboard.UnsettledError
	var otherHost x509.HostnameError
	var unfit x509.CertificateInvalidError
	if !errors.As(err, &unsettled) {
		return ""
	}
	for _, node := range unsettled.Nodes {
		switch {
		case errors.Is(node.Err, raftboard.ErrNodeSpeaksTLS):
			return "name the file of the authorities that sign the nodes' certificates: --ca-file (CONDUCTORD_CA_FILE)"
		case errors.Is(node.Err, raftboard.ErrNodeSpeaksPlainText):
			return "omit --ca-file, --cert-file and --key-file (CONDUCTORD_CA_FILE, …), and use http:// instead of https:// in --server"
		case errors.Is(node.Err, raftboard.ErrUnknownAuthority):
			return "--ca-file (CONDUCTORD_CA_FILE) must name the file of the authority that signed the node's certificate"
		case errors.Is(node.Err, raftboard.ErrCertificateRefused):
			return "the node's tls.ca must contain the authority that issued --cert-file (CONDUCTORD_CERT_FILE); to issue a certificate: `conductord cert issue client --help`"
		case errors.As(node.Err, &otherHost):
			return "--server must name a host of the node's certificate; to issue another certificate: `conductord cert issue node --help`"
		case errors.As(node.Err, &unfit):
			return node.Node + " needs another certificate: `conductord cert issue node --help`"
		}
	}
	return ""
}

// withoutQuorum is the advice when nodes answer that the cluster has no quorum; empty for
// other errors.
func withoutQuorum(err error) string {
	var unsettled *raftboard.UnsettledError
	if !errors.As(err, &unsettled) || !errors.Is(unsettled.Kind, jobs.ErrUnavailable) {
		return ""
	}
	var silent []string
	answers := false
	for _, node := range unsettled.Nodes {
		answers = answers || node.Reached
		if !node.Reached {
			silent = append(silent, node.Node)
		}
	}
	switch {
	case !answers:
		return ""
	case len(silent) == 0:
		return "`conductord cluster status` shows what each node sees"
	}
	return fmt.Sprintf("a majority of the nodes must run: start %s; `conductord cluster status` shows what each node sees", strings.Join(silent, ", "))
}
