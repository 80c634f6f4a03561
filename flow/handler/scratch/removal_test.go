//go:build unix

package scratch_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/conductord/conductord/flow/handler/scratch"
)

// limitedVariable makes the test binary a process that may open few files.
const limitedVariable = "SCRATCH_TEST_FILES"

// openFiles is how many files such a process may have open: Go's runtime and the testing package need some.
const openFiles = 40

// isLimited runs the test in another process that may open few files, and reports whether this is that process.
func isLimited(t *testing.T) bool {
	if os.Getenv(limitedVariable) != "" {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: openFiles, Max: openFiles}); err != nil {
			t.Fatal(err)
		}
		return true
	}
	limited := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	limited.Env = append(os.Environ(), limitedVariable+"=1")
	if said, err := limited.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	return false
}

// deepen makes nested directories without using their paths.
func deepen(t *testing.T, path string, depth int) {
	t.Helper()
	at, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	for range depth {
		if err != nil {
			t.Fatal(err)
		}
		above := at
		err = unix.Mkdirat(above, "d", 0o700)
		if err == nil {
			at, err = unix.Openat(above, "d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		}
		_ = unix.Close(above)
	}
	_ = unix.Close(at)
}

// TestRemoveDeepDirectories: the removal needs as many descriptors for 3,000 nested directories as
// for one.
func TestRemoveDeepDirectories(t *testing.T) {
	if !isLimited(t) {
		return
	}
	parent := t.TempDir()
	d := make1(t, parent)
	deepen(t, d.Path, 3000)
	sweep(t, parent, d.Remove())
}

// TestRemoveFollowsNoLinks: while directories are removed, another process replaces them by links.
// Nothing outside changes. The directories are nested deeper than this process can open files.
func TestRemoveFollowsNoLinks(t *testing.T) {
	if !isLimited(t) {
		return
	}
	const directories = 60
	parent, outside := t.TempDir(), t.TempDir()
	file := filepath.Join(outside, "file")
	d := make1(t, parent)
	work := filepath.Join(d.Path, "work")
	names := make([]string, directories)
	for i := range names {
		names[i] = filepath.Join(work, fmt.Sprintf("%04d", i))
		if err := os.MkdirAll(names[i], 0o750); err != nil {
			t.Fatal(err)
		}
		deepen(t, names[i], openFiles)
	}
	for _, err := range []error{os.WriteFile(file, nil, 0o644), os.Chmod(file, 0o644), os.Chmod(outside, 0o755),
		os.Symlink(outside, filepath.Join(work, "to-directory")), os.Symlink(file, filepath.Join(work, "to-file"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var swapping sync.WaitGroup
	stop := make(chan struct{})
	swapping.Go(func() { swap(names, outside, file, stop) })
	err := d.Remove()
	close(stop)
	swapping.Wait()
	sweep(t, parent, err)
	for path, want := range map[string]os.FileMode{outside: 0o755, file: 0o644} {
		if info, err := os.Lstat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("the mode of %s is not %v any more: %v, %v", path, want, info.Mode(), err)
		}
	}
}

// sweep removes the rest after a removal that has ended with err.
func sweep(t *testing.T, parent string, err error) {
	t.Helper()
	for ; errors.Is(err, scratch.ErrUnfinished); err = scratch.Sweep(parent, "p-") {
	}
	if err != nil {
		t.Errorf("cannot remove: %v", err)
	}
	if entries, err := os.ReadDir(parent); err != nil || len(entries) > 0 {
		t.Errorf("left are %v, %v", entries, err)
	}
}

// swap replaces the directories by links, the last first, when the removal has started.
func swap(names []string, outside, file string, stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		if info, err := os.Lstat(names[0]); err != nil || info.Mode().Perm() == 0o700 {
			break
		}
	}
	for i := len(names) - 1; i > len(names)-10; i-- {
		if os.Rename(names[i], names[i]+"-moved") == nil {
			_ = os.Symlink([]string{outside, file}[i%2], names[i])
		}
	}
}

// TestRemoveIsBounded: a process that continuously creates files does not block the removal. The
// rest is removed later.
func TestRemoveIsBounded(t *testing.T) {
	parent := t.TempDir()
	d := make1(t, parent)
	stop := make(chan struct{})
	var making, begun sync.WaitGroup
	for maker := range 4 {
		begun.Add(1)
		making.Go(func() {
			for i := 0; ; i++ {
				directory := filepath.Join(d.Path, "work", fmt.Sprint(maker, "-", i/10))
				_ = os.MkdirAll(directory, 0o700)
				_ = os.WriteFile(filepath.Join(directory, fmt.Sprint(i)), nil, 0o600)
				if i == 0 {
					begun.Done()
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	begun.Wait()
	removed := make(chan error, 1)
	go func() { removed <- d.Remove() }()
	var err error
	select {
	case err = <-removed:
	case <-time.After(30 * time.Second):
		t.Error("the removal goes on for as long as files are made")
		err = scratch.ErrUnfinished
	}
	close(stop)
	making.Wait()
	sweep(t, parent, scratch.ErrUnfinished)
	if err != nil && !errors.Is(err, scratch.ErrUnfinished) {
		t.Error(err)
	}
}
