package fsm_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"

	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
)

// headerSize is the size of a snapshot's header: magic, two short and three long numbers. The
// trailer is a length and a sum.
const (
	headerSize  = 8 + 2*4 + 3*8
	trailerSize = 8 + 32
)

// filled is a machine with a little of everything.
func filled(t *testing.T) *rig {
	r := newRig(t)
	r.ok(beginLeadership())
	r.ok(open("ann"))
	token := r.claimed("ann", flowPosting("a"))
	r.ok(updateFlow(update("flow of a", token, 1, "running", task("x", "running", executing(1)))))
	r.ok(abandon(ending("b", r.claimed("ann", posting("b", "k")))))
	r.finish("c", "d")
	return r
}

func TestSnapshotAndRestore(t *testing.T) {
	r := filled(t)
	stream := snapshot(t, r.Machine)
	other := newRig(t)
	other.posted(posting("junk", "k"))
	other.changes = nil
	if err := other.Restore(iotest.HalfReader(bytes.NewReader(stream))); err != nil {
		t.Fatal(err)
	}
	if digest(t, other.Machine) != digest(t, r.Machine) {
		t.Error("the restored state differs")
	}
	if other.AppliedIndex() != r.AppliedIndex() || other.TimerEpoch() != r.TimerEpoch() || !other.Time().Equal(r.Time()) ||
		other.LastPosition() != r.LastPosition() || fmt.Sprint(other.Counts()) != fmt.Sprint(r.Counts()) {
		t.Error("what is known of the restored state differs")
	}
	if len(other.changes) != 1 || !other.changes[0].Restored || other.changes[0].Index != r.index {
		t.Errorf("changes %+v", other.changes)
	}
	if err := fsm.Verify(other.Machine); err != nil {
		t.Error(err)
	}
	other.index, other.now = r.index, r.now
	r.finish("e")
	other.finish("e")
	if digest(t, other.Machine) != digest(t, r.Machine) {
		t.Error("the states differ after the next entries")
	}
}

func TestBadSnapshotsLeaveTheStateAlone(t *testing.T) {
	stream := snapshot(t, filled(t).Machine)
	flipped := func(at int) []byte {
		bad := bytes.Clone(stream)
		bad[at] ^= 0x10
		return bad
	}
	database := len(stream) - trailerSize
	rows := []struct {
		name string
		bad  []byte
	}{
		{"nothing", nil},
		{"half a header", stream[:headerSize/2]},
		{"only a header", stream[:headerSize]},
		{"half a database", stream[:(headerSize+database)/2]},
		{"no trailer", stream[:database]},
		{"half a sum", stream[:len(stream)-16]},
		{"one byte less", stream[:len(stream)-1]},
		{"one byte more", append(bytes.Clone(stream), 0)},
		{"another magic", flipped(0)},
		{"another format", flipped(8 + 3)},
		{"another schema", flipped(8 + 4 + 3)},
		{"another index", flipped(8 + 8 + 7)},
		{"another generation", flipped(8 + 8 + 8 + 7)},
		{"another size", flipped(headerSize - 1)},
		{"an impossible size", flipped(headerSize - 8)},
		{"a flipped bit in the first page", flipped(headerSize + 40)},
		{"a flipped bit in the middle", flipped((headerSize + database) / 2)},
		{"a flipped bit at the end", flipped(database - 1)},
		{"a flipped bit in the length", flipped(database + 7)},
		{"a flipped bit in the sum", flipped(len(stream) - 1)},
	}
	r := newRig(t)
	r.posted(posting("mine", "k"))
	r.changes = nil
	before := digest(t, r.Machine)
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			if err := r.Restore(bytes.NewReader(row.bad)); !errors.Is(err, fsm.ErrBadSnapshot) {
				t.Fatalf("got %v", err)
			}
			if digest(t, r.Machine) != before || len(r.changes) != 0 {
				t.Error("the state has changed")
			}
		})
	}
	broken := errors.New("the line is dead")
	if err := r.Restore(iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	r.posted(posting("and on", "k"))
}

// resummed is a snapshot whose header or database was changed before its checksum was computed: the
// checksum is right, but the content is bad.
func resummed(stream []byte, change func(header, database []byte)) []byte {
	bad := bytes.Clone(stream)
	change(bad[:headerSize], bad[headerSize:len(bad)-trailerSize])
	sum := sha256.Sum256(bad[:len(bad)-sha256.Size])
	copy(bad[len(bad)-sha256.Size:], sum[:])
	return bad
}

