package steptest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/handler"
	"github.com/conductord/conductord/jobs"
)

const (
	registerTime = 30 * time.Second
	lookAgain    = 20 * time.Millisecond
	killTime     = 2 * time.Second // for the pipes of a killed worker
	keptStderr   = 4 << 10
	// handlerGrace is longer than the time that a step has to stop. A handler that ignores
	// SIGTERM is therefore not killed before the test detects it.
	handlerGrace = 2 * stopTime
)

// worker is the tested worker: a process, or a handler in a worker of this process.
type worker struct {
	process *exec.Cmd     // nil: a handler
	stop    func()        // asks it to end
	ended   chan struct{} // closed when it has ended
	err     error         // of its end; read after ended
	stderr  tail
}

// startWorker starts a command with the address of the node.
func startWorker(command []string, server string) (*worker, error) {
	w := &worker{process: exec.Command(command[0], command[1:]...), ended: make(chan struct{})}
	w.process.Env = append(slices.DeleteFunc(os.Environ(), func(pair string) bool { return strings.HasPrefix(pair, "CONDUCTORD_") }), "CONDUCTORD_SERVER="+server)
	w.process.Stdout, w.process.Stderr, w.process.WaitDelay = &w.stderr, &w.stderr, killTime
	if err := w.process.Start(); err != nil {
		return nil, fmt.Errorf("cannot start the worker: %w", err)
	}
	w.stop = func() { _ = w.process.Process.Signal(syscall.SIGTERM) }
	go func() { // ends with the process
		w.err = w.process.Wait()
		close(w.ended)
	}()
	return w, nil
}

// startHandler runs a worker in this process. One executable runs all its types of steps, and gets
// the type as its first argument.
func startHandler(path string, c *cluster) (*worker, error) {
	set, err := handler.Open(filepath.Dir(path))
	if err == nil {
		err = set.Check(filepath.Base(path))
	}
	if err != nil {
		return nil, fmt.Errorf("cannot test the handler: %w", err)
	}
	tasks := map[string]flow.Task{}
	for _, kind := range types() {
		tasks[kind] = set.Task(filepath.Base(path), filepath.Base(path), handler.Argv(kind), handler.Grace(handlerGrace))
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &worker{stop: cancel, ended: make(chan struct{})}
	go func() { // ends with stop
		w.err = conductor.RunWorker(ctx, conductor.WorkerOptions{Client: c.client, Tasks: tasks, Name: "handler"})
		close(w.ended)
	}()
	return w, nil
}

// close ends the worker, and waits for its end.
func (w *worker) close() {
	w.stop()
	select {
	case <-w.ended:
		return
	case <-time.After(killTime):
	}
	if w.process != nil {
		_ = w.process.Process.Kill()
	}
	<-w.ended
}

func (w *worker) hasEnded() bool {
	select {
	case <-w.ended:
		return true
	default:
		return false
	}
}

// end describes how the worker has ended.
func (w *worker) end() error {
	how := "with exit code 0"
	if w.err != nil {
		how = "with " + w.err.Error()
	}
	return fmt.Errorf("the worker has ended %s%s", how, w.said())
}

func (w *worker) said() string {
	if text := strings.TrimSpace(w.stderr.String()); text != "" {
		return "; its last lines: " + text
	}
	return "; it has written nothing"
}

// registered waits until a worker for all types of steps is registered.
func (w *worker) registered(ctx context.Context, c *cluster) (jobs.Entity, error) {
	limited, cancel := context.WithTimeout(ctx, registerTime)
	defer cancel()
	for {
		missing := types()
		entities, _ := c.client.Entities(ctx, jobs.EntityWorker) // repeated after an error
		for i := range entities {
			missing = slices.DeleteFunc(types(), func(kind string) bool { return slices.Contains(entities[i].JobKinds, kind) })
			if len(missing) == 0 {
				return entities[i], nil
			}
		}
		select {
		case <-w.ended:
			return jobs.Entity{}, fmt.Errorf("cannot test: %w", w.end())
		case <-limited.Done():
			if ctx.Err() != nil {
				return jobs.Entity{}, ctx.Err()
			}
			return jobs.Entity{}, fmt.Errorf("cannot test: no worker for these types of steps registered within %s: %s; %d step workers are registered at CONDUCTORD_SERVER (%s)%s",
				registerTime, strings.Join(missing, ", "), len(entities), c.address, w.said())
		case <-time.After(lookAgain):
		}
	}
}

// tail keeps the end of an output. Its methods may be called concurrently.
type tail struct {
	mu   sync.Mutex
	kept []byte
}

func (t *tail) Write(text []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, text...)
	t.kept = t.kept[max(0, len(t.kept)-keptStderr):]
	return len(text), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.kept)
}
