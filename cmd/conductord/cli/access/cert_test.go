package access_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
)

// TestCertInitMakesItsDirectory: a new directory of an authority is closed to other users.
func TestCertInitMakesItsDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "second")
	if got := clitest.Run(t, nil, "cert", "init", "--dir", dir); got.Code != 0 {
		t.Fatalf("cert init: %+v", got)
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory: %v, %v", info, err)
	}
	if got := clitest.Run(t, nil, "cert", "issue", "client", "ann", "--dir", dir); got.Code != 0 {
		t.Errorf("cert issue: %+v", got)
	}
}
