package valuekeys

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/conductord/conductord/logbook"
)

const (
	// maxKeys limits the keys of a file. With a new key each month, it is enough for five years.
	maxKeys = 64
	// maxID limits an id, which is part of every encrypted value.
	maxID     = 32
	idPattern = `[A-Za-z0-9._-]{1,32}`
	// maxFile limits the file: the maximum number of keys, with room for comments.
	maxFile = 64 << 10
)

const heading = "# Keys of encrypted values: the first one encrypts, and all decrypt. Keep a copy in a safe place:\n" +
	"# without its key, a value is lost.\n"

var (
	validID = regexp.MustCompile(`^` + idPattern + `$`)
	line    = regexp.MustCompile(`^(\S+)\s*=\s*"([^"]*)"\s*(?:#.*)?$`)
)

// Open reads a file of keys, with lines like
//
//	2026-11 = "BASE64 of 32 bytes"
//
// ErrInvalid names all faults. A file that other users can read is refused.
func Open(path string) (*Keys, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read value keys: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("cannot use the value keys in %s: other users can read the file: its mode is %#o: run chmod 600 %s", path, mode, path)
	}
	if info.Size() > maxFile {
		limit := &logbook.LimitError{Field: path, Limit: maxFile, Size: info.Size(), Unit: "bytes"}
		return nil, fmt.Errorf("cannot read value keys: %w", limit)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read value keys: %w", err)
	}
	keys, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("cannot use the value keys in %s: %w", path, err)
	}
	return keys, nil
}

// Parse reads the text of a file of keys. Errors never contain a key.
func Parse(text []byte) (*Keys, error) {
	keys := &Keys{}
	var faults []error
	fault := func(number int, reason string) {
		faults = append(faults, &logbook.InvalidError{Field: fmt.Sprintf("line %d", number), Reason: reason})
	}
	for i, written := range strings.Split(string(text), "\n") {
		written = strings.TrimSpace(written)
		if written == "" || strings.HasPrefix(written, "#") {
			continue
		}
		match := line.FindStringSubmatch(written)
		if match == nil {
			fault(i+1, `not ID = "KEY"`)
			continue
		}
		secret, err := base64.StdEncoding.DecodeString(match[2])
		switch {
		case err != nil || len(secret) != secretSize:
			fault(i+1, fmt.Sprintf("its key is not base64 of %d bytes", secretSize))
			continue
		case !validID.MatchString(match[1]):
			fault(i+1, badID(match[1]))
			continue
		}
		if err := keys.add(match[1], secret); err != nil {
			fault(i+1, err.Error())
		}
	}
	if len(keys.keys) == 0 && len(faults) == 0 {
		faults = append(faults, &logbook.InvalidError{Field: "value keys", Reason: "none; make one with conductord value-key add"})
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return keys, nil
}

func badID(id string) string {
	return fmt.Sprintf("%.64q must have 1 to %d of A-Z, a-z, 0-9, dot, dash and underscore", id, maxID)
}

// add adds a key after the others.
func (k *Keys) add(id string, secret []byte) error {
	if len(k.keys) == maxKeys {
		return &logbook.LimitError{Field: "value keys", Limit: maxKeys, Size: maxKeys + 1, Unit: "keys"}
	}
	for i := range k.keys {
		switch {
		case k.keys[i].id == id:
			return fmt.Errorf("the id %s occurs twice", id)
		case bytes.Equal(k.keys[i].secret, secret):
			return fmt.Errorf("it has the same key as %s", k.keys[i].id)
		}
	}
	made, err := newKey(id, secret)
	if err != nil {
		return err
	}
	k.keys = append(k.keys, made)
	return nil
}

// Add makes a key and appends it to the keys of a file. If the file does not exist, Add creates
// it, and the key is the current one.
func Add(path, id string) (*Keys, error) {
	if !validID.MatchString(id) {
		return nil, &logbook.InvalidError{Field: "key id", Reason: badID(id)}
	}
	keys, err := Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		keys = &Keys{}
	case err != nil:
		return nil, err
	case slices.Contains(keys.IDs(), id):
		return nil, fmt.Errorf("%w: %s already has a key %s", logbook.ErrConflict, path, id)
	}
	secret := make([]byte, secretSize)
	if _, err := rand.Read(secret); err != nil {
		return nil, err
	}
	if err := keys.add(id, secret); err != nil {
		return nil, err
	}
	return keys, keys.write(path)
}

// Use makes a key of a file the current one, and moves it to the front.
func Use(path, id string) (*Keys, error) {
	keys, err := Open(path)
	if err != nil {
		return nil, err
	}
	place := slices.Index(keys.IDs(), id)
	if place < 0 {
		return nil, fmt.Errorf("%w: %s has no key %.64q", logbook.ErrNotFound, path, id)
	}
	used := keys.keys[place]
	keys.keys = slices.Insert(slices.Delete(keys.keys, place, place+1), 0, used)
	return keys, keys.write(path)
}

// write replaces a file in one step, so that no reader and no crash finds an incomplete file.
// Comments of the old file are lost.
func (k *Keys) write(path string) error {
	text := heading
	for i := range k.keys {
		text += fmt.Sprintf("%s = %q\n", k.keys[i].id, base64.StdEncoding.EncodeToString(k.keys[i].secret))
	}
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // its mode is 0600
	if err != nil {
		return fmt.Errorf("cannot write value keys: %w", err)
	}
	defer os.Remove(file.Name()) // without effect after the rename
	_, err = file.WriteString(text)
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err == nil {
		err = syncDirectory(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("cannot write value keys: %w", err)
	}
	return nil
}

// syncDirectory makes a new name durable: values must not outlive the only copy of their key.
func syncDirectory(path string) error {
	directory, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}
