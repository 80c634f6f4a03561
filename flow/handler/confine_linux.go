package handler

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/conductord/conductord/flow/handler/guardian"
)

const confines = true

func mayLimitOthers() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	return unix.Capget(&header, &sets[0]) == nil && sets[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}

// start starts a command confined, in the cgroup if it is not nil. It changes
// the calling thread, which must then start nothing else.
func (c *confined) start(command *exec.Cmd, cgroup *os.File) error {
	attributes := command.SysProcAttr
	if c.user != nil {
		attributes.Credential = &syscall.Credential{Uid: c.user.uid, Gid: c.user.gid, Groups: c.user.groups}
	}
	if cgroup != nil {
		attributes.UseCgroupFD, attributes.CgroupFD = true, int(cgroup.Fd())
	}
	// The limits of a process can be set only when the process exists. A traced process stops
	// before its first instruction.
	limited := c.OpenFiles > 0 || c.FileSize > 0
	attributes.Ptrace = limited
	if c.NoNewPrivileges {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return err
		}
	}
	err := command.Start()
	if err != nil || !limited {
		return err
	}
	err = c.limit(command.Process.Pid)
	if err != nil {
		_ = command.Process.Kill()
	}
	_ = unix.PtraceDetach(command.Process.Pid) // it fails when the process is dead
	if err != nil {
		_ = command.Wait()
	}
	return err
}

// limit waits until the traced process stops, and sets its limits.
func (c *confined) limit(pid int) error {
	var err error
	for {
		err = unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	for resource, most := range map[int]int64{unix.RLIMIT_NOFILE: c.OpenFiles, unix.RLIMIT_FSIZE: c.FileSize} {
		if most > 0 {
			err = errors.Join(err, unix.Prlimit(pid, resource, &unix.Rlimit{Cur: uint64(most), Max: uint64(most)}, nil))
		}
	}
	if err != nil {
		return fmt.Errorf("cannot limit its files: %w", err)
	}
	return nil
}

// ownCgroup is the directory of this process's cgroup.
func ownCgroup() (string, error) {
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(data)) {
		path, found := strings.CutPrefix(strings.TrimSpace(line), "0::")
		for _, mount := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
			directory := filepath.Join(mount, path)
			if _, err := os.Stat(filepath.Join(directory, "cgroup.procs")); found && err == nil {
				return directory, unix.Access(directory, unix.W_OK)
			}
		}
	}
	return "", errors.New("this process is not in a cgroup of version 2")
}

// makeCgroups makes the cgroup below which each run gets its own. A cgroup with limited
// children must not contain processes itself, so this process moves.
func makeCgroups(directory string, memory, processes bool) (string, error) {
	own, err := ownCgroup()
	if err != nil {
		return "", err
	}
	var wanted []string
	if memory {
		wanted = append(wanted, "memory")
	}
	if processes {
		wanted = append(wanted, "pids")
	}
	if err := hasControllers(own, wanted); err != nil {
		return "", err
	}
	name := fnv.New64a() // several programs can share a cgroup
	_, _ = name.Write([]byte(directory))
	runs := filepath.Join(own, fmt.Sprintf("handlers-%x", name.Sum64()))
	if err := os.Mkdir(runs, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	if len(wanted) == 0 {
		return runs, nil
	}
	node := filepath.Join(own, "node")
	if err := os.Mkdir(node, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(node, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
		return "", err
	}
	for _, at := range []string{own, runs} {
		if err := os.WriteFile(filepath.Join(at, "cgroup.subtree_control"), []byte("+"+strings.Join(wanted, " +")), 0); err != nil {
			return "", fmt.Errorf("%w: the cgroup must contain only this process (in a systemd unit: Delegate=yes)", err)
		}
	}
	return runs, nil
}

func hasControllers(cgroup string, wanted []string) error {
	data, err := os.ReadFile(filepath.Join(cgroup, "cgroup.controllers"))
	has := strings.Fields(string(data))
	for _, controller := range wanted {
		if err == nil && !slices.Contains(has, controller) {
			err = fmt.Errorf("%s does not have the controller %s (in a systemd unit: Delegate=yes)", cgroup, controller)
		}
	}
	return err
}

// makeCgroup makes the cgroup of one run, and opens it.
func (c *confined) makeCgroup(run string) (*os.File, error) {
	if c.cgroups == "" {
		return nil, nil
	}
	path := filepath.Join(c.cgroups, run)
	if err := os.Mkdir(path, 0o755); err != nil {
		return nil, err
	}
	var settings [][2]string
	if c.Memory > 0 { // all processes of the run are killed together
		settings = append(settings, [2]string{"memory.max", strconv.FormatInt(c.Memory, 10)}, [2]string{"memory.oom.group", "1"})
	}
	if c.Processes > 0 {
		settings = append(settings, [2]string{"pids.max", strconv.FormatInt(c.Processes, 10)})
	}
	for _, setting := range settings {
		if err := os.WriteFile(filepath.Join(path, setting[0]), []byte(setting[1]), 0); err != nil {
			return nil, errors.Join(err, os.Remove(path))
		}
	}
	return os.Open(path)
}

func killCgroups(runs string) {
	left, _ := os.ReadDir(runs)
	for _, entry := range left {
		if entry.IsDir() {
			guardian.KillCgroup(filepath.Join(runs, entry.Name()))
		}
	}
}

// killAdopted kills the orphans of a run that this process has adopted. Their home is the run's
// working directory. Children of killed processes are adopted in turn, when their parent becomes
// a zombie. killAdopted therefore looks again while an orphan is about to become one, and once
// after that.
func (c *children) killAdopted(home string) {
	zombies := make(map[int]bool) // of an earlier look
	guardian.KillUntilGone(func() (again bool) {
		c.starting.RLock() // no process id is reused meanwhile
		defer c.starting.RUnlock()
		lists, _ := filepath.Glob("/proc/self/task/*/children")
		for _, list := range lists {
			data, _ := os.ReadFile(list)
			for _, text := range strings.Fields(string(data)) {
				pid, err := strconv.Atoi(text)
				if _, own := c.pids.Load(pid); err != nil || own {
					continue
				}
				switch state, memory := statusOf(pid); {
				case state == zombie:
					again = again || !zombies[pid]
					zombies[pid] = true
				case guardian.KillIfAtHome(pid, home+"\x00"), memory == 0:
					again = true
				}
			}
		}
		return again
	})
}

// zombie is the state of an ended process without children.
const zombie = "Z"

// statusOf reads the state of a process and the size of its memory. A process that is about to
// become a zombie has no memory, and neither has an ended process.
func statusOf(pid int) (state string, memory int) {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // from the third on: the name may hold spaces
	const vsize = 23 - 3
	if len(fields) <= vsize {
		return zombie, 0
	}
	memory, _ = strconv.Atoi(fields[vsize])
	return fields[0], memory
}
