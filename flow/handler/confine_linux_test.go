package handler_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/conductord/conductord/flow/handler"
	"github.com/conductord/conductord/logbook"
)

// workplaces is a directory for working directories that every user can access.
func workplaces(t *testing.T) string {
	t.Helper()
	directory := t.TempDir()
	for _, path := range []string{directory, filepath.Dir(directory)} {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return directory
}

func confine(t *testing.T, c handler.Confinement, directory string) handler.Option {
	t.Helper()
	if c.User != "" && os.Geteuid() != 0 {
		t.Skip("only root can run handlers as another user")
	}
	if err := c.Check(); err != nil && (c.Cgroups || strings.Contains(err.Error(), "CAP_SYS_RESOURCE")) {
		t.Skipf("this machine cannot: %v", err)
	}
	option, err := handler.Confine(c, directory)
	if err != nil {
		t.Fatal(err)
	}
	return option
}

// TestConfinement checks each part of the confinement from inside a handler.
func TestConfinement(t *testing.T) {
	status := func(field string) string {
		return `printf '"%s"' "$(sed -n 's/^` + field + `:[[:space:]]*//p' /proc/self/status | tr '\t' ' ')"`
	}
	// The orphan has no environment variable that could identify it.
	leaves := `env -i setsid sleep 600 </dev/null >/dev/null 2>&1 3>&- & echo $!`
	for _, row := range []struct {
		name, script string
		confinement  handler.Confinement
		want         string
	}{
		{"nothing", status("NoNewPrivs"), handler.Confinement{}, `"0"`},
		{"no new privileges", status("NoNewPrivs"), handler.Confinement{NoNewPrivileges: true}, `"1"`},
		{"a user", status("Uid"), handler.Confinement{User: "nobody"}, `"65534 65534 65534 65534"`},
		{"a user's groups", status("Groups"), handler.Confinement{User: "nobody"}, `"65534 "`},
		{"a user at home", `umask 077; mkdir a; echo 7 >a/b; cat "$HOME/a/b"`, handler.Confinement{User: "nobody"}, `7`},
		{"open files", `ulimit -n`, handler.Confinement{OpenFiles: 64}, `64`},
		{"the size of files", `head -c 9999 /dev/zero >x; wc -c <x`, handler.Confinement{FileSize: 4096}, `4096`},
		{"a user without new privileges", status("NoNewPrivs"), handler.Confinement{User: "nobody", NoNewPrivileges: true}, `"1"`},
		{"all of that", `[ "$(id -u)" = 65534 ] && ulimit -n`,
			handler.Confinement{User: "nobody", NoNewPrivileges: true, OpenFiles: 64, FileSize: 4096}, `64`},
		{"cgroups", leaves, handler.Confinement{Cgroups: true}, "dead"},
		{"a user with cgroups", leaves, handler.Confinement{User: "nobody", NoNewPrivileges: true, Cgroups: true}, "dead"},
		{"limits with cgroups", leaves, handler.Confinement{NoNewPrivileges: true, OpenFiles: 64, Cgroups: true}, "dead"},
	} {
		t.Run(row.name, func(t *testing.T) {
			directory, places := t.TempDir(), workplaces(t)
			install(t, directory, "says", row.script)
			option := confine(t, row.confinement, places)
			for range 3 {
				c := call(nil)
				result, err := open(t, directory).Task("says", "", option).Execute(t.Context(), c)
				if err != nil {
					said, _ := c.Stderr()
					t.Fatalf("%v: %s", err, said)
				}
				answer := string(result.(json.RawMessage))
				if pid, err := strconv.Atoi(answer); err == nil && row.want == "dead" && dead(pid) {
					answer = "dead"
				}
				if answer != row.want {
					t.Errorf("it says %s, want %s", answer, row.want)
				}
			}
			if left, err := os.ReadDir(places); err != nil || len(left) > 0 {
				t.Errorf("working directories are left: %v %v", left, err)
			}
		})
	}
}

// TestImpossibleConfinements are refused at the start.
func TestImpossibleConfinements(t *testing.T) {
	for _, row := range []struct {
		confinement handler.Confinement
		want        string
	}{
		{handler.Confinement{Memory: 1 << 20}, "without cgroups"},
		{handler.Confinement{Processes: 10}, "without cgroups"},
		{handler.Confinement{User: "no-such-user"}, "no-such-user"},
	} {
		_, err := handler.Confine(row.confinement, t.TempDir())
		if checked := row.confinement.Check(); err == nil || checked == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%+v: %v, and when checked %v, want %q", row.confinement, err, checked, row.want)
		}
	}
}

