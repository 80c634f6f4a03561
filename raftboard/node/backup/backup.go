// Package backup reads and writes backups. A backup is the state of a cluster at one index of its
// log, as one file.
//
// The file is a tar archive of three files, in this order:
//
//	manifest.json  what the backup contains: see Manifest
//	state          a snapshot of the state machine
//	SHA256SUMS     the checksums of the two, as sha256sum writes and checks them
//
// It can be written to a pipe and read from one. A backup without its last file was cut off. Use
// the content only after Read has returned without an error: before that, the checksums are
// unknown.
package backup

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/conductord/conductord/fsm"
)

// Format is the number of the format that this program reads and writes.
const Format = 1

const (
	manifestFile = "manifest.json"
	stateFile    = "state"
	sumsFile     = "SHA256SUMS"

	maxManifest = 64 << 10 // bytes
	maxSums     = 1 << 10  // bytes
	fileMode    = 0o600
)

// ErrBad is the kind of all faults of a backup itself: it was cut off or changed, or is not a
// backup.
var ErrBad = errors.New("bad backup")

// Manifest describes a backup.
type Manifest struct {
	Format     int       `json:"format"`
	Cluster    string    `json:"cluster"` // the cluster's id
	Generation uint64    `json:"generation"`
	Index      uint64    `json:"index"`             // of the last log entry in the state
	Term       uint64    `json:"term"`              // of that entry
	Time       time.Time `json:"time"`              // the cluster's time at that entry
	Node       string    `json:"node"`              // the node that made the backup
	Version    string    `json:"version,omitempty"` // version of its program
	StateBytes int64     `json:"state_bytes"`
	// Digest is the logical digest of the state in hexadecimal: nodes that have applied the same
	// entries have the same digest, though their files differ.
	Digest string `json:"digest"`
}

// check refuses a manifest that this program cannot use.
func (m *Manifest) check() error {
	switch {
	case m.Format != Format:
		return fmt.Errorf("its format is %d, and this program supports %d: use the version of conductord that made it (%.64q)", m.Format, Format, m.Version)
	case m.Cluster == "" || m.Generation == 0 || m.Index == 0 || m.Term == 0:
		return errors.New("its manifest is not complete")
	}
	return nil
}

// Make writes a snapshot as a backup. It calls pause at intervals; an error of pause ends it.
func Make(to io.Writer, of Manifest, snapshot *fsm.Snapshot, pause func() error) error {
	digest, err := snapshot.Digest(pause)
	if err != nil {
		return fmt.Errorf("cannot create a backup: %w", err)
	}
	of.Generation, of.Index, of.Term, of.Time = snapshot.Generation, snapshot.Index, snapshot.Term, snapshot.Time
	of.StateBytes, of.Digest = snapshot.StreamSize(), hex.EncodeToString(digest[:])
	return Write(to, of, snapshot)
}

// Write writes a backup. The state writes exactly StateBytes.
func Write(to io.Writer, manifest Manifest, state io.WriterTo) error {
	manifest.Format = Format
	text, err := json.MarshalIndent(manifest, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot encode the manifest: %w", err)
	}
	text = append(text, '\n')
	w := writer{tar.NewWriter(to), manifest.Time}
	sums := new(bytes.Buffer)
	if err := w.file(manifestFile, int64(len(text)), bytes.NewReader(text), sums); err != nil {
		return err
	}
	if err := w.file(stateFile, manifest.StateBytes, state, sums); err != nil {
		return err
	}
	if err := w.file(sumsFile, int64(sums.Len()), sums, io.Discard); err != nil {
		return err
	}
	return w.Close()
}

type writer struct {
	*tar.Writer
	at time.Time
}

// file writes a file, and its checksum to sums.
func (w *writer) file(name string, size int64, content io.WriterTo, sums io.Writer) error {
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: fileMode, Size: size, ModTime: w.at, Format: tar.FormatPAX}); err != nil {
		return fmt.Errorf("cannot write %s of the backup: %w", name, err)
	}
	sum := sha256.New()
	if _, err := content.WriteTo(io.MultiWriter(w, sum)); err != nil {
		return fmt.Errorf("cannot write %s of the backup: %w", name, err)
	}
	_, err := io.WriteString(sums, sumLine(sum, name))
	return err
}

