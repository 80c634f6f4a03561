//go:build unix

package handler_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/conductord/conductord/flow/handler"
	"github.com/conductord/conductord/logbook"
)

// install writes a handler: a POSIX shell script.
func install(t *testing.T, directory, name, script string) string {
	t.Helper()
	path := filepath.Join(directory, name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o755); err != nil { // independent of the umask
		t.Fatal(err)
	}
	return path
}

func open(t *testing.T, directories ...string) *handler.Set {
	t.Helper()
	set, err := handler.Open(directories...)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// TestRefusals has names and files that could start a program that is not meant as a handler.
func TestRefusals(t *testing.T) {
	directory, outside := t.TempDir(), t.TempDir()
	install(t, outside, "out", "echo out")
	rows := []struct {
		name    string
		prepare func(path string) error
		want    error
	}{
		{"", nil, logbook.ErrInvalid},
		{"../../bin/sh", nil, logbook.ErrInvalid},
		{"/bin/sh", nil, logbook.ErrInvalid},
		{"..", nil, logbook.ErrInvalid},
		{".hidden", nil, logbook.ErrInvalid},
		{"sub/handler", nil, logbook.ErrInvalid},
		{"nul\x00byte", nil, logbook.ErrInvalid},
		{"new\nline", nil, logbook.ErrInvalid},
		{"line\n", nil, logbook.ErrInvalid},
		{"Upper", nil, logbook.ErrInvalid},
		{"space between", nil, logbook.ErrInvalid},
		{"semi;colon", nil, logbook.ErrInvalid},
		{strings.Repeat("a", 65), nil, logbook.ErrInvalid},
		{"missing", nil, logbook.ErrNotFound},
		{"dangling", func(path string) error { return os.Symlink("nowhere", path) }, logbook.ErrNotFound},
		{"link-out", func(path string) error { return os.Symlink(filepath.Join(outside, "out"), path) }, logbook.ErrNotAllowed},
		{"link-up", func(path string) error {
			return os.Symlink("../"+filepath.Base(outside)+"/out", path)
		}, logbook.ErrNotAllowed},
		{"folder", func(path string) error { return os.Mkdir(path, 0o755) }, logbook.ErrNotAllowed},
		{"fifo", func(path string) error { return syscall.Mkfifo(path, 0o755) }, logbook.ErrNotAllowed},
		{"not-executable", writeMode(0o644), logbook.ErrNotAllowed},
		{"world-writable", writeMode(0o757), logbook.ErrNotAllowed},
		{"group-writable", writeMode(0o775), logbook.ErrNotAllowed},
		{"setuid", writeMode(0o755 | os.ModeSetuid), logbook.ErrNotAllowed},
		{"setgid", writeMode(0o755 | os.ModeSetgid), logbook.ErrNotAllowed},
		{"good", writeMode(0o755), nil},
		{"private", writeMode(0o700), nil},
		{"link-within", func(path string) error { return os.Symlink("good", path) }, nil},
	}
	set := open(t, directory)
	for _, row := range rows {
		if row.prepare != nil {
			if err := row.prepare(filepath.Join(directory, row.name)); err != nil {
				t.Fatal(err)
			}
		}
		if err := set.Check(row.name); !errors.Is(err, row.want) {
			t.Errorf("Check(%q) = %v, want %v", row.name, err, row.want)
		}
		if set.Has(row.name) != (row.want == nil) {
			t.Errorf("Has(%q) = %v", row.name, set.Has(row.name))
		}
	}
	if names, want := set.Names(), []string{"good", "link-within", "private"}; !slices.Equal(names, want) {
		t.Errorf("Names() = %q, want %q", names, want)
	}
}

func writeMode(mode os.FileMode) func(string) error {
	return func(path string) error {
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o600); err != nil {
			return err
		}
		return os.Chmod(path, mode)
	}
}

// TestStrangersFile refuses a file of another user. Only root can change the owner of a file.
func TestStrangersFile(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file to another user")
	}
	directory := t.TempDir()
	path := install(t, directory, "theirs", "echo 1")
	const nobody = 65534
	if err := os.Chown(path, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	if err := open(t, directory).Check("theirs"); !errors.Is(err, logbook.ErrNotAllowed) {
		t.Errorf("a stranger's file: %v, want %v", err, logbook.ErrNotAllowed)
	}
}

