package guardian_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/conductord/conductord/flow/handler/guardian"
)

// soon is the limit for short operations on a busy machine.
const soon = 30 * time.Second

func waitFor(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline, tick := time.After(soon), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("it never came true that %s", what)
		case <-tick.C:
		}
	}
}

// sleeper is a process group that sleeps, and a channel that is closed when it has ended.
func sleeper(t *testing.T, home string) (group int, ended chan struct{}) {
	t.Helper()
	command := exec.Command("sleep", "600")
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home}
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // until the test ends, with the process
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended = make(chan struct{})
	go func() { _ = command.Wait(); close(ended) }()
	t.Cleanup(func() { _ = command.Process.Kill(); <-ended })
	return command.Process.Pid, ended
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// programVariable makes the test binary a program that passes the process group and the directory
// in the variable to its guardian, and then kills itself.
const programVariable = "GUARDIAN_TEST_PROGRAM"

// TestGuardianEndsRuns: when the program dies, the guardian ends all unfinished runs, by group and
// by home, and no others.
func TestGuardianEndsRuns(t *testing.T) {
	rows := []struct {
		name   string
		lives  bool
		tell   func(g *guardian.Guardian, directory string, group int) error
		strays bool // the process has another home
	}{
		{"a run", false, func(g *guardian.Guardian, directory string, group int) error {
			return errors.Join(g.Tell(guardian.Run{Directory: directory}), g.Tell(guardian.Run{Directory: directory, Group: group}))
		}, true},
		{"a run that has just started", false, func(g *guardian.Guardian, directory string, _ int) error {
			return g.Tell(guardian.Run{Directory: directory})
		}, false},
		{"a run whose leader was reaped", true, func(g *guardian.Guardian, directory string, group int) error {
			return errors.Join(g.Tell(guardian.Run{Directory: directory, Group: group}), g.Tell(guardian.Run{Directory: directory}))
		}, true},
		{"a run that has ended", true, func(g *guardian.Guardian, directory string, group int) error {
			err := g.Tell(guardian.Run{Directory: directory, Group: group})
			return errors.Join(err, g.Tell(guardian.Run{Directory: directory, Group: guardian.Over}))
		}, false},
	}
	if group, rest, found := strings.Cut(os.Getenv(programVariable), " "); found {
		row, directory, _ := strings.Cut(rest, " ")
		number, _ := strconv.Atoi(row)
		leader, _ := strconv.Atoi(group)
		start := func(command *exec.Cmd) error { err := command.Start(); fmt.Println(command.Process.Pid); return err }
		if err := rows[number].tell(guardian.New(start, func(*exec.Cmd) {}), directory, leader); err != nil {
			t.Fatal(err)
		}
		t.Fatal(syscall.Kill(os.Getpid(), syscall.SIGKILL))
	}
	for number, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			directory := filepath.Join(t.TempDir(), `a "quoted" name`)
			home := filepath.Join(directory, "work")
			if row.strays {
				home = "/"
			}
			group, ended := sleeper(t, home)
			program := exec.Command(os.Args[0], "-test.run=^TestGuardianEndsRuns$")
			program.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d %s", programVariable, group, number, directory))
			said, _ := program.Output() // the program is killed
			pid, err := strconv.Atoi(strings.TrimSpace(string(said)))
			if err != nil {
				t.Fatalf("%v: the program says %s", err, said)
			}
			waitFor(t, "the guardian has ended", func() bool { _, err := os.Stat(fmt.Sprintf("/proc/%d/fd/0", pid)); return err != nil })
			if row.lives && isClosed(ended) {
				t.Error("the guardian has killed what it must not")
			}
			if !row.lives {
				waitFor(t, "the run has ended", func() bool { return isClosed(ended) })
			}
		})
	}
}

// TestGuardianHoldsNothing: a guardian has its own session, and no open file of the program except two pipes.
func TestGuardianHoldsNothing(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "locked"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var pid int
	g := guardian.New(func(command *exec.Cmd) error { err := command.Start(); pid = command.Process.Pid; return err }, func(*exec.Cmd) {})
	if err := g.Tell(guardian.Run{Directory: "/nowhere"}); err != nil {
		t.Fatal(err)
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	if fields := strings.Fields(string(stat)); fields[1] != "(handler-guard)" || fields[4] != fields[0] || fields[5] != fields[0] {
		t.Errorf("name, group and session are %s %s %s, of process %d", fields[1], fields[4], fields[5], pid)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root sees the files of a process that cannot be traced")
	}
	links, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/fd/*")
	if err != nil || len(links) < 3 {
		t.Fatalf("the guardian has the files %q: %v", links, err)
	}
	own := regexp.MustCompile(`^(pipe:.*|/dev/null|anon_inode:\[event.*|/sys/fs/cgroup/.*)$`) // the last two are of Go's runtime
	for _, link := range links {
		if target, _ := os.Readlink(link); !own.MatchString(target) {
			t.Errorf("the guardian has the file %s: %s", link, target)
		}
	}
	runtime.KeepAlive(g)
}

// TestGuardianIsNotTraced: only root can read the guardian's memory, not handlers of the same user.
func TestGuardianIsNotTraced(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can start a guardian of another user")
	}
	const nobody = 65534
	var pid int
	g := guardian.New(func(command *exec.Cmd) error {
		command.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
		err := command.Start()
		pid = command.Process.Pid
		return err
	}, func(*exec.Cmd) {})
	if err := g.Tell(guardian.Run{Directory: "/nowhere"}); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil || info.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Errorf("the memory of the guardian is of the user %d: %v", info.Sys().(*syscall.Stat_t).Uid, err)
	}
	runtime.KeepAlive(g)
}

// TestNoRunWithoutGuardian: if no guardian can start, no run starts.
func TestNoRunWithoutGuardian(t *testing.T) {
	none := errors.New("there are too many processes")
	starts := map[string]func(command *exec.Cmd) error{
		"it does not start":     func(*exec.Cmd) error { return none },
		"it is another program": func(command *exec.Cmd) error { command.Path = "/bin/true"; return command.Start() },
	}
	for name, start := range starts {
		if err := guardian.New(start, func(*exec.Cmd) {}).Tell(guardian.Run{Directory: "/nowhere"}); err == nil || !strings.Contains(err.Error(), "guardian of handlers") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
