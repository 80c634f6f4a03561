package test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/conductord/conductord/internal/longtest"
)

// tutorialPaths are the pages of the tutorial, in order: each continues where the last one ended.
var tutorialPaths = []string{"docs/tutorial.md", "docs/tutorial-repair.md", "docs/tutorial-waiting.md"}

const (
	// elsewhereMark precedes a block whose last command runs until it is interrupted.
	elsewhereMark = "<!-- in another terminal -->"
	// lookTime limits the time for which a read-only block is repeated until its output matches the
	// page.
	lookTime = 30 * time.Second
	// The page uses the ports of `conductord dev`; the test cannot.
	devHost, devPort = "127.0.0.1", 7070
)

// looking matches blocks that change nothing, and can therefore be repeated.
var looking = regexp.MustCompile(`^(?:(?:conductord (?:flow show|job explain|job get|job list|cluster status)|cat|tail) [^\n]*\n)+$`)

// TestTutorial runs the blocks of the tutorial's pages in an empty directory, in order, and
// compares the output with the pages, except for ids, times and progress.
func TestTutorial(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	if _, err := exec.LookPath("awk"); err != nil {
		t.Skip("the tutorial needs awk")
	}
	dir := t.TempDir()
	reader := tutorialReader{dir: dir, shell: startTerminal(t, dir, ""), moved: portsInARow(t)}
	for _, path := range tutorialPaths {
		page := documents(t)[path]
		shown := reader.types(t, path, page)
		if shown == page {
			continue
		}
		if err := os.WriteFile(filepath.Join("..", path), []byte(shown), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const fewest = 15
	if reader.typed < fewest {
		t.Fatalf("found only %d blocks to type", reader.typed)
	}
}

// tutorialReader runs the blocks of the pages.
type tutorialReader struct {
	dir   string
	shell *terminal
	moved string // address of the first node
	typed int    // blocks
}

// types types the blocks of a page. It returns the page, with -rewrite as it should be.
func (r *tutorialReader) types(t *testing.T, path, page string) string {
	t.Helper()
	lines, blocks, shown := strings.Split(page, "\n"), blocksOf(path, page), page
	patient := lookTime
	if *rewrite {
		patient = lookTime / 10 // the expected output is not known yet
	}
	for i, b := range blocks {
		if b.language != "sh" {
			continue
		}
		r.typed++
		text := movePorts(b.text, r.moved)
		var got string
		if elsewhere := lines[b.line-3] == elsewhereMark; elsewhere {
			text = strings.Replace(text, "conductord dev", "exec conductord dev --api-listen "+r.moved, 1)
			got = startTerminal(t, r.dir, text).untilQuiet()
		} else {
			got = r.shell.run(t, b, text)
		}
		if i+1 == len(blocks) || blocks[i+1].language != "text" {
			continue
		}
		want := blocks[i+1]
		for end := time.Now().Add(patient); plain(got, r.moved) != plain(want.text, r.moved) && looking.MatchString(b.text) && time.Now().Before(end); {
			got = r.shell.run(t, b, text)
		}
		switch {
		case plain(got, r.moved) == plain(want.text, r.moved):
		case *rewrite:
			from := fmt.Sprintf("%s\n```\n\n```text\n%s```", strings.TrimSuffix(b.text, "\n"), want.text)
			to := fmt.Sprintf("%s\n```\n\n```text\n%s```", strings.TrimSuffix(b.text, "\n"), backPorts(progress.ReplaceAllString(got, ""), r.moved))
			shown = strings.Replace(shown, from, to, 1)
		default:
			t.Errorf("%s shows\n%s\nand there is\n%s\n(with -rewrite, this test writes what there is)", want, want.text, got)
		}
	}
	return shown
}

// Texts that differ from run to run, and their replacements.
var (
	progress = regexp.MustCompile(`(?m)^\S+ (?:flow )?\S+ (?:pending|running|retrying|success|failure|reverting|reverted|revert_failure|nothing to undo)\b.*\n`)
	varying  = []struct {
		what *regexp.Regexp
		with string
	}{
		{regexp.MustCompile(`[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "ID"},
		{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "TIME"},
		{regexp.MustCompile(`(pid|kill -9) \d+`), "$1 PID"},
		{regexp.MustCompile(`not yet(?: \(\d+×\))?, again (?:in \d+ m?s|now)`), "not yet"},
		{regexp.MustCompile(`\b\d+(?:\.\d+)?(?:µs|ms|s)\b`), "TOOK"},
		{regexp.MustCompile(` by \S+@\S+`), " by ME"},
		{regexp.MustCompile(`conductord v?[^ ]*, ready`), "conductord VERSION, ready"},
		{regexp.MustCompile(`[ \t]+`), " "},
	}
)

// plain replaces the varying parts of an answer.
func plain(text, moved string) string {
	text = progress.ReplaceAllString(backPorts(text, moved), "")
	for _, v := range varying {
		text = v.what.ReplaceAllString(text, v.with)
	}
	return strings.TrimSpace(text)
}

// TestTutorialCanBeWrong checks that the comparison above finds differences.
func TestTutorialCanBeWrong(t *testing.T) {
	const shown = "  ✓ ship  success  9ms  attempt 2  → 3 at 127.0.0.1:7071\n"
	for seen, same := range map[string]bool{
		"2026-11-24T14:00:30Z ship running 1s\n  ✓ ship   success  12.5s  attempt 2  → 3 at 127.0.0.1:12001\n": true,
		"  ✓ ship  success  9ms  attempt 1  → 3 at 127.0.0.1:12001\n":                                          false,
		"  ✓ ship  success  9ms  attempt 2  → 4 at 127.0.0.1:12001\n":                                          false,
		"  ✓ ship  reverted  9ms  attempt 2  → 3 at 127.0.0.1:12001\n":                                         false,
		"": false,
	} {
		const moved = "127.0.0.1:12000"
		if (plain(seen, moved) == plain(shown, moved)) != same {
			t.Errorf("seen: %s", seen)
		}
	}
}

// movePorts replaces the ports of the page by the ports of the test.
func movePorts(text, moved string) string { return portReplacer(moved, false).Replace(text) }

func backPorts(text, moved string) string { return portReplacer(moved, true).Replace(text) }

func portReplacer(moved string, back bool) *strings.Replacer {
	host, port, _ := net.SplitHostPort(moved)
	first, _ := strconv.Atoi(port)
	var pairs []string
	for i := range 3 {
		page, test := fmt.Sprintf("%s:%d", devHost, devPort+i), fmt.Sprintf("%s:%d", host, first+i)
		if back {
			page, test = test, page
		}
		pairs = append(pairs, page, test)
	}
	return strings.NewReplacer(pairs...)
}

// terminal is a shell, with its output and the output of its commands.
type terminal struct {
	dir   string
	stdin io.Writer
	lines chan string // closed at its end
}

// startTerminal starts a shell in a directory, which runs a script or later commands. It is
// interrupted at the end of the test.
func startTerminal(t *testing.T, dir, script string) *terminal {
	t.Helper()
	args := []string{"-u"}
	if script != "" {
		args = []string{"-euc", script}
	}
	return startShell(t, dir, exec.Command("sh", args...), script)
}

// startShell is startTerminal by a command; script is what the command runs, or empty.
func startShell(t *testing.T, dir string, command *exec.Cmd, script string) *terminal {
	t.Helper()
	command.Dir = dir
	command.Env = append(os.Environ(), "PATH="+filepath.Dir(binary)+string(os.PathListSeparator)+os.Getenv("PATH"))
	stdin, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	command.Stderr = command.Stdout
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	s := &terminal{dir: dir, stdin: stdin, lines: make(chan string, 1_000)}
	go func() { // ends with the shell
		defer close(s.lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			s.lines <- scanner.Text() + "\n"
		}
	}()
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGINT)
		_ = stdin.Close()
		for range s.lines { // until its end
		}
		if err := command.Wait(); err != nil && script != "" {
			t.Errorf("%q, interrupted: %v", script, err)
		}
	})
	return s
}

// run runs a block that must end with status 0, and returns its output.
func (s *terminal) run(t *testing.T, b block, text string) string {
	t.Helper()
	said, status := s.types(t, b, text)
	if status != 0 {
		t.Fatalf("%s ends with status %d\n%s", b, status, said)
	}
	return said
}

// types is run for any expected status.
func (s *terminal) types(t *testing.T, b block, text string) (string, int) {
	t.Helper()
	const mark = "=== end of block: "
	typed := filepath.Join(t.TempDir(), "block")
	if err := os.WriteFile(typed, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(s.stdin, ". '%s' </dev/null\necho '%s'$?\n", typed, mark)
	var said strings.Builder
	late := time.After(patience)
	for {
		select {
		case line, more := <-s.lines:
			status, ended := strings.CutPrefix(line, mark)
			switch {
			case !more:
				t.Fatalf("%s ends the shell:\n%s", b, &said)
			case ended:
				code, err := strconv.Atoi(strings.TrimSpace(status))
				if err != nil {
					t.Fatal(err)
				}
				return said.String(), code
			}
			said.WriteString(line)
		case <-late:
			t.Fatalf("%s has not ended within %v:\n%s", b, patience, &said)
		}
	}
}

// untilQuiet returns the output of an endless command, up to the line with the next command to
// type.
func (s *terminal) untilQuiet() string {
	var said strings.Builder
	for line := range s.lines {
		said.WriteString(line)
		if strings.HasPrefix(line, " ") {
			break
		}
	}
	return said.String()
}
