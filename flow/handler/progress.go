package handler

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// maxProgressLine is enough for the largest details, and the JSON around them.
const maxProgressLine = flow.MaxDetails + 1<<10

// maxCheckpointLine is enough for the largest checkpoint, and the JSON around it.
const maxCheckpointLine = logbook.MaxCheckpoint + 4<<10

// progress is the pipe to which a handler writes its progress and its checkpoints, and the goroutine that reads it.
// For the handler it is file descriptor 3, as the first of exec.Cmd's ExtraFiles. Its answers are descriptor 4.
type progress struct {
	call         *flow.Call
	read, write  *os.File
	answers      *answers
	done         chan struct{} // closed when reading has ended; nil: reading has not started
	writerClosed bool
}

func newProgress(call *flow.Call) (*progress, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("cannot make a pipe for the progress of the handler: %w", err)
	}
	answers, err := newAnswers()
	if err != nil {
		return nil, errors.Join(err, read.Close(), write.Close())
	}
	return &progress{call: call, read: read, write: write, answers: answers}, nil
}

// begin starts reading, once the handler has its ends of the pipes. The goroutine ends with the
// handler's group, or at close.
func (p *progress) begin(ctx context.Context) {
	p.closeOwn()
	p.done = make(chan struct{})
	go func() {
		defer close(p.done)
		// A handler that is stopped can still save its position. The call ends with the run of the flow.
		p.listen(context.WithoutCancel(ctx))
	}()
}

// closeOwn closes our copies of the handler's ends. Otherwise the pipes would never end.
func (p *progress) closeOwn() {
	if !p.writerClosed {
		p.writerClosed = true
		_ = p.write.Close() // nothing was written to it here
		_ = p.answers.read.Close()
	}
}

// listen reads line by line. It skips lines that are neither progress reports nor checkpoints, because they must not
// fail the step.
func (p *progress) listen(ctx context.Context) {
	lines := bufio.NewReaderSize(p.read, max(maxProgressLine, maxCheckpointLine))
	tooLong := false
	for {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			tooLong = true
			continue
		}
		var said struct {
			Done       *int64          `json:"done"`
			Total      int64           `json:"total"`
			Details    json.RawMessage `json:"details"`
			Checkpoint *struct {
				Name  string          `json:"name"`
				Value json.RawMessage `json:"value"`
			} `json:"checkpoint"`
		}
		switch {
		case tooLong:
			p.answers.refuse("", &logbook.LimitError{Field: "line on file descriptor 3", Limit: maxCheckpointLine, Size: maxCheckpointLine + 1, Unit: "bytes"})
		case json.Unmarshal(line, &said) != nil:
		case said.Checkpoint != nil:
			name, value := said.Checkpoint.Name, said.Checkpoint.Value
			if value == nil {
				value = json.RawMessage("null")
			}
			p.answers.tell(name, p.call.Checkpoint(ctx, name, value))
		case said.Done != nil:
			_ = p.call.Progress(*said.Done, said.Total, details(said.Details))
		}
		tooLong = false
		if err != nil {
			return
		}
	}
}

// details returns nil for missing details, and not a value without content.
func details(text json.RawMessage) any {
	if len(text) == 0 || string(text) == "null" {
		return nil
	}
	return text
}

// close closes the pipe after the handler has ended; everything written before is read first.
// Only a process that has left the group can still hold the pipe open.
func (p *progress) close() {
	p.closeOwn()
	if p.done != nil {
		_ = p.read.SetReadDeadline(time.Now().Add(drainTime))
		<-p.done
	}
	_ = p.read.Close()
	p.answers.close()
}
