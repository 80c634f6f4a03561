//go:build unix

package guardian

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
)

// name is the command line of a guardian. It does not contain the program's name: a command that kills all
// processes with that name must not kill the guardian first.
const name = "handler-guard"

// command is a guardian process that has not started.
func command() (*exec.Cmd, error) {
	program, err := "/proc/self/exe", error(nil) // even after the file was replaced
	if runtime.GOOS != "linux" {
		program, err = os.Executable()
	}
	return &exec.Cmd{Path: program, Args: []string{name}, Env: []string{"GOMAXPROCS=1"}, Dir: "/", SysProcAttr: &syscall.SysProcAttr{Setsid: true}}, err
}

func init() {
	if len(os.Args) == 1 && os.Args[0] == name {
		guard()
		os.Exit(0)
	}
}

// guard reads about runs until the program is dead. Then it kills the runs that have not ended.
func guard() {
	signal.Ignore()
	rename()
	forbidTracing()
	_, _ = os.Stdout.WriteString("\n") // ready
	runs := map[string]Run{}
	for from := bufio.NewReader(os.Stdin); ; {
		var run Run
		if _, err := fmt.Fscanf(from, "%d %q %q\n", &run.Group, &run.Directory, &run.Cgroup); err != nil {
			break
		}
		runs[run.Directory] = run
		if run.Group == Over {
			delete(runs, run.Directory)
		}
	}
	var homes []string
	var ending sync.WaitGroup
	for _, run := range runs {
		if run.Group > 0 {
			_ = syscall.Kill(-run.Group, syscall.SIGKILL)
		}
		if run.Cgroup != "" {
			ending.Go(func() { KillCgroup(run.Cgroup) })
		}
		homes = append(homes, run.Directory+"/")
	}
	KillAtHome(homes...)
	ending.Wait()
}
