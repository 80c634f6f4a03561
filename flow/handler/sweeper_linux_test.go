package handler_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/conductord/conductord/flow/handler"
)

// TestProcessThatGoesOnMakingFiles: a leftover process that keeps making files in the working directory does
// not delay the step. The directory is removed at once if the process runs as another user, and otherwise
// after its end.
func TestProcessThatGoesOnMakingFiles(t *testing.T) {
	for _, row := range []struct {
		name        string
		confinement handler.Confinement
	}{
		{"as this user", handler.Confinement{}},
		{"as another user", handler.Confinement{User: "nobody"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			directory, places := t.TempDir(), workplaces(t)
			file := filepath.Join(places, "pid") // the handler's user may write to it
			if err := errors.Join(os.WriteFile(file, nil, 0o666), os.Chmod(file, 0o666)); err != nil {
				t.Fatal(err)
			}
			// The process can be found by neither its group nor its home.
			install(t, directory, "leaves", `env -i setsid sh -c 'make() { while :; do head -c 9999 /dev/zero | split -a 4 -b 1 - $1; done; }
				make a & make b & make c & make d' </dev/null >/dev/null 2>&1 3>&- & echo $! >`+file+`
				for prefix in a b c d; do while [ ! -e ${prefix}aaaa ]; do :; done; done`)
			option := confine(t, row.confinement, places)
			ended := make(chan error, 1)
			set := open(t, directory)
			go func() {
				_, err := set.Task("leaves", "", option).Execute(t.Context(), call(nil))
				ended <- err
			}()
			waitFor(t, "the handler has begun", func() bool { return len(numbers(file)) > 0 })
			pid := numbers(file)[0]
			kill := func() { _ = syscall.Kill(-pid, syscall.SIGKILL) }
			defer kill()
			select {
			case err := <-ended:
				if err != nil {
					t.Fatal(err)
				}
			case <-time.After(soon):
				kill()
				<-ended
				t.Fatal("the step goes on for as long as the process makes files")
			}
			if dead(pid) {
				t.Error("it left nothing")
			}
			empty := func() bool { left, err := os.ReadDir(places); return err == nil && len(left) == 1 }
			if row.confinement.User != "" {
				waitFor(t, "the directory is removed while the process lives", empty)
			}
			kill()
			waitFor(t, "the directory is removed when the process has ended", empty)
		})
	}
}
