package bareraft

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/conductord/conductord/test/bench/measure"
)

// Request is a line of a process's standard input.
type Request struct {
	// Load, if it is set, is driven now; only the leader does. Without a load
	// the answer says whether this process leads.
	Load *measure.Load `json:"load,omitempty"`
	// Bytes is the size of a command: what one call proposes.
	Bytes int `json:"bytes,omitempty"`
}

// Answer is a line of a process's standard output.
type Answer struct {
	Leading bool        `json:"leading"`
	Run     measure.Run `json:"run"`
	Entries uint64      `json:"entries"` // proposed within the window
	Error   string      `json:"error,omitempty"`
}

// maxCommand bounds Request.Bytes: an entry takes no more.
const maxCommand = maxEntryBytes

// Serve runs a member: the first line of the input is its Options, and every
// further one a Request. It returns when the input ends.
func Serve(ctx context.Context, input io.Reader, output io.Writer) (err error) {
	requests, answers := json.NewDecoder(input), json.NewEncoder(output)
	var options Options
	if err := requests.Decode(&options); err != nil {
		return fmt.Errorf("cannot read the options: %w", err)
	}
	node, err := Open(options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, node.Close()) }()
	for {
		var request Request
		if err := requests.Decode(&request); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("cannot read a request: %w", err)
		}
		if err := answers.Encode(node.answer(ctx, request)); err != nil {
			return fmt.Errorf("cannot answer: %w", err)
		}
	}
}

func (n *Node) answer(ctx context.Context, request Request) Answer {
	answer := Answer{Leading: n.Leading()}
	if request.Load == nil {
		return answer
	}
	var err error
	if answer.Run, answer.Entries, err = n.Drive(ctx, *request.Load, request.Bytes); err != nil {
		answer.Error = err.Error()
	}
	return answer
}

// Drive proposes commands of a size under a load, one for each call, and gives
// the entries of the window besides.
func (n *Node) Drive(ctx context.Context, load measure.Load, size int) (measure.Run, uint64, error) {
	if size < 1 || size > maxCommand {
		return measure.Run{}, 0, fmt.Errorf("cannot propose commands of %d bytes; they have 1 to %d", size, maxCommand)
	}
	command := bytes.Repeat([]byte{'c'}, size)
	var marks []uint64
	run, err := measure.Drive(ctx, load,
		func(ctx context.Context) error { return n.proposer.propose(ctx, command) },
		func(context.Context) error { marks = append(marks, n.proposer.entries.Load()); return nil })
	if err != nil {
		return measure.Run{}, 0, fmt.Errorf("cannot drive bare raft: %w", err)
	}
	return run, marks[1] - marks[0], nil
}
