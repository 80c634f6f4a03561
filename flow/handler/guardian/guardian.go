// Package guardian ends everything that handlers have started when the program that runs them
// dies, even by SIGKILL.
//
// A guardian is a process: the program itself, started again under another name. The program
// reports each run of a handler over a pipe, before the run starts. When the pipe closes, the
// program is dead. The guardian then kills, for each run, the process group of the handler, the
// cgroup, and, on Linux, all processes with a HOME in the run's directory.
//
// A guardian has its own session and ignores all signals but SIGKILL. It has no file of the
// program, so it keeps no port and no lock. init makes the process a guardian, before main: a
// program needs nothing in its main.
package guardian

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"
)

const (
	// patience limits the wait for a guardian that does not start, or that does not read.
	patience = 5 * time.Second
	// pulse is the interval at which the program checks its guardian, while there are runs.
	pulse = 250 * time.Millisecond
	// linger is the time that an idle guardian waits for the next run, because starting a guardian
	// takes longer than a small handler.
	linger = time.Minute
)

// Run is one run of a handler.
type Run struct {
	Directory string // contains its HOME; unique to the run
	Cgroup    string // empty: none
	Group     int    // the process group; 0: not started yet, or ended
}

// Over is the group of a run that has ended, or could not start.
const Over = -1

// Guardian is the program's side. Its methods may be called concurrently. Its process runs while
// there are runs, and for linger after the last run.
type Guardian struct {
	start func(*exec.Cmd) error
	ended func(*exec.Cmd)

	mutex   sync.Mutex     // guards the fields below
	runs    map[string]Run // by directory
	pipe    *os.File       // nil: no process runs
	command *exec.Cmd
	timer   *time.Timer // calls look
}

// New makes a Guardian. For its process, it calls start when there is a run, and ended after the
// wait for that process.
func New(start func(*exec.Cmd) error, ended func(*exec.Cmd)) *Guardian {
	g := &Guardian{start: start, ended: ended, runs: map[string]Run{}}
	g.timer = time.AfterFunc(linger, g.look)
	return g
}

// Tell reports a run, or a change in a run, to the guardian. After an error the run must not
// start.
func (g *Guardian) Tell(run Run) error {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	g.runs[run.Directory] = run
	if run.Group == Over {
		delete(g.runs, run.Directory)
	}
	told := g.pipe != nil && g.tellLocked(run) == nil
	if len(g.runs) == 0 {
		g.timer.Reset(linger)
		return nil
	}
	g.timer.Reset(pulse)
	if told {
		return nil
	}
	return g.openLocked()
}

func (g *Guardian) tellLocked(run Run) error {
	_ = g.pipe.SetWriteDeadline(time.Now().Add(patience)) // pipes have deadlines
	_, err := fmt.Fprintf(g.pipe, "%d %q %q\n", run.Group, run.Directory, run.Cgroup)
	if err != nil {
		g.closeLocked()
	}
	return err
}

// openLocked starts a process, and reports all runs to it.
func (g *Guardian) openLocked() error {
	command, err := command()
	if err != nil {
		return err
	}
	in, pipe, err := os.Pipe()
	if err != nil {
		return err
	}
	defer in.Close()
	command.Stdin = in
	ready, err := command.StdoutPipe()
	if err == nil {
		err = g.start(command)
	}
	if err != nil {
		_ = pipe.Close()
		return fmt.Errorf("cannot start the guardian of handlers: %w", err)
	}
	g.pipe, g.command = pipe, command
	late := time.AfterFunc(patience, func() { _ = command.Process.Kill() })
	defer late.Stop()
	if _, err := ready.Read(make([]byte, 1)); err != nil {
		g.closeLocked()
		return fmt.Errorf("the guardian of handlers ended during its start: %w", err)
	}
	for _, run := range g.runs {
		if err := g.tellLocked(run); err != nil {
			return fmt.Errorf("cannot write to the guardian of handlers: %w", err)
		}
	}
	return nil
}

// closeLocked kills the guardian's process before it closes the pipe. Otherwise the guardian
// would kill the runs.
func (g *Guardian) closeLocked() {
	if g.pipe == nil {
		return
	}
	command := g.command
	_ = command.Process.Kill()
	_ = g.pipe.Close()
	g.pipe = nil
	go func() { // ends with the process
		_ = command.Wait()
		g.ended(command)
	}()
}

// look replaces a process that has ended, and ends a process without runs.
func (g *Guardian) look() {
	g.mutex.Lock()
	idle := len(g.runs) == 0
	if idle {
		g.closeLocked()
	}
	g.mutex.Unlock()
	if !idle {
		_ = g.Tell(Run{Group: Over}) // not a run; if no process can start, the next run fails to start
	}
}
