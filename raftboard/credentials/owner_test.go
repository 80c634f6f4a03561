//go:build unix

package credentials_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/conductord/conductord/raftboard/credentials"
)

// Only its owner may read a key. Root can let a group read it.
func TestWhoMayReadTheKey(t *testing.T) {
	authority, err := credentials.NewAuthority("a", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	issued, err := credentials.Issue(authority, credentials.Subject{Name: "ann", Valid: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := credentials.Files{CA: filepath.Join(dir, "ca"), Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key")}
	err = errors.Join(os.WriteFile(files.CA, authority.Cert, 0o600), os.WriteFile(files.Cert, issued.Cert, 0o600), os.WriteFile(files.Key, issued.Key, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	const root, other = 0, 4711
	for _, row := range []struct {
		owner int
		mode  os.FileMode
		good  bool
	}{
		{root, 0o600, true}, {root, 0o440, true}, {root, 0o640, true}, {root, 0o660, false}, {root, 0o644, false}, {root, 0o650, false},
		{other, 0o400, true}, {other, 0o440, false}, {other, 0o640, false},
	} {
		if err := os.Chown(files.Key, row.owner, -1); errors.Is(err, os.ErrPermission) {
			t.Skip("root alone can give files away")
		} else if err := errors.Join(err, os.Chmod(files.Key, row.mode)); err != nil {
			t.Fatal(err)
		}
		if _, err := credentials.Open(files, nil); (err == nil) != row.good {
			t.Errorf("owner %d, mode %#o: %v", row.owner, row.mode, err)
		}
	}
}
