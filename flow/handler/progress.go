package handler

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/conductord/conductord/flow"
)

// maxProgressLine is enough for the largest details, and the JSON around them.
const maxProgressLine = flow.MaxDetails + 1<<10

// progress is the pipe to which a handler writes its progress, and the goroutine that reads it.
// For the handler it is file descriptor 3, as the first of exec.Cmd's ExtraFiles.
type progress struct {
	call         *flow.Call
	read, write  *os.File
	done         chan struct{} // closed when reading has ended; nil: reading has not started
	writerClosed bool
}

func newProgress(call *flow.Call) (*progress, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("cannot make a pipe for the progress of the handler: %w", err)
	}
	return &progress{call: call, read: read, write: write}, nil
}

// begin starts to read when the handler has its end of the pipe. The goroutine ends with the
// handler's group, or at close.
func (p *progress) begin() {
	p.closeWriter()
	p.done = make(chan struct{})
	go func() {
		defer close(p.done)
		p.listen()
	}()
}

// closeWriter closes our copy of the handler's end. Otherwise the pipe would never end.
func (p *progress) closeWriter() {
	if !p.writerClosed {
		p.writerClosed = true
		_ = p.write.Close() // nothing was written to it here
	}
}

// listen reads line by line. It skips lines that are not progress reports, because they must not
// fail the step.
func (p *progress) listen() {
	lines := bufio.NewReaderSize(p.read, maxProgressLine)
	tooLong := false
	for {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			tooLong = true
			continue
		}
		var said struct {
			Done    *int64          `json:"done"`
			Total   int64           `json:"total"`
			Details json.RawMessage `json:"details"`
		}
		if !tooLong && json.Unmarshal(line, &said) == nil && said.Done != nil {
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
	p.closeWriter()
	if p.done != nil {
		_ = p.read.SetReadDeadline(time.Now().Add(drainTime))
		<-p.done
	}
	_ = p.read.Close()
}