func TestSnapshotsThatWereBadFromTheBeginning(t *testing.T) {
	stream := snapshot(t, filled(t).Machine)
	size := os.Getpagesize()
	rows := map[string]func(header, database []byte){
		"another index in the header": func(header, _ []byte) { header[8+4+4+7]++ },
		"no meta page":                func(_, database []byte) { clear(database[:2*size]) },
		"no root page": func(_, database []byte) {
			for page := 2; page*size < len(database); page++ {
				clear(database[page*size : page*size+16])
			}
		},
		"a table of another name": func(_, database []byte) {
			for at := bytes.Index(database, []byte("book_flow")); at >= 0; at = bytes.Index(database, []byte("book_flow")) {
				database[at+len("book_flow")-1] = 'x'
			}
		},
	}
	for name, change := range rows {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.posted(posting("mine", "k"))
			before := digest(t, r.Machine)
			if err := r.Restore(bytes.NewReader(resummed(stream, change))); !errors.Is(err, fsm.ErrBadSnapshot) {
				t.Fatalf("got %v", err)
			}
			if digest(t, r.Machine) != before {
				t.Error("the state has changed")
			}
			r.posted(posting("and on", "k"))
		})
	}
}

func TestSnapshotWithABadBlock(t *testing.T) {
	bad, err := fsm.BadBlock(snapshot(t, filled(t).Machine))
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t)
	if err := r.Restore(bytes.NewReader(bad)); !errors.Is(err, fsm.ErrBadSnapshot) {
		t.Errorf("got %v", err)
	}
	r.posted(posting("and on", "k"))
}

// TestReadsBesideApplyAndRestore reads continuously while the state is changed and replaced: every
// read must see one whole state. The race detector must find nothing.
func TestReadsBesideApplyAndRestore(t *testing.T) {
	r := newRig(t)
	r.ok(open("ann"))
	stream := snapshot(t, r.Machine)
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- func() error {
			for {
				select {
				case <-stop:
					return nil
				default:
				}
				if err := fsm.Verify(r.Machine); err != nil {
					return err
				}
				if _, err := r.Sessions(); err != nil {
					return err
				}
			}
		}()
	}()
	for round := range 10 {
		for i := range 5 {
			r.do(post(flowPosting(fmt.Sprint(round, " ", i))))
		}
		if err := r.Restore(bytes.NewReader(stream)); err != nil {
			t.Fatal(err)
		}
		r.index = r.AppliedIndex()
	}
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestRestoreLeavesNoFileBehind(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	m, err := fsm.Open(fsm.Options{Path: path, MmapSize: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Restore(bytes.NewReader([]byte("bad"))); err == nil {
		t.Fatal("restored nonsense")
	}
	if err := m.Restore(bytes.NewReader(snapshot(t, filled(t).Machine))); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(files) != 1 {
		t.Errorf("files %v: %v", files, err)
	}
}

func TestSnapshotOutlivesWhatComesAfter(t *testing.T) {
	r := filled(t)
	want := digest(t, r.Machine)
	s, err := r.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.Index != r.index {
		t.Errorf("index %d", s.Index)
	}
	r.finish("e", "f")
	if err := r.Restore(bytes.NewReader(snapshot(t, newRig(t).Machine))); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if _, err := s.WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	other := newRig(t)
	if err := other.Restore(&out); err != nil {
		t.Fatal(err)
	}
	if digest(t, other.Machine) != want {
		t.Error("the snapshot is not of the state at which it was taken")
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Error(err)
	}
}

func TestRestoreRaisesTheGeneration(t *testing.T) {
	r := filled(t) // generation 1
	stream := snapshot(t, r.Machine)
	next := newRigWith(t, fsm.Options{Generation: 2})
	if err := next.Restore(bytes.NewReader(stream)); err != nil {
		t.Fatal(err)
	}
	if next.Generation() != 2 {
		t.Errorf("generation %d", next.Generation())
	}
	// The index is used again, but the token is higher.
	held := r.job(id("a")).Token
	next.index = r.index
	next.ok(closing("ann"))
	next.ok(open("bob"))
	token := command.TokenFromProto(next.ok(claim("bob", id("a"), "n")).GetClaim().Granted[0].Token)
	if token.Compare(held) <= 0 || token.Generation != 2 {
		t.Errorf("token %s after %s", token, held)
	}
	older := newRig(t) // a machine of generation 1 gets a snapshot of generation 2
	if err := older.Restore(bytes.NewReader(snapshot(t, next.Machine))); err != nil {
		t.Fatal(err)
	}
	if older.Generation() != 2 || older.job(id("a")).State != jobs.StateClaimed {
		t.Errorf("generation %d", older.Generation())
	}
}
