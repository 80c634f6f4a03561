//go:build unix

package handler_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/conductord/conductord/flow/handler"
	"github.com/conductord/conductord/logbook"
)

// TestKilledImportContinues runs the handler of docs/checkpoints.md, and kills it with SIGKILL after every few
// checkpoints. The next attempt continues after the last recorded row, so each row is imported once.
func TestKilledImportContinues(t *testing.T) {
	const rows, each = 20, 3 // it is killed after each third row
	page, err := os.ReadFile("../../docs/checkpoints.md")
	if err != nil {
		t.Fatal(err)
	}
	_, script, _ := strings.Cut(string(page), "```sh\n#!/bin/sh\n")
	script, _, found := strings.Cut(script, "```")
	if !found {
		t.Fatal("docs/checkpoints.md has no handler")
	}
	directory, data := t.TempDir(), t.TempDir()
	var lines, want []string
	for row := range rows {
		lines, want = append(lines, fmt.Sprintf("row %d\n", row)), append(want, fmt.Sprintf("row %d", row))
	}
	if err := os.WriteFile(filepath.Join(data, "rows.csv"), []byte(strings.Join(lines, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	script = strings.NewReplacer("/srv/rows.csv", data+"/rows.csv", `import-row "$line"`, `echo "$line" >>`+data+"/imported").Replace(script)
	install(t, directory, "import", "echo $$ >"+data+"/pid\n"+script)
	saved, recorded, kills := logbook.Values{}, 0, 0
	keep := func(_ context.Context, checkpoint logbook.Checkpoint) error {
		saved[checkpoint.Name] = checkpoint.Value
		if recorded++; recorded%each > 0 {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(data, "pid"))
		if err != nil {
			return err
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			return err
		}
		kills++
		// The whole group: the loop runs in a process of its own, and would otherwise import another row before it ends.
		return syscall.Kill(-pid, syscall.SIGKILL)
	}
	task := open(t, directory).Task("import", "", handler.Scratch(t.TempDir()))
	for attempt := 1; ; attempt++ {
		c := call(nil)
		c.Attempt = attempt
		c.KeepCheckpoints(maps.Clone(saved), nil, keep)
		if _, err = task.Execute(t.Context(), c); err == nil || attempt > rows {
			break
		}
	}
	imported, readErr := os.ReadFile(filepath.Join(data, "imported"))
	if got := strings.Split(strings.TrimSpace(string(imported)), "\n"); err != nil || readErr != nil || strings.Join(got, ",") != strings.Join(want, ",") || kills < rows/each {
		t.Errorf("after %d kills: %v, imported %q", kills, err, got)
	}
}
