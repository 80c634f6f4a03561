package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/internal/measure"
)

// servers are the processes of one side, in their own directory.
type servers struct {
	dir     string
	started []*exec.Cmd
	pids    []int // processes whose time counts, with their descendants
}

// makeDir makes the directory, for the user of the servers.
func (s *servers) makeDir() error {
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return fmt.Errorf("cannot make a directory: %w", err)
	}
	if credential := unprivileged(); credential != nil {
		return os.Chown(s.dir, int(credential.Uid), int(credential.Gid))
	}
	return nil
}

// unprivileged is the user nobody if this program runs as root: PostgreSQL refuses to run as
// root.
func unprivileged() *syscall.Credential {
	nobody, err := user.Lookup("nobody")
	if os.Getuid() != 0 || err != nil {
		return nil
	}
	uid, uidErr := strconv.ParseUint(nobody.Uid, 10, 32)
	gid, gidErr := strconv.ParseUint(nobody.Gid, 10, 32)
	if uidErr != nil || gidErr != nil {
		return nil
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// find looks for a program on the PATH, and where Debian keeps PostgreSQL's.
func find(program string) string {
	if found, err := exec.LookPath(program); err == nil {
		return found
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + program)
	if len(found) == 0 {
		return ""
	}
	return found[len(found)-1]
}

// command prints the errors of its process on stderr.
func command(ctx context.Context, program string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, program, args...)
	c.Stderr = os.Stderr
	return c
}

// prepare makes a command of a server's user, with its output in a file.
func (s *servers) prepare(ctx context.Context, env []string, program string, args ...string) (*exec.Cmd, error) {
	c := exec.CommandContext(ctx, find(program), args...)
	log, err := os.OpenFile(filepath.Join(s.dir, program+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cannot write the log of %s: %w", program, err)
	}
	c.Dir, c.Env, c.Stdout, c.Stderr = s.dir, append(os.Environ(), env...), log, log
	c.SysProcAttr = &syscall.SysProcAttr{Credential: unprivileged(), Pdeathsig: syscall.SIGKILL, Setpgid: true}
	return c, nil
}

// do runs a program and waits for its end.
func (s *servers) do(ctx context.Context, env []string, program string, args ...string) error {
	c, err := s.prepare(ctx, env, program, args...)
	if err != nil {
		return err
	}
	if err := c.Run(); err != nil {
		return fmt.Errorf("cannot run %s %s: %w: %s", program, strings.Join(args, " "), err, s.tail(program))
	}
	return nil
}

// serve starts a server, which close kills.
func (s *servers) serve(env []string, program string, args ...string) error {
	c, err := s.prepare(context.Background(), env, program, args...)
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return fmt.Errorf("cannot start %s: %w", program, err)
	}
	s.started, s.pids = append(s.started, c), append(s.pids, c.Process.Pid)
	return nil
}

// close stops the servers at once, because their data is removed with the directory. SIGQUIT is
// PostgreSQL's immediate shutdown, which releases all shared memory.
func (s *servers) close() {
	const patience = 5 * time.Second
	for _, c := range s.started {
		_ = c.Process.Signal(syscall.SIGQUIT)
		late := time.AfterFunc(patience, func() { _ = c.Process.Kill() })
		_ = c.Wait()
		late.Stop()
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
	}
	if err := os.RemoveAll(s.dir); err != nil {
		progress("cannot remove %s: %v", s.dir, err)
	}
}

// tail is the end of a program's log.
func (s *servers) tail(program string) string {
	const enough = 400
	data, err := os.ReadFile(filepath.Join(s.dir, program+".log"))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(data[max(0, len(data)-enough):]))
}

// until repeats a call until it succeeds or the context ends.
func (s *servers) until(ctx context.Context, program string, try func(context.Context) error) error {
	const pause = 50 * time.Millisecond
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w; its log ends with: %s", program, err, s.tail(program))
		}
	}
}

// ports finds free ports on the loopback address.
func ports(count int) ([]string, error) {
	addresses, err := local.FreeAddresses(count)
	if err != nil {
		return nil, err
	}
	for i, address := range addresses {
		if _, addresses[i], err = net.SplitHostPort(address); err != nil {
			return nil, err
		}
	}
	return addresses, nil
}

// cpu is the processor time that the servers, their descendants and this program have used.
func (s *servers) cpu() (time.Duration, error) {
	own, err := measure.OwnUsage()
	if err != nil {
		return 0, err
	}
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if err != nil || len(fields) < 2 {
			continue // the process has ended
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		parent, _ := strconv.Atoi(fields[1])
		children[parent] = append(children[parent], pid)
	}
	total := own.CPU
	for all := append([]int(nil), s.pids...); len(all) > 0; all = all[1:] {
		used, _ := measure.ReadCPU(all[0])
		total += used
		all = append(all, children[all[0]]...)
	}
	return total, nil
}
