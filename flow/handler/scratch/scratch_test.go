//go:build unix

package scratch_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/conductord/conductord/flow/handler/scratch"
)

func make1(t *testing.T, parent string) *scratch.Dir {
	t.Helper()
	d, err := scratch.Make(parent, "p-")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestSweep: Sweep removes exactly the directories that no process holds.
func TestSweep(t *testing.T) {
	parent, outside := t.TempDir(), t.TempDir()
	for _, name := range []string{"p-abandoned/locked/in", "other", "q-p-"} {
		if err := os.MkdirAll(filepath.Join(parent, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	locked, precious := filepath.Join(parent, "p-abandoned/locked"), filepath.Join(outside, "precious")
	for _, err := range []error{
		os.WriteFile(filepath.Join(locked, "in/file"), nil, 0o600), os.Chmod(locked, 0),
		os.WriteFile(filepath.Join(parent, "p-file"), nil, 0o600), os.WriteFile(precious, nil, 0o600),
		os.Symlink(outside, filepath.Join(parent, "p-link")), os.Symlink(outside, filepath.Join(parent, "p-abandoned/link")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"other", "p-file", "p-link", "q-p-"}
	held, released := make1(t, parent), make1(t, parent)
	released.Release()
	want = append(want, filepath.Base(held.Path))
	if _, err := scratch.Hold(held.Path); err == nil || !strings.Contains(err.Error(), "another process uses "+held.Path) {
		t.Errorf("held twice: %v", err)
	}
	if err := scratch.Sweep(parent, "p-"); err != nil {
		t.Error(err)
	}
	entries, err := os.ReadDir(parent)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, entry := range entries {
		got = append(got, entry.Name())
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("left are %q, want %q", got, want)
	}
	if _, err := os.Stat(precious); err != nil {
		t.Error(err)
	}
	if err := held.Remove(); err != nil {
		t.Error(err)
	}
	if _, err := scratch.Hold(held.Path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after its removal: %v", err)
	}
}

// TestMakeDuringSweep: no concurrent sweep removes a directory that Make has returned.
func TestMakeDuringSweep(t *testing.T) {
	parent := t.TempDir()
	stop := make(chan struct{})
	var sweeping, making sync.WaitGroup
	for range 2 {
		sweeping.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = scratch.Sweep(parent, "p-") // two sweeps can overlap
				}
			}
		})
	}
	for range 4 {
		making.Go(func() {
			for range 100 {
				d, err := scratch.Make(parent, "p-")
				if err != nil {
					t.Error(err)
					return
				}
				if err := os.Mkdir(filepath.Join(d.Path, "in"), 0o700); err != nil {
					t.Errorf("a directory that is held was removed: %v", err)
				}
				if err := d.Remove(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	making.Wait()
	close(stop)
	sweeping.Wait()
	if entries, err := os.ReadDir(parent); err != nil || len(entries) > 0 {
		t.Errorf("left are %v, %v", entries, err)
	}
}
