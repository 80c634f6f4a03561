package backup_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/conductord/conductord/raftboard/node/backup"
)

const content = "the state of a small cluster"

func manifest() backup.Manifest {
	return backup.Manifest{
		Format: backup.Format, Cluster: "test", Generation: 1, Index: 42, Term: 3, Time: time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC),
		Node: "n1", StateBytes: int64(len(content)), Digest: "abc",
	}
}

func written(t testing.TB, m backup.Manifest) []byte {
	t.Helper()
	var file bytes.Buffer
	if err := backup.Write(&file, m, strings.NewReader(content)); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// read returns the content of a backup.
func read(from io.Reader) (m backup.Manifest, state string, err error) {
	m, err = backup.Read(from, func(_ backup.Manifest, r io.Reader) error {
		text, err := io.ReadAll(r)
		state = string(text)
		return err
	})
	return m, state, err
}

func TestBackupIsReadAsItWasWritten(t *testing.T) {
	file := written(t, manifest())
	m, state, err := read(iotest.OneByteReader(bytes.NewReader(file)))
	if err != nil || m != manifest() || state != content {
		t.Errorf("read %+v, %q: %v", m, state, err)
	}
}

// TestDamageIsFound checks that a backup that was cut anywhere, or has a changed bit anywhere, is
// refused or still has the original content.
func TestDamageIsFound(t *testing.T) {
	whole := written(t, manifest())
	contentEnd := bytes.LastIndex(whole, []byte("  state\n")) + len("  state\n") // only zeros follow
	for length := range contentEnd {
		if _, _, err := read(bytes.NewReader(whole[:length])); !errors.Is(err, backup.ErrBad) {
			t.Fatalf("cut to %d bytes of %d: %v", length, len(whole), err)
		}
	}
	refused := 0
	for at := range whole {
		bad := bytes.Clone(whole)
		bad[at] ^= 4
		m, state, err := read(bytes.NewReader(bad))
		switch {
		case errors.Is(err, backup.ErrBad):
			refused++
		case err != nil:
			t.Fatalf("byte %d: %v", at, err)
		case m != manifest() || state != content:
			t.Fatalf("with another byte %d it holds %+v, %q", at, m, state)
		}
	}
	if refused < len(content) {
		t.Errorf("%d of %d changes were refused", refused, len(whole))
	}
}

func TestBadBackupsAreRefused(t *testing.T) {
	newer := manifest()
	newer.Format++
	empty := manifest()
	empty.Index = 0
	longer := manifest()
	longer.StateBytes++
	for _, row := range []struct {
		name, file, want string
	}{
		{"nothing", "", "it ends before its manifest.json"},
		{"text", strings.Repeat("hello ", 200), "manifest.json"},
		{"another archive", archive(t, "readme", "x"), `it contains "readme" instead of its manifest.json`},
		{"no JSON", archive(t, "manifest.json", "x"), "its manifest cannot be read"},
		{"a large manifest", archive(t, "manifest.json", strings.Repeat(" ", 65<<10)), "its manifest.json has 66560 bytes; the limit is 65536"},
		{"a newer format", archive(t, "manifest.json", asJSON(t, newer), "state", content), "its format is 2, and this program supports 1: use the version of conductord that made it"},
		{"an empty manifest", archive(t, "manifest.json", asJSON(t, empty), "state", content), "its manifest is not complete"},
		{"no state", archive(t, "manifest.json", asJSON(t, manifest())), "it ends before its state"},
		{"another length", archive(t, "manifest.json", asJSON(t, longer), "state", content), "its state has 28 bytes, but its manifest contains 29"},
		{"no sums", archive(t, "manifest.json", asJSON(t, manifest()), "state", content), "it ends before its SHA256SUMS"},
		{"other sums", archive(t, "manifest.json", asJSON(t, manifest()), "state", content, "SHA256SUMS", "0  state\n"), "its checksums are"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if _, _, err := read(strings.NewReader(row.file)); !errors.Is(err, backup.ErrBad) || !strings.Contains(err.Error(), row.want) {
				t.Errorf("got %v, want %q", err, row.want)
			}
		})
	}
	broken := errors.New("the line is dead")
	if _, _, err := read(iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if err := backup.Write(io.Discard, longer, strings.NewReader(content)); err == nil {
		t.Error("a state that is shorter than its manifest says was written")
	}
}

func asJSON(t *testing.T, m backup.Manifest) string {
	t.Helper()
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// archive makes a tar archive of names and contents.
func archive(t *testing.T, files ...string) string {
	t.Helper()
	var file bytes.Buffer
	w := tar.NewWriter(&file)
	for i := 0; i < len(files); i += 2 {
		if err := w.WriteHeader(&tar.Header{Name: files[i], Size: int64(len(files[i+1])), Mode: 0o600}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, files[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return file.String()
}

func FuzzRead(f *testing.F) {
	whole := written(f, manifest())
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Fuzz(func(t *testing.T, file []byte) {
		if m, state, err := read(bytes.NewReader(file)); err == nil && (m.Index == 0 || int64(len(state)) != m.StateBytes) {
			t.Errorf("%+v with %d bytes passed", m, len(state))
		} else if err != nil && !errors.Is(err, backup.ErrBad) {
			t.Errorf("an error of another kind: %v", err)
		}
	})
}