func sumLine(sum hash.Hash, name string) string {
	return hex.EncodeToString(sum.Sum(nil)) + "  " + name + "\n"
}

// Read reads a backup to its end. It calls state once, when the manifest is known, and skips what
// state leaves unread. An ErrBad gives the reason why a backup is incomplete; the data passed to
// state is then worthless.
func Read(from io.Reader, state func(Manifest, io.Reader) error) (Manifest, error) {
	r := reader{archive: tar.NewReader(from)}
	manifest, err := r.manifest()
	if err != nil {
		return manifest, err
	}
	if err := r.state(manifest, state); err != nil {
		return manifest, err
	}
	if err := r.checkSums(); err != nil {
		return manifest, err
	}
	if _, err := r.archive.Next(); !errors.Is(err, io.EOF) {
		return manifest, bad("data follows after its end", err)
	}
	return manifest, nil
}

type reader struct {
	archive *tar.Reader
	sums    bytes.Buffer // expected content of SHA256SUMS
}

// next reads the header of the next file, which must have the given name.
func (r *reader) next(name string) (*tar.Header, error) {
	header, err := r.archive.Next()
	if err != nil {
		return nil, bad("it ends before its "+name, err)
	}
	if header.Name != name || header.Typeflag != tar.TypeReg {
		return nil, bad(fmt.Sprintf("it contains %.64q instead of its %s", header.Name, name), nil)
	}
	return header, nil
}

// small reads a file of limited size.
func (r *reader) small(name string, limit int64) ([]byte, error) {
	header, err := r.next(name)
	if err != nil {
		return nil, err
	}
	if header.Size > limit {
		return nil, bad(fmt.Sprintf("its %s has %d bytes; the limit is %d", name, header.Size, limit), nil)
	}
	content, err := io.ReadAll(r.archive)
	if err != nil {
		return nil, bad("its "+name+" is truncated", err)
	}
	return content, nil
}

func (r *reader) manifest() (manifest Manifest, err error) {
	text, err := r.small(manifestFile, maxManifest)
	if err != nil {
		return manifest, err
	}
	if err := json.Unmarshal(text, &manifest); err != nil {
		return manifest, bad("its manifest cannot be read", err)
	}
	if err := manifest.check(); err != nil {
		return manifest, bad(err.Error(), nil)
	}
	sum := sha256.New()
	sum.Write(text)
	r.sums.WriteString(sumLine(sum, manifestFile))
	return manifest, nil
}

func (r *reader) state(manifest Manifest, take func(Manifest, io.Reader) error) error {
	header, err := r.next(stateFile)
	if err != nil {
		return err
	}
	if header.Size != manifest.StateBytes {
		return bad(fmt.Sprintf("its state has %d bytes, but its manifest contains %d", header.Size, manifest.StateBytes), nil)
	}
	sum := sha256.New()
	content := &cutReader{from: io.TeeReader(r.archive, sum)}
	if err := take(manifest, content); err != nil {
		if content.err != nil {
			return content.err
		}
		return err
	}
	if _, err := io.Copy(io.Discard, content); err != nil {
		return err
	}
	r.sums.WriteString(sumLine(sum, stateFile))
	return nil
}

// cutReader reports an early end of the file as a bad backup.
type cutReader struct {
	from io.Reader
	err  error
}

func (c *cutReader) Read(into []byte) (int, error) {
	n, err := c.from.Read(into)
	if err != nil && !errors.Is(err, io.EOF) {
		err = bad("its state is truncated", err)
		c.err = err
	}
	return n, err
}

func (r *reader) checkSums() error {
	found, err := r.small(sumsFile, maxSums)
	if err != nil {
		return err
	}
	if !bytes.Equal(found, r.sums.Bytes()) {
		return bad(fmt.Sprintf("its checksums are\n%s, but its content has\n%s", r.sums.Bytes(), found), nil)
	}
	return nil
}

// bad makes an ErrBad. It drops a cause that only reports the end of the bytes, and keeps a fault
// of the connection or the disk.
func bad(why string, cause error) error {
	if cause == nil || errors.Is(cause, io.EOF) || errors.Is(cause, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: %s", ErrBad, why)
	}
	return fmt.Errorf("%w: %s: %w", ErrBad, why, cause)
}
