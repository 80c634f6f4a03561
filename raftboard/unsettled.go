package raftboard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/conductord/conductord/raftboard/wire"
)

// UnsettledError is the error of a call that no node has settled, with the last answer of each
// tried node. It does not wrap these answers: the last one may report that nothing happened,
// although an earlier one is ambiguous.
type UnsettledError struct {
	Kind  error // jobs.ErrUnavailable or jobs.ErrUncertain
	Why   error // reason why the attempts ended
	Nodes []NodeFailure
}

// NodeFailure is the reason why a node did not settle a call.
type NodeFailure struct {
	Node    string
	Reached bool // there was a connection
	Err     error
}

// Error lists the answers of the nodes; nodes with the same answer are listed together.
func (e *UnsettledError) Error() string {
	if len(e.Nodes) == 0 {
		return fmt.Sprintf("%v: %v", e.Kind, e.Why)
	}
	var reasons, nodes []string
	for _, failure := range e.Nodes {
		reason := failure.reason()
		if i := slices.Index(reasons, reason); i >= 0 {
			nodes[i] += ", " + failure.Node
			continue
		}
		reasons, nodes = append(reasons, reason), append(nodes, failure.Node)
	}
	for i := range nodes {
		nodes[i] += ": " + reasons[i]
	}
	text := strings.Join(nodes, "; ")
	if !errors.Is(e.Why, errPatience) && !errors.Is(e.Why, context.DeadlineExceeded) {
		text = e.Why.Error() + ": " + text
	}
	return fmt.Sprintf("%v: %s", e.Kind, text)
}

// Unwrap returns the kind, and the reason why the attempts ended.
func (e *UnsettledError) Unwrap() []error { return []error{e.Kind, e.Why} }

// reason is the error without the parts that the outer error already has.
func (f *NodeFailure) reason() string {
	var number syscall.Errno
	switch {
	case errors.As(f.Err, &number):
		return number.Error()
	case errors.Is(f.Err, context.Canceled), errors.Is(f.Err, context.DeadlineExceeded):
		return "no answer in time"
	}
	return wire.WithoutClass(f.Err)
}
