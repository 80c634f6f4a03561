//go:build linux

package processes

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

const labEnv = "CONDUCTORD_LAB" // set in the process that is in the lab

// tools are the programs that a lab needs, and their Debian packages.
var tools = map[string]string{
	"ip": "iproute2", "iptables": "iptables", "nsenter": "util-linux", "mount": "mount", "umount": "mount", "mkfs.ext4": "e2fsprogs",
}

// Supported returns the reason why this machine cannot have a lab; nil: it can.
func Supported() error {
	if os.Geteuid() != 0 {
		return errors.New("network namespaces and loop mounts need root")
	}
	for tool, pack := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is not installed (Debian: %s)", tool, pack)
		}
	}
	try := exec.Command("true")
	try.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
	if err := try.Run(); err != nil {
		return fmt.Errorf("cannot make namespaces: %w", err)
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		return fmt.Errorf("there are no loop devices: %w", err)
	}
	return nil
}

// InLab reports whether this process is in a lab.
func InLab() bool { return os.Getenv(labEnv) != "" }

// EnterLab runs this program again in its own network and mount namespaces, and returns its
// exit status. The kernel removes both, with all links and mounts, when the last process in
// them ends.
func EnterLab(env ...string) (status int, err error) {
	program, err := os.Executable()
	if err != nil {
		return 0, err
	}
	again := exec.Command(program, os.Args[1:]...)
	again.Stdin, again.Stdout, again.Stderr = os.Stdin, os.Stdout, os.Stderr
	again.Env = append(append(os.Environ(), env...), labEnv+"=yes")
	again.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // the end of the thread that started it would end it
	defer runtime.UnlockOSThread()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if err := again.Start(); err != nil {
		return 0, fmt.Errorf("cannot enter a lab: %w", err)
	}
	go func() { // ends with this process
		for s := range signals {
			_ = again.Process.Signal(s)
		}
	}()
	err = again.Wait()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = nil
	}
	return again.ProcessState.ExitCode(), err
}

// bridge is the harness's own address in the lab. Nodes have those below it.
const bridge = "10.9.0.254"

func addressOf(i int) string { return "10.9.0." + strconv.Itoa(i+1) }

// furnish prepares the namespaces that EnterLab has made.
func furnish() error {
	const private = syscall.MS_REC | syscall.MS_PRIVATE // mounts stay in here
	if err := syscall.Mount("", "/", "", private, ""); err != nil {
		return fmt.Errorf("cannot make the lab's mounts its own: %w", err)
	}
	return runAll(
		"ip link set lo up",
		"ip link add name lab type bridge",
		"ip address add "+bridge+"/24 dev lab",
		"ip link set lab up",
	)
}

// place is a network namespace with one address. It exists as long as its holder, a process
// inside that ends with the harness.
type place struct {
	address string
	holder  *exec.Cmd
	hold    io.Closer // ends the holder
}

func newPlace(i int) (*place, error) {
	holder := exec.Command("cat") // reads until this process is gone
	holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	hold, err := holder.StdinPipe()
	if err == nil {
		err = holder.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("cannot make a network namespace: %w", err)
	}
	p := &place{address: addressOf(i), holder: holder, hold: hold}
	outer, inner := fmt.Sprintf("node%d", i), fmt.Sprintf("inner%d", i)
	err = runAll(
		fmt.Sprintf("ip link add %s type veth peer name %s netns %d", outer, inner, holder.Process.Pid),
		fmt.Sprintf("ip link set %s master lab up", outer),
	)
	for _, line := range []string{
		"ip link set lo up",
		"ip address add " + p.address + "/24 dev " + inner,
		"ip link set " + inner + " up",
	} {
		if err == nil {
			err = p.run(line)
		}
	}
	if err != nil {
		p.leave()
		return nil, err
	}
	return p, nil
}

// run runs a command in the namespace.
func (p *place) run(line string) error { return runAll(p.enter() + " " + line) }

// enter is the command before another that runs that in the namespace.
func (p *place) enter() string { return "nsenter --net=" + p.namespace() }

func (p *place) namespace() string { return fmt.Sprintf("/proc/%d/ns/net", p.holder.Process.Pid) }

// deafTo drops what comes from an address.
func (p *place) deafTo(from string) error {
	return p.run("iptables -w -I INPUT -s " + from + " -j DROP")
}

func (p *place) hear() error { return p.run("iptables -w -F INPUT") }

// inhabitants are the processes in the namespace, but for its holder and this process: the kernel reports a process
// where its first thread is, and that can be a thread that has joined the namespace (see join).
func (p *place) inhabitants() []int {
	own, err := os.Readlink(p.namespace())
	if err != nil {
		return nil
	}
	entries, _ := os.ReadDir("/proc")
	var pids []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == p.holder.Process.Pid || pid == os.Getpid() {
			continue
		}
		if theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid)); err == nil && theirs == own {
			pids = append(pids, pid)
		}
	}
	return pids
}

// leave ends the namespace and all that runs in it.
func (p *place) leave() {
	for _, pid := range p.inhabitants() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	_ = p.hold.Close()
	_ = p.holder.Wait()
}

// runAll runs commands whose words hold no spaces, until one fails.
func runAll(lines ...string) error {
	for _, line := range lines {
		words := strings.Fields(line)
		if output, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("cannot run %s: %w: %s", line, err, strings.TrimSpace(string(output)))
		}
	}
	return nil
}
