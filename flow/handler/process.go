package handler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/handler/guardian"
	"github.com/conductord/conductord/logbook"
)

// drainTime limits the wait for the pipes of an ended handler. Its group is dead by then. Only a
// process outside the group can still hold the pipes, and its output is not part of the answer.
const drainTime = time.Second

// process is one run of a handler.
type process struct {
	name     string
	command  *exec.Cmd
	child    child
	children *children
	grace    time.Duration
	confined *confined
	stdout   *stdout
	stderr   *stderr
	progress *progress

	started chan error    // one value, from the goroutine of begin
	exited  chan struct{} // closed when the handler itself has ended
}

// ending is the end of a run.
type ending struct {
	state    *os.ProcessState
	stopped  bool // the context ended first
	overflow bool // it wrote too much
}

// newProcess prepares a run of the opened file, in a working directory.
func newProcess(children *children, file *os.File, path, directory string, input []byte, output io.Writer, call *flow.Call, s settings) (*process, error) {
	progress, err := newProgress(call)
	if err != nil {
		return nil, err
	}
	p := &process{
		name:     filepath.Base(path),
		command:  commandFor(file, path, progress.write, progress.answers.read),
		children: children,
		grace:    s.grace,
		confined: s.confined,
		stdout:   newStdout(s.limits.Value + len("\n")),
		stderr:   &stderr{},
		progress: progress,
		started:  make(chan error, 1),
		exited:   make(chan struct{}),
	}
	p.command.Dir = directory
	p.command.Env = environment(path, directory, call)
	p.command.Stdin = bytes.NewReader(input)
	p.command.Stdout = p.stdout
	p.command.Stderr = io.MultiWriter(p.stderr, output)
	p.command.WaitDelay = drainTime
	return p, nil
}

// environment is the handler's environment. It lists the variables to pass, not the variables
// to withhold, so no secret of the daemon can leak.
func environment(path, directory string, call *flow.Call) []string {
	variables := []string{
		"PATH=/usr/local/bin:/usr/bin:/bin",
		"LANG=C.UTF-8",
		"TZ=UTC",
		"HOME=" + directory,
		"TMPDIR=" + directory,
		"CONDUCTORD_HANDLER=" + path,
		"CONDUCTORD_JOB=" + call.Job,
		"CONDUCTORD_FLOW=" + call.Flow.String(),
		"CONDUCTORD_STEP=" + call.Step,
		"CONDUCTORD_ACTION=" + string(call.Action),
		fmt.Sprintf("CONDUCTORD_ATTEMPT=%d", call.Attempt),
		fmt.Sprintf("CONDUCTORD_TRY=%d", call.Try),
		fmt.Sprintf("CONDUCTORD_TRIES=%d", call.Tries),
		fmt.Sprintf("CONDUCTORD_ASKED=%d", call.Asked),
		"CONDUCTORD_FENCE=" + call.Token.String(),
		"CONDUCTORD_KEY=" + call.Key(),
	}
	add := func(name, value string) {
		if value != "" {
			variables = append(variables, name+"="+strings.ReplaceAll(value, "\x00", " "))
		}
	}
	if last := call.LastFailure; last != nil {
		add("CONDUCTORD_LAST_FAILURE", last.Message)
		add("CONDUCTORD_LAST_FAILURE_KIND", last.Kind)
	}
	if call.Action == logbook.ActionRevert || call.Final {
		add("CONDUCTORD_CAUSE", string(call.Cause.Kind))
		add("CONDUCTORD_CAUSE_BY", call.Cause.By)
		add("CONDUCTORD_CAUSE_REASON", call.Cause.Reason)
	}
	return variables
}

