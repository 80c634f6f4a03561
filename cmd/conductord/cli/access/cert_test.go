package access_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
)

// TestCertInitMakesTheDirectory: only the owner of the new directory has access to it.
func TestCertInitMakesTheDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "shop", "certs")
	if got := clitest.Run(t, clitest.Open(t), "cert", "init", "--dir", dir); got.Code != 0 {
		t.Fatalf("got %+v", got)
	}
	if made, err := os.Stat(dir); err != nil || made.Mode().Perm() != 0o700 {
		t.Errorf("got %v, %v", made, err)
	}
}
