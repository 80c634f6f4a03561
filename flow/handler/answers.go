package handler

import (
	"encoding/json"
	"fmt"
	"os"
)

// maxAnswers bounds the answers that wait for a handler. A handler that reads none loses the further ones.
const maxAnswers = 4_096

// answers is the pipe with a line for each checkpoint of a handler, and the goroutine that writes it. A handler need
// not read it, so the goroutine alone waits for the handler. For the handler it is file descriptor 4.
type answers struct {
	read, write *os.File
	lines       chan []byte
	done        chan struct{} // closed when writing has ended
}

func newAnswers() (*answers, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("cannot make a pipe for the answers to the handler: %w", err)
	}
	a := &answers{read: read, write: write, lines: make(chan []byte, maxAnswers), done: make(chan struct{})}
	go a.pass()
	return a, nil
}

// pass writes the answers. It ends at close, or when the handler has closed its end.
func (a *answers) pass() {
	defer close(a.done)
	for line := range a.lines {
		if _, err := a.write.Write(line); err != nil {
			return
		}
	}
}

// tell answers a checkpoint: with an error, it is not recorded.
func (a *answers) tell(name string, err error) {
	if err != nil {
		a.refuse(name, err)
		return
	}
	a.answer(map[string]string{"checkpoint": name})
}

func (a *answers) refuse(name string, err error) {
	a.answer(map[string]string{"checkpoint": name, "error": err.Error()})
}

func (a *answers) answer(said map[string]string) {
	line, err := json.Marshal(said)
	if err != nil {
		return // texts always have a form
	}
	select {
	case a.lines <- append(line, '\n'):
	default:
	}
}

// close ends the pipe. The handler gets nothing more.
func (a *answers) close() {
	close(a.lines)
	_ = a.write.Close() // ends a write that waits for the handler
	<-a.done
}