func TestOpenReportsEveryDirectory(t *testing.T) {
	writable, file := t.TempDir(), filepath.Join(t.TempDir(), "file")
	if err := os.Chmod(writable, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(t.TempDir(), "missing")
	_, err := handler.Open(t.TempDir(), writable, file, missing)
	if err == nil {
		t.Fatal("Open accepts directories that are not safe")
	}
	for _, directory := range []string{writable, file, missing} {
		if !strings.Contains(err.Error(), directory) {
			t.Errorf("the error does not name %s: %v", directory, err)
		}
	}
}

// TestReplaceableDirectories refuses a handler directory if other users can replace it or one of
// its parents. The check runs at opening and at each later look.
func TestReplaceableDirectories(t *testing.T) {
	mode := func(mode os.FileMode, name ...string) func(string) error {
		return func(root string) error { return os.Chmod(filepath.Join(append([]string{root}, name...)...), mode) }
	}
	stranger := func(name ...string) func(string) error {
		const nobody = 65534
		return func(root string) error {
			return os.Lchown(filepath.Join(append([]string{root}, name...)...), nobody, nobody)
		}
	}
	rows := []struct {
		name, path string
		spoil      func(root string) error
		message    string // empty: not refused
	}{
		{"itself, by everybody", "above/handlers", mode(0o757, "above", "handlers"), "its mode 0757"},
		{"itself, sticky", "above/handlers", mode(0o777|os.ModeSticky, "above", "handlers"), "its mode 0777"},
		{"parent, by everybody", "above/handlers", mode(0o757, "above"), "/above: .*mode 0757 .*chmod go-w"},
		{"parent, by its group", "above/handlers", mode(0o775, "above"), "/above: .*mode 0775"},
		{"parent, sticky", "above/handlers", mode(0o777|os.ModeSticky, "above"), ""},
		{"link, where it stands", "links/relative", mode(0o777, "links"), "/links: .*mode 0777"},
		{"link, where it leads", "links/relative", mode(0o777, "above"), "/above: .*mode 0777"},
		{"link, on the way", "links/twice", mode(0o777, "way"), "/way: .*mode 0777"},
		{"link, none of its directories", "links/twice", mode(0o755, "above"), ""},
		{"link in a sticky directory", "links/relative", mode(0o777|os.ModeSticky, "links"), ""},
		{"itself, of a stranger", "above/handlers", stranger("above", "handlers"), "its owner is neither"},
		{"parent of a stranger", "above/handlers", stranger("above"), "/above: .*its owner is neither"},
		{"link of a stranger", "links/relative", stranger("links", "relative"), "/links/relative: .*its owner is neither"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			root := t.TempDir()
			for _, directory := range []string{"above/handlers", "links", "way/in"} {
				if err := os.MkdirAll(filepath.Join(root, directory), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for link, target := range map[string]string{
				"links/relative": "../above/handlers", "links/twice": "../way/in/../on", "way/on": filepath.Join(root, "above/handlers"),
			} {
				if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
					t.Fatal(err)
				}
			}
			install(t, filepath.Join(root, "above/handlers"), "good", "echo 1")
			path := filepath.Join(root, row.path)
			set := open(t, path)
			if err := set.Check("good"); err != nil {
				t.Fatalf("before: %v", err)
			}
			if err := row.spoil(root); errors.Is(err, os.ErrPermission) {
				t.Skip("only root can give a directory to another user")
			} else if err != nil {
				t.Fatal(err)
			}
			_, opened := handler.Open(path)
			for action, err := range map[string]error{"Open": opened, "Check": set.Check("good")} {
				if row.message == "" && err != nil {
					t.Errorf("%s: %v", action, err)
				}
				if row.message != "" && (!errors.Is(err, logbook.ErrNotAllowed) || !regexp.MustCompile(row.message).MatchString(err.Error())) {
					t.Errorf("%s = %v, want %v that says %q", action, err, logbook.ErrNotAllowed, row.message)
				}
			}
		})
	}
}

// TestRoundOfLinks: a cycle of links is an error.
func TestRoundOfLinks(t *testing.T) {
	root := t.TempDir()
	for link, target := range map[string]string{"a": "b", "b": "a"} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := handler.Open(filepath.Join(root, "a")); err == nil {
		t.Error("a round of links can be opened")
	}
}

// TestFirstDirectoryCounts: a broken handler is not silently replaced by a handler of the same
// name.
func TestFirstDirectoryCounts(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	install(t, second, "both", "echo 2")
	install(t, second, "only", "echo 2")
	if err := os.Chmod(install(t, first, "both", "echo 1"), 0o777); err != nil {
		t.Fatal(err)
	}
	set := open(t, first, second)
	if err := set.Check("both"); !errors.Is(err, logbook.ErrNotAllowed) {
		t.Errorf("Check(both) = %v, want %v", err, logbook.ErrNotAllowed)
	}
	if names := set.Names(); !slices.Equal(names, []string{"only"}) {
		t.Errorf("Names() = %q", names)
	}
	if err := set.Check("none"); err == nil || !strings.Contains(err.Error(), first+", "+second) {
		t.Errorf("the error does not name the directories: %v", err)
	}
}