// run runs the process to its end. When it returns, the handler, its group and its processes
// outside the group are dead, and nothing more is written to stdout and stderr.
func (p *process) run(ctx context.Context) (ending, error) {
	defer p.progress.close()
	guarded := guardian.Run{Directory: filepath.Dir(p.command.Dir)}
	cgroup, err := p.confined.makeCgroup(filepath.Base(guarded.Directory))
	if err != nil {
		return ending{}, fmt.Errorf("cannot make a cgroup for the handler %s: %w", p.name, err)
	}
	defer func() { _ = p.children.guardian.Tell(guardian.Run{Directory: guarded.Directory, Group: guardian.Over}) }()
	if cgroup != nil {
		guarded.Cgroup = cgroup.Name()
		defer guardian.KillCgroup(guarded.Cgroup)
		defer cgroup.Close()
	}
	if err := p.children.guardian.Tell(guarded); err != nil {
		return ending{}, fmt.Errorf("cannot run the handler %s: %w", p.name, err)
	}
	go p.begin(cgroup)
	if err := <-p.started; err != nil {
		return ending{}, fmt.Errorf("cannot start the handler %s: %w", p.name, explained(err))
	}
	// If the daemon dies before this, the parent-death signal ends the handler, and the guardian knows
	// the rest by its home (Linux). A failure can be ignored: the next guardian learns of all runs.
	guarded.Group = p.command.Process.Pid
	_ = p.children.guardian.Tell(guarded)
	p.progress.begin(ctx)
	var end ending
	select {
	case <-p.exited:
	case <-p.stdout.full:
		end.overflow = true
	case <-ctx.Done():
		end.stopped = p.askToStop(ctx)
	}
	// Always, also after a success: everything that the handler has left in its group must end.
	// On Linux the dead leader still holds the group's number here, so the signal cannot reach
	// another group. No process escapes by forking, because the kernel orders the fork before or
	// after the signal.
	signalGroup(p.command.Process.Pid, syscall.SIGKILL)
	<-p.exited
	guarded.Group = 0 // the kernel can reuse the number after the leader is reaped
	_ = p.children.guardian.Tell(guarded)
	// The error only repeats the state, or reports that a process outside the group held the
	// pipes.
	_ = p.child.reap(p.command)
	p.children.remove(p.command)
	p.children.killAdopted(p.command.Dir)
	end.state = p.command.ProcessState
	select {
	case <-p.stdout.full:
		end.overflow = true
	default:
	}
	return end, nil
}

// explained explains why the kernel refuses to run a file that exists and is executable.
func explained(err error) error {
	switch {
	case errors.Is(err, syscall.ENOENT):
		return fmt.Errorf("the interpreter in its first line, or its loader, does not exist: %w", err)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("the handlers' user has no permission to run it, or to enter its working directory: %w", err)
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("it is neither a program for this machine nor a script whose first line names an interpreter, such as #!/bin/sh: %w", err)
	}
	return err
}

// begin starts the handler and waits for its end, on a thread that it keeps until then: the kernel
// sends the parent-death signal when the *thread* that started a process ends. The goroutine ends
// when the handler does. If the thread has dropped privileges, it ends with the goroutine.
func (p *process) begin(cgroup *os.File) {
	runtime.LockOSThread()
	if !p.confined.NoNewPrivileges {
		defer runtime.UnlockOSThread()
	}
	err := p.children.start(p.command, func() error { return p.confined.start(p.command, cgroup) })
	p.started <- err
	if err != nil {
		return
	}
	p.child.await(p.command)
	close(p.exited)
}

// askToStop gives the group time to end by itself. It returns false if the handler had ended already: its result is
// then used. An interrupted handler has the grace of the interruption, until its claim ends too. Its result is used if
// it ends by itself in that time.
func (p *process) askToStop(ctx context.Context) bool {
	select {
	case <-p.exited:
		return false
	default:
	}
	signalGroup(p.command.Process.Pid, syscall.SIGTERM)
	grace := time.NewTimer(p.grace)
	defer grace.Stop()
	var claimEnded, changed <-chan struct{}
	var deadline time.Time
	i := flow.InterruptionOf(ctx)
	if i != nil {
		deadline, changed = i.Deadline()
		grace.Reset(time.Until(deadline))
		claimEnded = i.ClaimEnded()
	}
	for {
		select {
		case <-p.exited:
			return i == nil
		case <-p.stdout.full:
		case <-grace.C:
		case <-changed:
			deadline, changed = i.Deadline()
			grace.Reset(time.Until(deadline))
			continue
		case <-claimEnded:
			claimEnded, changed = nil, nil
			grace.Reset(p.grace)
			continue
		}
		return true
	}
}
