package bareraft

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/conductord/conductord/internal/measure"
)

// Request is a line of a process's standard input.
type Request struct {
	// Load, if set, is driven by this process, which must be the leader. Without a load, the
	// process answers at once with its usage so far.
	Load *measure.Load `json:"load,omitempty"`
	// Bytes is the command size of one call.
	Bytes int `json:"bytes,omitempty"`
}

// Answer is a line of a process's standard output.
type Answer struct {
	Leading bool          `json:"leading"`
	Run     measure.Run   `json:"run"`
	Entries uint64        `json:"entries"` // proposed within the window
	Usage   measure.Usage `json:"usage"`   // within the window; without a load, since the start of the process
	Error   string        `json:"error,omitempty"`
}

// maxCommand bounds Request.Bytes: a command must fit into an entry.
const maxCommand = maxEntryBytes

// headroomBytes is the daemon's ballast, which makes garbage collection less frequent
// (cmd/conductord/daemon/memory.go).
const headroomBytes = 64 << 20

// headroom is memory that is never used but counts for the collector, as in the daemon.
// GOGC or GOMEMLIMIT in the environment replaces it.
func headroom() []byte {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return nil
	}
	return make([]byte, headroomBytes)
}

// Serve runs a member: the first line of the input is its Options, and every
// further one a Request. It returns when the input ends.
func Serve(ctx context.Context, input io.Reader, output io.Writer) (err error) {
	room := headroom()
	defer runtime.KeepAlive(room)
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
	var err error
	if request.Load == nil {
		answer.Usage, err = n.Usage()
	} else {
		answer.Run, answer.Entries, answer.Usage, err = n.Drive(ctx, *request.Load, request.Bytes)
	}
	if err != nil {
		answer.Error = err.Error()
	}
	return answer
}

// Usage is the resource usage of the process, and the writes of the member.
func (n *Node) Usage() (measure.Usage, error) {
	usage, err := measure.OwnUsage()
	usage.LogWrites = float64(n.log.writes.Load())
	return usage, err
}

// Drive proposes commands of a size under a load, one per call. It returns the number of
// entries in the window and the process's usage.
func (n *Node) Drive(ctx context.Context, load measure.Load, size int) (measure.Run, uint64, measure.Usage, error) {
	if size < 1 || size > maxCommand {
		return measure.Run{}, 0, measure.Usage{}, fmt.Errorf("cannot propose commands of %d bytes; they have 1 to %d", size, maxCommand)
	}
	command := bytes.Repeat([]byte{'c'}, size)
	var entries []uint64
	var usages []measure.Usage
	run, err := measure.Drive(ctx, load,
		func(ctx context.Context) error { return n.proposer.propose(ctx, command) },
		func(context.Context) error {
			usage, err := n.Usage()
			entries, usages = append(entries, n.proposer.entries.Load()), append(usages, usage)
			return err
		})
	if err != nil {
		return measure.Run{}, 0, measure.Usage{}, fmt.Errorf("cannot drive bare raft: %w", err)
	}
	return run, entries[1] - entries[0], usages[1].Since(usages[0]), nil
}
