package test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/conductord/conductord/internal/longtest"
)

const threeMachinesPath = "docs/three-machines.md"

// machine is the target of the page's ssh and scp: a process that holds namespaces, or only an
// address of this machine.
type machine struct {
	enter   string // prefix of commands on this machine; empty: none
	address string
	root    string // root of its files; empty: /
}

// linesMark precedes a block whose lines each run until they are interrupted.
const linesMark = "<!-- each line in another terminal -->"

// TestThreeMachines runs the blocks of docs/three-machines.md: on four machines made of
// namespaces if it may make them, otherwise on three loopback addresses. Scripts replace ssh
// and scp.
func TestThreeMachines(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	dir := t.TempDir()
	machines, enter := machinesOfNamespaces(t, dir)
	if machines == nil {
		machines, enter = machinesOfLoopback(t, dir), ""
	}
	if machines == nil {
		t.Skip("the page needs root and ip for network namespaces, or the addresses 127.0.0.2 to 127.0.0.4 with free ports 7070 and 7080")
	}
	writeRemoteCommands(t, dir, machines)
	var addresses []string
	for i, m := range machines {
		addresses = append(addresses, fmt.Sprintf("10.0.0.%d", i+1), m.address)
	}
	here := strings.NewReplacer(addresses...)
	work := filepath.Join(dir, "work")
	if data, err := os.ReadFile(binary); err != nil || os.Mkdir(work, 0o755) != nil || os.WriteFile(filepath.Join(work, "conductord"), data, 0o755) != nil {
		t.Fatal("cannot copy the program: ", err)
	}
	path := "export PATH=" + filepath.Join(dir, "bin") + ":$PATH; exec " + enter
	shell := startShell(t, work, exec.Command("sh", "-c", path+"sh -u"), "")
	page := documents(t)[threeMachinesPath]
	lines, blocks := strings.Split(page, "\n"), blocksOf(threeMachinesPath, page)
	typed := 0
	for i, b := range blocks {
		if b.language != "sh" {
			continue
		}
		typed++
		text, want := here.Replace(b.text), ""
		if i+1 < len(blocks) && blocks[i+1].language == "text" {
			want = here.Replace(blocks[i+1].text)
		}
		if lines[b.line-3] == linesMark {
			for line := range strings.Lines(text) {
				startServing(t, work, path+line)
			}
			continue
		}
		// A node that has just started is not ready, so the block can be repeated.
		again := strings.Contains(text, "access save") || strings.HasSuffix(text, "cluster status\n") || text == "./conductord cluster check\n"
		for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
			said, status := shell.types(t, b, text)
			if (status == 0 || want != "") && looksLike(said, want) {
				break
			}
			if !again || time.Now().After(end) {
				t.Fatalf("%s ends with status %d. It shows\n%s\nand there is\n%s", b, status, want, said)
			}
		}
	}
	const blocksOfPage = 11
	if typed != blocksOfPage {
		t.Errorf("found %d blocks to type, want %d", typed, blocksOfPage)
	}
}

// startServing runs a command that serves until the end of the test.
func startServing(t *testing.T, dir, script string) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command("sh", "-c", script)
	command.Dir, command.Stdout, command.Stderr = dir, log, log
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		if said, err := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("%s: %v\n%s", script, err, said[max(0, len(said)-4<<10):])
		}
	})
	eventually(t, script+" serves", func() bool {
		said, err := os.ReadFile(log.Name())
		return err == nil && bytes.Contains(said, []byte("serving:"))
	})
}

// looksLike compares an answer with a shown one, in which … matches anything.
func looksLike(got, want string) bool {
	squeeze := func(text string) string {
		return strings.TrimSpace(regexp.MustCompile(`[ \t]+`).ReplaceAllString(text, " "))
	}
	pattern := strings.ReplaceAll(regexp.QuoteMeta(squeeze(want)), anything, "(?s:.*)")
	return want == "" || regexp.MustCompile("^"+pattern+"$").MatchString(squeeze(got))
}