// confinedVariable makes the test binary a daemon that runs one handler,
// confined; it holds the confinement, and two directories.
const confinedVariable = "HANDLER_TEST_CONFINED"

type confinedDaemon struct {
	Confinement        handler.Confinement
	Handlers, Workings string
}

// command runs the handler "does" in another process.
func (d confinedDaemon) command(t *testing.T, test string) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	daemon := exec.Command(os.Args[0], "-test.run=^"+test+"$", "-test.v")
	daemon.Env = append(os.Environ(), confinedVariable+"="+string(text))
	return daemon
}

// isConfinedDaemon runs the handler "does" if this process is the daemon of a test.
func isConfinedDaemon(t *testing.T) bool {
	text := os.Getenv(confinedVariable)
	if text == "" {
		return false
	}
	var d confinedDaemon
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatal(err)
	}
	option, err := handler.Confine(d.Confinement, d.Workings)
	if err != nil {
		fmt.Println("cannot confine:", err)
		return true
	}
	_, err = open(t, d.Handlers).Task("does", "", option).Execute(t.Context(), call(nil))
	var failure *logbook.Failure
	if errors.As(err, &failure) {
		fmt.Println("failed:", failure.Message)
	}
	return true
}

// TestLeftByAKilledDaemon: the guardian ends processes that handlers have left outside their
// groups. If the guardian was killed too, the next daemon ends them at its start.
func TestLeftByAKilledDaemon(t *testing.T) {
	if isConfinedDaemon(t) {
		return
	}
	for _, row := range []struct {
		name        string
		confinement handler.Confinement
		environment string
		guarded     bool
	}{
		{"known by its home", handler.Confinement{}, "", false},
		{"known by its cgroup", handler.Confinement{Cgroups: true}, "env -i", false},
		{"known by its home to the guardian", handler.Confinement{}, "", true},
		{"known by its cgroup to the guardian", handler.Confinement{Cgroups: true}, "env -i", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			if err := row.confinement.Check(); err != nil {
				t.Skipf("there are no cgroups to use: %v", err)
			}
			d := confinedDaemon{Confinement: row.confinement, Handlers: t.TempDir(), Workings: t.TempDir()}
			pid := filepath.Join(d.Handlers, "pid")
			install(t, d.Handlers, "does", row.environment+` setsid sleep 600 </dev/null >/dev/null 2>&1 3>&- & echo $! >`+pid+`; sleep 600`)
			daemon := d.command(t, "TestLeftByAKilledDaemon")
			if err := daemon.Start(); err != nil {
				t.Fatal(err)
			}
			waitFor(t, "the handler has begun", func() bool { return len(numbers(pid)) > 0 && isSleep(numbers(pid)[0]) })
			if !row.guarded {
				if err := daemon.Process.Signal(syscall.SIGSTOP); err != nil { // so that it starts no other guardian
					t.Fatal(err)
				}
				end(t, guardianOf(daemon.Process.Pid))
			}
			if err := daemon.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = daemon.Wait()
			left := numbers(pid)[0]
			if !row.guarded {
				if dead(left) {
					t.Fatal("it left nothing")
				}
				confine(t, row.confinement, d.Workings)
			}
			waitFor(t, "what it left ends", func() bool { return dead(left) }) // a killed process needs a moment to end
		})
	}
}

// isSleep reports whether a process has become the program sleep. For a moment before, its
// environment can be empty and does not identify it.
func isSleep(pid int) bool {
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return string(name) == "sleep\n"
}

// TestCgroupLimits checks the memory and the processes of handlers.
func TestCgroupLimits(t *testing.T) {
	if isConfinedDaemon(t) {
		return
	}
	for _, row := range []struct {
		name, script string
		confinement  handler.Confinement
		want         string
	}{
		{"memory", `head -c 300m /dev/zero | tail -c 200m | wc -c`, handler.Confinement{Cgroups: true, Memory: 64 << 20}, "killed by signal 9"},
		{"processes", `for i in 1 2 3 4 5 6 7 8 9; do sleep 9 & done; echo 1`, handler.Confinement{Cgroups: true, Processes: 5}, "ended with status 2"},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := confinedDaemon{Confinement: row.confinement, Handlers: t.TempDir(), Workings: t.TempDir()}
			install(t, d.Handlers, "does", row.script)
			said, err := d.command(t, "TestCgroupLimits").CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, said)
			}
			if strings.Contains(string(said), "cannot confine:") {
				t.Skipf("there are no cgroups to use: %s", said)
			}
			if !strings.Contains(string(said), row.want) {
				t.Errorf("it said %s, want %q", said, row.want)
			}
		})
	}
}
