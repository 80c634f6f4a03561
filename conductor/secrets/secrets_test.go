//go:build unix

package secrets_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/conductord/conductord/conductor/secrets"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func write(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), mode), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
}

// open makes a source of each kind for the boards, with secrets for the tests below.
func open(t *testing.T, boards map[string][]string) *secrets.Source {
	t.Helper()
	directory := t.TempDir()
	for path, content := range map[string]string{
		"db": "of all boards\n", "both": "all", "shop/both": "shop alone", "shop/eu/key": "of shop/eu", "packing/key": "packing\r\n",
		"lines": "a\nb\n\n", "empty": "", "shop/file": "x", "..data/linked": "of a link",
		"full": strings.Repeat("x", engine.MaxSecret) + "\n", "over": strings.Repeat("x", 2*engine.MaxSecret),
	} {
		write(t, filepath.Join(directory, path), content, 0o600)
	}
	write(t, filepath.Join(directory, "open"), "everybody's", 0o644)
	write(t, filepath.Join(directory, "group"), "of a group", 0o640)
	outside := filepath.Join(t.TempDir(), "outside")
	write(t, outside, "not ours", 0o600)
	if err := errors.Join(os.Symlink("..data/linked", filepath.Join(directory, "link")), os.Symlink(outside, filepath.Join(directory, "escape")),
		syscall.Mkfifo(filepath.Join(directory, "pipe"), 0o600)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("STEP_SECRET_API_KEY", "of the environment")
	t.Setenv("STEP_SECRET_DB", "the file counts first")
	command := filepath.Join(t.TempDir(), "get-secret")
	write(t, command, `#!/bin/sh
case "$2" in
vault) echo "vault of $1" ;;
broken) echo "printed" ; echo "to stderr" >&2; exit 3 ;;
flood) head -c 10000000 /dev/zero | tr '\0' x ;;
esac
`, 0o700)
	source, err := secrets.Open(secrets.Options{Directory: directory, Environment: "STEP_SECRET_", Command: command, Boards: boards})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = source.Close() })
	return source
}

// TestSources checks which source has a secret, and for which board.
func TestSources(t *testing.T) {
	source := open(t, nil)
	for _, row := range []struct{ board, name, want, err string }{
		{"shop", "db", "of all boards", ""},
		{"shop", "both", "shop alone", ""},
		{"packing", "both", "all", ""},
		{"shop/eu", "key", "of shop/eu", ""},
		{"packing", "key", "packing", ""},
		{"shop", "lines", "a\nb\n", ""},
		{"shop", "link", "of a link", ""},
		{"shop", "group", "of a group", ""},
		{"shop", "api-key", "of the environment", ""},
		{"shop", "vault", "vault of shop", ""},
		{"-x; rm", "vault", "vault of -x; rm", ""},

		{"shop", "key", "", "not found"},                // packing's
		{"shop/../packing", "key", "", "not found"},     // packing's
		{"./packing", "key", "", "not found"},           // packing's
		{"../" + "packing", "key", "", "not found"},     // outside
		{"shop/file", "key", "", "not found"},           // a path below a file
		{"shop", "empty", "", "not found"},              // an empty file
		{"shop", "packing", "", "not found"},            // a directory instead of a file
		{"shop", "escape", "", "cannot read its file"},  // a link that leads out of the directory
		{"shop", "pipe", "", "is not a regular file"},   // reading it would block without end
		{"shop", "open", "", "mode 0644"},               // others can read it
		{"shop", "broken", "", "failed (exit status 3"}, // the error does not contain the program's output
		{"shop", "packing/key", "", "name of a secret"},
		{"shop", "..", "", "name of a secret"},
		{"shop", "", "", "name of a secret"},
		{"shop", "a\x00b", "", "name of a secret"},
		{"shop", strings.Repeat("n", 128), "", "name of a secret"},
	} {
		got, err := source.Secret(t.Context(), row.board, row.name)
		if got != row.want || (err == nil) != (row.err == "") || err != nil && !strings.Contains(err.Error(), row.err) {
			t.Errorf("secret %q of board %q: got %q, %v; want %q, %s", row.name, row.board, got, err, row.want, row.err)
		}
		if row.err == "not found" && !errors.Is(err, logbook.ErrNotFound) || row.err == "name of a secret" && !errors.Is(err, logbook.ErrInvalid) {
			t.Errorf("secret %q of board %q: %v is of another kind", row.name, row.board, err)
		}
		if err != nil && (strings.Contains(err.Error(), "printed") || strings.Contains(err.Error(), "stderr")) {
			t.Errorf("secret %q: the error has the command's output: %v", row.name, err)
		}
	}
	for name, size := range map[string]int{"full": engine.MaxSecret, "over": engine.MaxSecret + 3, "flood": engine.MaxSecret + 3} {
		if got, err := source.Secret(t.Context(), "shop", name); err != nil || len(got) != size {
			t.Errorf("secret %q has %d bytes, %v; want %d", name, len(got), err, size)
		}
	}
}

// TestSecretsOfBoards: a board needs no permission for its own file, but for all other sources.
func TestSecretsOfBoards(t *testing.T) {
	source := open(t, map[string][]string{"shop*": {"db", "api-*"}, "packing": {"*"}})
	for _, row := range []struct{ board, name, want string }{
		{"shop", "both", "shop alone"},
		{"shop/eu", "key", "of shop/eu"},
		{"shop", "db", "of all boards"},
		{"shop/eu", "db", "of all boards"},
		{"shop", "api-key", "of the environment"},
		{"packing", "db", "of all boards"},
		{"packing", "both", "all"},
		{"packing", "vault", "vault of packing"},
		{"shop", "linked", ""},
		{"shop", "vault", ""},
		{"shop", "nowhere", ""},
		{"shop/eu", "both", ""},
		{"other", "db", ""},
		{"other", "api-key", ""},
		{"other", "vault", ""},
		{"other", "nowhere", ""}, // the refusal does not reveal whether the secret exists
		{"packing/eu", "db", ""},
		{"", "db", ""},
	} {
		got, err := source.Secret(t.Context(), row.board, row.name)
		refusal := fmt.Sprintf("board %q has no permission for it: add it to secrets.boards of the conductor, as in %q = [%q]", row.board, row.board, row.name)
		if got != row.want || row.want == "" && (!errors.Is(err, logbook.ErrNotAllowed) || !strings.Contains(err.Error(), refusal)) {
			t.Errorf("secret %q of board %q: got %q, %v; want %q", row.name, row.board, got, err, row.want)
		}
	}
	nobody := open(t, map[string][]string{})
	if got, err := nobody.Secret(t.Context(), "shop", "db"); !errors.Is(err, logbook.ErrNotAllowed) {
		t.Errorf("where no board may name a secret, got %q, %v", got, err)
	}
}

// TestSourcesThatCannotBeUsed: a wrong configuration is reported when the conductor starts.
func TestSourcesThatCannotBeUsed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "x", 0o600)
	for name, options := range map[string]secrets.Options{
		"no such directory": {Directory: filepath.Join(t.TempDir(), "none")},
		"no directory":      {Directory: file},
		"no such command":   {Command: filepath.Join(t.TempDir(), "none")},
		"no executable":     {Command: file},
		"relative command":  {Command: "sh"},
	} {
		if source, err := secrets.Open(options); err == nil {
			_ = source.Close()
			t.Errorf("%s was accepted", name)
		}
	}
}
