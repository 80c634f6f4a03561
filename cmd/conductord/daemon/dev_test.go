package daemon_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/daemon"
)

// TestInstallExamplesKeepsChanges: the next start keeps a user's changes to an example.
func TestInstallExamplesKeepsChanges(t *testing.T) {
	dir := t.TempDir()
	handlers, err := daemon.InstallExamples(dir)
	if err != nil {
		t.Fatal(err)
	}
	changed, removed := filepath.Join(filepath.Dir(handlers), "hello.toml"), filepath.Join(handlers, "make-greeting")
	if err := os.WriteFile(changed, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(removed); err != nil {
		t.Fatal(err)
	}
	if _, err := daemon.InstallExamples(dir); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(changed); string(text) != "mine" {
		t.Errorf("the changed file has %q, %v", text, err)
	}
	if info, err := os.Stat(removed); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the removed file: %v, %v", info, err)
	}
}
