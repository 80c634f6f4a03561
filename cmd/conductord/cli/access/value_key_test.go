package access_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
	"github.com/conductord/conductord/raftboard"
)

func TestValueKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	for _, row := range []struct {
		args, out, err string
		code           int
	}{
		{"add PATH 2026-11", "KEY USE\n2026-11 encrypts and decrypts\n", "", 0},
		{"add PATH 2026-12", "KEY USE\n2026-11 encrypts and decrypts\n2026-12 decrypts\n", "", 0},
		{"add PATH 2026-12", "", "already has a key 2026-12", cli.ExitConflict},
		{"add PATH a:b", "", "must have 1 to 32 of", cli.ExitUsage},
		{"use PATH 2026-12", "KEY USE\n2026-12 encrypts and decrypts\n2026-11 decrypts\n", "", 0},
		{"use PATH none", "", `has no key "none"`, cli.ExitNotFound},
		{"list PATH", "KEY USE\n2026-12 encrypts and decrypts\n2026-11 decrypts\n", "", 0},
		{"list PATH.none", "", "no such file", 1},
	} {
		got := clitest.Run(t, nil, append([]string{"value-key"}, strings.Fields(strings.ReplaceAll(row.args, "PATH", path))...)...)
		if got.Code != row.code || clitest.Steady(got.Out) != row.out || !strings.Contains(got.Err, row.err) {
			t.Errorf("%s: exit code %d, %q, %q", row.args, got.Code, got.Out, got.Err)
		}
	}
	secret, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := clitest.Run(t, nil, "value-key", "list", path, "-o", "json").Out
	var list struct {
		Keys []struct {
			ID      string
			Current bool
		}
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil || len(list.Keys) != 2 || list.Keys[0].ID != "2026-12" || !list.Keys[0].Current || list.Keys[1].Current {
		t.Errorf("%s: %v", text, err)
	}
	for line := range strings.Lines(string(secret)) {
		if _, key, found := strings.Cut(strings.TrimSpace(line), " = "); found && strings.Contains(text, key) {
			t.Errorf("a key is shown: %s", text)
		}
	}
}

// TestValueKeysAreUsed: the file comes from the flag, else from the environment. A file that other
// users can read is a usage error.
func TestValueKeysAreUsed(t *testing.T) {
	dir := t.TempDir()
	for _, id := range []string{"a", "b"} {
		clitest.Run(t, nil, "value-key", "add", filepath.Join(dir, id), id)
	}
	for want, row := range map[string]struct{ env, flag string }{"": {"", ""}, "a": {"a", ""}, "b": {"a", "b"}} {
		got := "no call"
		clitest.RunWith(t, t.Context(), nil, func(p *cli.Program) {
			if row.env != "" {
				p.Env = []string{"CONDUCTORD_VALUE_KEYS=" + filepath.Join(dir, row.env)}
			}
			dial := p.Dial
			p.Dial = func(ctx context.Context, options raftboard.Options) (cli.Cluster, error) {
				if got = ""; options.ValueKeys != nil {
					got = options.ValueKeys.Current()
				}
				return dial(ctx, options)
			}
		}, append([]string{"job", "list"}, flagUnlessEmpty("--value-keys=", dir, row.flag)...)...)
		if got != want {
			t.Errorf("%+v: the key is %q, want %q", row, got, want)
		}
	}
	path := filepath.Join(dir, "a")
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if got := clitest.Run(t, nil, "job", "list", "--value-keys", path); got.Code != cli.ExitUsage || !strings.Contains(got.Err, "chmod 600 "+path) {
		t.Errorf("%+v", got)
	}
}

func flagUnlessEmpty(flag, dir, name string) []string {
	if name == "" {
		return nil
	}
	return []string{flag + filepath.Join(dir, name)}
}

func TestEncryptedIsShown(t *testing.T) {
	for text, want := range map[string]string{
		`"$encrypted:1:k:AAAA$"`:          "[encrypted with key k]",
		"failed: $encrypted:1:k:AA…":      "failed: [encrypted with key k, and cut short]",
		"\x1b[1m\"$encrypted:1:k:AAAA$\"": `\u001b[1m[encrypted with key k]`,
	} {
		if got := cli.Clean(text); got != want {
			t.Errorf("%q is shown as %q", text, got)
		}
	}
}