// machinesOfNamespaces makes three machines, and a network for the reader, which enter joins. They
// end with the test; nil: they cannot be made.
func machinesOfNamespaces(t *testing.T, dir string) (machines []machine, enter string) {
	if _, err := exec.LookPath("ip"); err != nil || os.Geteuid() != 0 {
		return nil, ""
	}
	hold := func() string {
		holder := exec.Command("cat")
		holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID}
		stdin, err := holder.StdinPipe()
		if err == nil {
			err = holder.Start()
		}
		if err != nil {
			t.Logf("no namespaces: %v", err)
			return ""
		}
		t.Cleanup(func() { _ = stdin.Close(); _ = holder.Wait() }) // which ends all processes in it
		return fmt.Sprintf("nsenter --target %d --net ", holder.Process.Pid)
	}
	reader := hold()
	if reader == "" || !works(t, reader+"sh -euc 'ip link set lo up; ip link add lab type bridge; ip address add 10.0.0.254/24 dev lab; ip link set lab up'") {
		return nil, ""
	}
	for i := range 3 {
		m := machine{enter: hold() + "--mount --pid ", address: fmt.Sprintf("10.0.0.%d", i+1)}
		pid := regexp.MustCompile(`\d+`).FindString(m.enter)
		etc := filepath.Join(dir, "etc"+pid)
		if pid == "" || !works(t, m.enter+"sh -euc 'mount --make-rprivate /; mount -t proc proc /proc; cp -a /etc "+etc+"; rm -rf "+etc+"/conductord; mount --bind "+etc+" /etc;"+
			" mount -t tmpfs tmpfs /var/lib; mount -t tmpfs tmpfs /usr/local/bin'") ||
			!works(t, reader+fmt.Sprintf("sh -euc 'ip link add node%d type veth peer name inner netns /proc/%s/ns/net; ip link set node%d master lab up'", i, pid, i)) ||
			!works(t, m.enter+"sh -euc 'ip link set lo up; ip address add "+m.address+"/24 dev inner; ip link set inner up'") {
			return nil, ""
		}
		machines = append(machines, m)
	}
	return machines, reader
}

func works(t *testing.T, script string) bool {
	said, err := exec.Command("sh", "-c", script).CombinedOutput()
	if err != nil {
		t.Logf("%s: %v: %s", script, err, said)
	}
	return err == nil
}

// machinesOfLoopback are three addresses of this machine, each with a directory for files; nil: a
// port is in use, or the addresses do not work.
func machinesOfLoopback(t *testing.T, dir string) (machines []machine) {
	for i := range 3 {
		m := machine{address: fmt.Sprintf("127.0.0.%d", i+2), root: filepath.Join(dir, fmt.Sprintf("machine%d", i+1))}
		for _, port := range []string{"7070", "7080"} {
			listener, err := net.Listen("tcp", net.JoinHostPort(m.address, port))
			if err != nil {
				return nil
			}
			_ = listener.Close()
		}
		for _, below := range []string{"/etc", "/usr/local/bin", "/var/lib"} {
			if err := os.MkdirAll(m.root+below, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		machines = append(machines, m)
	}
	return machines
}

// writeRemoteCommands writes the ssh and the scp that go to the machines.
func writeRemoteCommands(t *testing.T, dir string, machines []machine) {
	t.Helper()
	var where bytes.Buffer
	for _, m := range machines {
		fmt.Fprintf(&where, "root@%s) enter='%s' root='%s';;\n", m.address, m.enter, m.root)
	}
	head := "set -eu\nat() { case $1 in\n" + where.String() + "*) echo \"no machine $1\" >&2; exit 1;; esac; }\n"
	writeHandler(t, filepath.Join(dir, "bin"), "ssh", head+`at "$1"; shift
command=$(echo "$*" | sed "s#/etc/conductord#$root/etc/conductord#g; s#/var/lib#$root/var/lib#g")
exec $enter env PATH="$root/usr/local/bin:$PATH" sh -c "exec $command"
`)
	writeHandler(t, filepath.Join(dir, "bin"), "scp", head+`recursive=
if [ "$1" = -r ]; then recursive=-r; shift; fi
at "${2%%:*}"
$enter cp $recursive "$PWD/$1" "$root${2#*:}"
if [ "$root" ] && [ -e "$root/etc/conductord/conductord.toml" ]; then
	sed -i "s#/var/lib#$root/var/lib#" "$root/etc/conductord/conductord.toml"
fi
`)
}
