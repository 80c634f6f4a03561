package logstore_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"pgregory.net/rapid"

	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/raftboard/node/raftlog/logstore"
)

// payload is long and unusual, so that it can be found in the file.
var payload = []byte("the entry that a cosmic ray is going to hit 0123456789")

func entry(index uint64) *raft.Log {
	return &raft.Log{Index: index, Term: 3, Type: raft.LogCommand, Data: payload}
}

// logStore is the interface of a log for these tests.
type logStore interface {
	raft.LogStore
	raft.StableStore
	io.Closer
}

// onEachStore runs a test over every log store.
func onEachStore(t *testing.T, test func(t *testing.T, kind logstore.Kind)) {
	for _, kind := range logstore.Kinds {
		t.Run(string(kind), func(t *testing.T) { test(t, kind) })
	}
}

func TestLogDetectsDamage(t *testing.T) {
	onEachStore(t, func(t *testing.T, kind logstore.Kind) {
		dir := t.TempDir()
		log, err := logstore.Open(dir, kind, logstore.Options{Fatal: func(err error) { t.Error(err) }})
		if err != nil {
			t.Fatal(err)
		}
		if err := log.StoreLogs([]*raft.Log{entry(1), entry(2)}); err != nil {
			t.Fatal(err)
		}
		var got raft.Log
		if err := log.GetLog(2, &got); err != nil || !bytes.Equal(got.Data, payload) {
			t.Fatalf("got %q, %v", got.Data, err)
		}
		if err := log.GetLog(3, &got); !errors.Is(err, raft.ErrLogNotFound) {
			t.Errorf("an entry that is not there: %v", err)
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		var faults []error
		if log, err = logstore.Open(dir, kind, logstore.Options{Fatal: func(err error) { faults = append(faults, err) }}); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = log.Close() }()
		flip(t, largest(t, logstore.Path(dir, kind)), payload) // the log is open: the damage came after its check at the start
		damaged := 0
		for _, index := range []uint64{1, 2} {
			if err := log.GetLog(index, &got); err != nil {
				damaged++
				if !strings.Contains(err.Error(), "damaged on disk") {
					t.Errorf("entry %d: %v", index, err)
				}
			}
		}
		if damaged == 0 || len(faults) != damaged {
			t.Errorf("%d entries are damaged, and the end was called for %d times", damaged, len(faults))
		}
	})
}

// largest is the path itself, or the largest file of a directory.
func largest(t *testing.T, path string) string {
	t.Helper()
	var found string
	size := int64(-1)
	err := filepath.Walk(path, func(path string, about os.FileInfo, err error) error {
		if err == nil && !about.IsDir() && about.Size() > size {
			found, size = path, about.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// flip changes one bit of every copy of the text in a file.
func flip(t *testing.T, path string, text []byte) {
	t.Helper()
	data := readFile(t, path)
	file, err := os.OpenFile(path, os.O_WRONLY, 0) // changed in place, because another process has it open
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for at := 0; ; found++ {
		next := bytes.Index(data[at:], text)
		if next < 0 {
			break
		}
		at += next + len(text)/2
		if _, err := file.WriteAt([]byte{data[at] ^ 0x10}, int64(at)); err != nil {
			t.Fatal(err)
		}
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if found == 0 {
		t.Fatal("the entry is not in the file")
	}
}

func TestLogStopsAfterAFailedWrite(t *testing.T) {
	onEachStore(t, func(t *testing.T, kind logstore.Kind) {
		for _, row := range []struct {
			name  string
			write func(log raft.LogStore, stable raft.StableStore) error
		}{
			{"an entry", func(log raft.LogStore, _ raft.StableStore) error { return log.StoreLog(entry(1)) }},
			{"entries", func(log raft.LogStore, _ raft.StableStore) error { return log.StoreLogs([]*raft.Log{entry(1)}) }},
			{"a range", func(log raft.LogStore, _ raft.StableStore) error { return log.DeleteRange(1, 2) }},
			{"a vote", func(_ raft.LogStore, stable raft.StableStore) error { return stable.Set([]byte("vote"), nil) }},
			{"a term", func(_ raft.LogStore, stable raft.StableStore) error { return stable.SetUint64([]byte("term"), 7) }},
		} {
			t.Run(row.name, func(t *testing.T) {
				var faults []error
				log, err := logstore.Open(t.TempDir(), kind, logstore.Options{Fatal: func(err error) { faults = append(faults, err) }})
				if err != nil {
					t.Fatal(err)
				}
				if err := log.Close(); err != nil { // every write fails from here on
					t.Fatal(err)
				}
				if err := row.write(log, log); err == nil || len(faults) != 1 {
					t.Errorf("error %v, faults %v", err, faults)
				}
			})
		}
	})
}

func TestLogIsOfOneProcess(t *testing.T) {
	onEachStore(t, func(t *testing.T, kind logstore.Kind) {
		dir := t.TempDir()
		log, err := logstore.Open(dir, kind, logstore.Options{Fatal: func(err error) { t.Error(err) }})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = log.Close() }()
		if _, err := logstore.Open(dir, kind, logstore.Options{Fatal: func(error) {}}); err == nil || !strings.Contains(err.Error(), "another process uses this data directory") {
			t.Errorf("got %v", err)
		}
	})
}

// Segment sizes that are small enough for tests with several closed segments.
const smallSegment = 2 << 10

// openSmall opens a log with small segments, if its store has segments.
func openSmall(dir string, kind logstore.Kind, fatal func(error)) (logStore, error) {
	if kind == logstore.WAL {
		return logstore.OpenWAL(dir, smallSegment, fatal)
	}
	return logstore.Open(dir, kind, logstore.Options{Fatal: fatal})
}

// After any use of the log and any end of the process, all acknowledged entries are present, and
// more can be appended.
func TestLogKeepsWhatItAcknowledged(t *testing.T) {
	longtest.Checks(t, 20)
	onEachStore(t, func(t *testing.T, kind logstore.Kind) {
		rapid.Check(t, func(t *rapid.T) {
			top, err := os.MkdirTemp("", "log-")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = os.RemoveAll(top) }()
			l := &loggedModel{t: t, kind: kind, top: top, next: 1}
			l.open()
			defer func() { _ = l.log.Close() }()
			t.Repeat(map[string]func(*rapid.T){
				"append": l.append, "cut the end": l.cutEnd, "cut the beginning": l.cutBeginning, "clear": l.clear,
				"vote": l.vote, "stop": l.stop, "kill": l.kill, "": l.check,
			})
		})
	})
}

// loggedModel is a log and its expected content.
type loggedModel struct {
	t    *rapid.T
	kind logstore.Kind
	top  string
	run  int
	log  logStore

	first, next uint64 // entries first to next-1; first 0: none
	terms       []uint64
	term        uint64
	voted       uint64
}

func (l *loggedModel) dir() string { return filepath.Join(l.top, fmt.Sprint(l.run)) }

func (l *loggedModel) open() {
	if err := os.MkdirAll(l.dir(), 0o700); err != nil {
		l.t.Fatal(err)
	}
	var err error
	if l.log, err = openSmall(l.dir(), l.kind, func(err error) { l.t.Error(err) }); err != nil {
		l.t.Fatal(err)
	}
}

func (l *loggedModel) append(t *rapid.T) {
	l.term++
	var batch []*raft.Log
	for range rapid.IntRange(1, 8).Draw(t, "entries") {
		data := bytes.Repeat([]byte{byte(l.next)}, rapid.IntRange(0, 900).Draw(t, "bytes"))
		batch = append(batch, &raft.Log{Index: l.next, Term: l.term, Type: raft.LogCommand, Data: data})
		l.terms = append(l.terms, l.term)
		if l.first == 0 {
			l.first = l.next
		}
		l.next++
	}
	if err := l.log.StoreLogs(batch); err != nil {
		t.Fatal(err)
	}
}

func (l *loggedModel) cutEnd(t *rapid.T) {
	if l.first == 0 {
		t.Skip("empty")
	}
	from := rapid.Uint64Range(l.first, l.next-1).Draw(t, "from")
	if err := l.log.DeleteRange(from, l.next-1); err != nil {
		t.Fatal(err)
	}
	l.terms, l.next = l.terms[:from-l.first], from
	if from == l.first {
		l.first = 0
	}
}

func (l *loggedModel) cutBeginning(t *rapid.T) {
	if l.next-l.first < 2 || l.first == 0 {
		t.Skip("too short")
	}
	to := rapid.Uint64Range(l.first, l.next-2).Draw(t, "to")
	if err := l.log.DeleteRange(l.first, to); err != nil {
		t.Fatal(err)
	}
	l.terms, l.first = l.terms[to-l.first+1:], to+1
}

// clear clears the log as raft does when it installs a snapshot: later entries leave a gap.
func (l *loggedModel) clear(t *rapid.T) {
	if l.first == 0 {
		t.Skip("empty")
	}
	if err := l.log.DeleteRange(l.first, l.next-1); err != nil {
		t.Fatal(err)
	}
	l.first, l.terms = 0, nil
	l.next += rapid.Uint64Range(0, 3000).Draw(t, "further")
}

func (l *loggedModel) vote(t *rapid.T) {
	l.voted++
	if err := l.log.SetUint64([]byte("LastVoteTerm"), l.voted); err != nil {
		t.Fatal(err)
	}
}

func (l *loggedModel) stop(t *rapid.T) {
	if err := l.log.Close(); err != nil {
		t.Fatal(err)
	}
	l.open()
}

// kill continues with the current files, as after a kill of the process.
func (l *loggedModel) kill(t *rapid.T) {
	from := l.dir()
	l.run++
	if err := os.CopyFS(l.dir(), os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.log.Close(), os.RemoveAll(from)); err != nil {
		t.Fatal(err)
	}
	l.open()
}

func (l *loggedModel) check(t *rapid.T) {
	first, err := l.log.FirstIndex()
	last, lastErr := l.log.LastIndex()
	want := uint64(0)
	if l.first > 0 {
		want = l.next - 1
	}
	if err := errors.Join(err, lastErr); err != nil || first != l.first || last != want {
		t.Fatalf("entries %d to %d, %v; want %d to %d", first, last, err, l.first, want)
	}
	for i, term := range l.terms {
		var got raft.Log
		if err := l.log.GetLog(l.first+uint64(i), &got); err != nil || got.Term != term {
			t.Fatalf("entry %d: term %d, %v; want %d", l.first+uint64(i), got.Term, err, term)
		}
	}
	if voted, err := l.log.GetUint64([]byte("LastVoteTerm")); err != nil || voted != l.voted {
		t.Fatalf("vote %d, %v; want %d", voted, err, l.voted)
	}
	if value, err := l.log.Get([]byte("never set")); err != nil || len(value) > 0 {
		t.Fatalf("a key that was never set: %q, %v", value, err)
	}
}

// After a write that was interrupted at any byte, earlier entries remain, and the log accepts
// further writes. This includes a write that would have closed a segment.
func TestWALForgetsACutOffWrite(t *testing.T) {
	for _, row := range []struct {
		name string
		last int // bytes of the interrupted entry
	}{
		{"in the middle of a segment", 40},
		{"where a segment ends", smallSegment},
	} {
		t.Run(row.name, func(t *testing.T) {
			whole := t.TempDir()
			log := openedWAL(t, whole)
			store(t, log, 1, 100)
			store(t, log, 2, 100)
			before := segmentOf(t, whole)
			from := used(t, before)
			copied := t.TempDir()
			store(t, log, 3, row.last)
			after := readFile(t, before)
			to := used(t, before)
			if err := log.Close(); err != nil {
				t.Fatal(err)
			}
			// The earlier state of the log, for its metadata.
			log = openedWAL(t, copied)
			store(t, log, 1, 100)
			store(t, log, 2, 100)
			killed := t.TempDir()
			if err := os.CopyFS(killed, os.DirFS(copied)); err != nil {
				t.Fatal(err)
			}
			_ = log.Close()
			for cut := from; cut <= to; cut += max(1, (to-from)/200) {
				torn := slices.Clone(after[:cut])
				torn = append(torn, make([]byte, max(smallSegment, len(after))-cut)...)
				dir := t.TempDir()
				if err := os.CopyFS(dir, os.DirFS(killed)); err != nil {
					t.Fatal(err)
				}
				writeFile(t, segmentOf(t, dir), torn)
				log := openedWAL(t, dir)
				last, err := log.LastIndex()
				want := uint64(2)
				if cut == to {
					want = 3
				}
				if err != nil || last < 2 || last > want {
					t.Fatalf("cut at byte %d of %d to %d: the last entry is %d, %v", cut, from, to, last, err)
				}
				store(t, log, last+1, 100)
				store(t, log, last+2, smallSegment)
				store(t, log, last+3, 100)
				for index := uint64(1); index <= last+3; index++ {
					if err := log.GetLog(index, new(raft.Log)); err != nil {
						t.Fatalf("cut at byte %d: entry %d: %v", cut, index, err)
					}
				}
				if err := log.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// If any byte of the log changes, no entry is silently missing after an orderly stop. After a kill,
// only entries of the last write can be.
func TestWALMissesNoEntrySilently(t *testing.T) {
	const entries = 6
	stopped, killed := t.TempDir(), t.TempDir()
	log := openedWAL(t, stopped)
	var ends []int
	for index := uint64(1); index <= entries; index++ {
		store(t, log, index, 30)
		ends = append(ends, used(t, segmentOf(t, stopped)))
	}
	if err := os.CopyFS(killed, os.DirFS(stopped)); err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name   string
		from   string
		silent int // first byte from which the last entry can be missing silently
	}{
		{"stopped", stopped, ends[entries-1]},
		{"killed", killed, ends[entries-2]},
	} {
		t.Run(row.name, func(t *testing.T) {
			good := readFile(t, segmentOf(t, row.from))
			for at := range ends[entries-1] {
				dir := t.TempDir()
				if err := os.CopyFS(dir, os.DirFS(row.from)); err != nil {
					t.Fatal(err)
				}
				data := slices.Clone(good)
				data[at] ^= 0x04
				writeFile(t, segmentOf(t, dir), data)
				found, why := intactEntries(dir)
				switch {
				case why != nil && !strings.Contains(why.Error(), "stop this node permanently"):
					t.Errorf("byte %d: %v", at, why)
				case why == nil && found < entries && (at < row.silent || found < entries-1):
					t.Errorf("byte %d: %d of %d entries, and nothing is said", at, found, entries)
				}
			}
		})
	}
}

// bbolt's file has term, vote and, for bolt, the entries. If any bit of it changes, nothing is
// silently missing after an orderly stop.
func TestBoltMissesNothingSilently(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, kind logstore.Kind) {
		t.Parallel()
		const entries = 6
		dir := t.TempDir()
		log, err := openSmall(dir, kind, func(err error) { t.Error(err) })
		if err != nil {
			t.Fatal(err)
		}
		for index := uint64(1); index <= entries; index++ {
			store(t, log, index, 30)
		}
		if err := errors.Join(log.SetUint64([]byte("CurrentTerm"), 9), log.SetUint64([]byte("LastVoteTerm"), 9), log.Set([]byte("LastVoteCand"), []byte("n2.1")), log.Close()); err != nil {
			t.Fatal(err)
		}
		file := "raft.db"
		if kind == logstore.WAL {
			file = "raft-wal/wal-meta.db"
		}
		data := readFile(t, filepath.Join(dir, file))
		for at := range data {
			if data[at] == 0 && at%64 != 0 { // most of a page is never read
				continue
			}
			if !longtest.All() && at%5 != 0 {
				continue
			}
			changed := slices.Clone(data)
			changed[at] ^= 1 << (at % 8)
			copied := filepath.Join(t.TempDir(), "log") // a refused file can stay locked
			if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			writeFile(t, filepath.Join(copied, file), changed)
			if missing := missingOf(copied, kind, entries); missing != "" {
				t.Errorf("byte %d of %d, in page %d at %d: %s, without a word", at, len(data), at/4096, at%4096, missing)
			}
		}
	})
}

// missingOf returns the missing entries of a log that opens and reads without an error.
func missingOf(dir string, kind logstore.Kind, entries uint64) string {
	faults := 0
	log, err := openSmall(dir, kind, func(error) { faults++ })
	if err != nil {
		return ""
	}
	defer func() { _ = log.Close() }()
	term, termErr := log.GetUint64([]byte("CurrentTerm"))
	voted, votedErr := log.GetUint64([]byte("LastVoteTerm"))
	vote, voteErr := log.Get([]byte("LastVoteCand"))
	last, lastErr := log.LastIndex()
	if errors.Join(termErr, votedErr, voteErr, lastErr) != nil || term == 0 { // without a term no node starts
		return ""
	}
	for index := uint64(1); index <= last; index++ {
		if log.GetLog(index, new(raft.Log)) != nil {
			return ""
		}
	}
	if faults > 0 || (term == 9 && voted == 9 && string(vote) == "n2.1" && last == entries) {
		return ""
	}
	return fmt.Sprintf("term %d, vote of %d for %q, entries up to %d", term, voted, vote, last)
}

// intactEntries counts the entries of a log up to a reported fault.
func intactEntries(dir string) (int, error) {
	log, err := logstore.OpenWAL(dir, smallSegment, func(error) {})
	if err != nil {
		return 0, err
	}
	defer func() { _ = log.Close() }()
	last, err := log.LastIndex()
	if err != nil {
		return 0, err
	}
	for index := range last {
		if err := log.GetLog(index+1, new(raft.Log)); err != nil {
			return 0, err
		}
	}
	return int(last), nil
}

// A store that has lost some of its files is refused, with the reason.
func TestLogWithoutAllOfItIsRefused(t *testing.T) {
	shorten := func(bytes int64) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			t.Helper()
			about, err := os.Stat(path)
			if err == nil {
				err = os.Truncate(path, about.Size()-bytes)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	halve := func(t *testing.T, path string) {
		t.Helper()
		shorten(int64(len(readFile(t, path))/2))(t, path)
	}
	remove := func(t *testing.T, path string) {
		t.Helper()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct {
		name   string
		kind   logstore.Kind
		file   string // a pattern in the log's directory; the first or last match
		last   bool
		damage func(t *testing.T, path string)
		reason string
	}{
		{"bolt, cut short", logstore.Bolt, "raft.db", true, halve, "bytes instead of"},
		{"wal, its meta data cut short", logstore.WAL, "raft-wal/wal-meta.db", true, halve, "bytes instead of"},
		{"wal, a closed segment cut short", logstore.WAL, "raft-wal/*.wal", false, shorten(16), "bytes instead of"},
		{"wal, a closed segment missing", logstore.WAL, "raft-wal/*.wal", false, remove, "is missing"},
		{"wal, the last segment cut short", logstore.WAL, "raft-wal/*.wal", true, shorten(8), "bytes instead of"},
		{"wal, the last segment cut to nothing", logstore.WAL, "raft-wal/*.wal", true, shorten(smallSegment), "but once contained entry 9"},
		{"wal, the last segment missing", logstore.WAL, "raft-wal/*.wal", true, remove, "but once contained entry 9"},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := t.TempDir()
			log, err := openSmall(dir, row.kind, func(err error) { t.Error(err) })
			if err != nil {
				t.Fatal(err)
			}
			for index := uint64(1); index <= 9; index++ {
				store(t, log, index, 500)
			}
			if err := log.Close(); err != nil {
				t.Fatal(err)
			}
			paths, err := filepath.Glob(filepath.Join(dir, row.file))
			if err != nil || len(paths) == 0 {
				t.Fatal(paths, err)
			}
			slices.Sort(paths)
			path := paths[0]
			if row.last {
				path = paths[len(paths)-1]
			}
			row.damage(t, path)
			log, err = openSmall(dir, row.kind, func(error) {})
			if err == nil {
				_ = log.Close()
			}
			if err == nil || !strings.Contains(err.Error(), row.reason) || !strings.Contains(err.Error(), "stop this node permanently") {
				t.Errorf("got %v, want %q", err, row.reason)
			}
		})
	}
}

// A segment whose creation was interrupted, for example by a full disk, is created again.
func TestWALMakesASegmentAgain(t *testing.T) {
	dir := t.TempDir()
	log := openedWAL(t, dir)
	store(t, log, 1, smallSegment) // closes the first one
	store(t, log, 2, smallSegment)
	if err := log.DeleteRange(3, 3); err != nil { // waits until the third exists
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(segmentOf(t, dir), 0); err != nil {
		t.Fatal(err)
	}
	for index := uint64(3); index < 6; index++ {
		log := openedWAL(t, dir)
		store(t, log, index, 100)
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A segment that cannot be created ends the node with the reason, one write later.
func TestWALSaysWhyItHasNoSegment(t *testing.T) {
	dir := t.TempDir()
	var faults []error
	log, err := logstore.OpenWAL(dir, smallSegment, func(err error) { faults = append(faults, err) })
	if err != nil {
		t.Fatal(err)
	}
	store(t, log, 1, 100)
	if err := os.Rename(logstore.Path(dir, logstore.WAL), filepath.Join(dir, "elsewhere")); err != nil {
		t.Fatal(err)
	}
	store(t, log, 2, smallSegment) // is written, and closes the segment
	err = log.StoreLog(entry(3))
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "cannot begin a segment") || len(faults) != 1 {
		t.Errorf("got %v, faults %v", err, faults)
	}
	_ = log.Close()
}

func openedWAL(t *testing.T, dir string) logStore {
	t.Helper()
	log, err := logstore.OpenWAL(dir, smallSegment, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	return log
}

func store(t *testing.T, log logStore, index uint64, size int) {
	t.Helper()
	if err := log.StoreLog(&raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: bytes.Repeat([]byte{0x55}, size)}); err != nil {
		t.Fatal(err)
	}
}

// segmentOf is the current segment.
func segmentOf(t *testing.T, dir string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(logstore.Path(dir, logstore.WAL), "*.wal"))
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	slices.Sort(paths)
	return paths[len(paths)-1]
}

// used is the number of written bytes of a segment.
func used(t *testing.T, path string) int {
	t.Helper()
	return len(bytes.TrimRight(readFile(t, path), "\x00"))
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func writeFile(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// noCuts refuses each truncation.
type noCuts struct{}

func (noCuts) MayCut(uint64, bool) error { return errors.New("this would remove entries") }
func (noCuts) Appending()                {}

// TestTrimOfAClearedLog checks that a node continues when raft trims the log up to its own
// snapshot, after a leader's snapshot has already replaced that part.
func TestTrimOfAClearedLog(t *testing.T) {
	onEachStore(t, func(t *testing.T, kind logstore.Kind) {
		log, err := logstore.Open(t.TempDir(), kind, logstore.Options{Fatal: func(err error) { t.Error(err) }})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = log.Close() }()
		if err := errors.Join(log.StoreLogs([]*raft.Log{entry(1), entry(2), entry(3)}), log.DeleteRange(1, 3)); err != nil {
			t.Fatal(err)
		}
		log.Protect(noCuts{})
		if err := errors.Join(log.DeleteRange(0, 2), log.StoreLog(entry(9))); err != nil {
			t.Error(err)
		}
		if first, last, err := logstore.Bounds(log); first != 9 || last != 9 || err != nil {
			t.Errorf("the log has entries %d to %d (%v), want 9", first, last, err)
		}
	})
}

// TestLogCountsItsWrites checks that operations with fsync are counted, each once, and only after
// the fsync.
func TestLogCountsItsWrites(t *testing.T) {
	onEachStore(t, logCountsItsWrites)
}

func logCountsItsWrites(t *testing.T, kind logstore.Kind) {
	writes := 0
	log, err := logstore.Open(t.TempDir(), kind, logstore.Options{Fatal: func(error) {}, Written: func(time.Duration) { writes++ }})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		what  string
		write func() error
		want  int
	}{
		{"two entries", func() error { return log.StoreLogs([]*raft.Log{entry(1), entry(2)}) }, 1},
		{"one entry", func() error { return log.StoreLog(entry(3)) }, 2},
		{"a vote", func() error { return log.Set([]byte("vote"), []byte("n1")) }, 3},
		{"a term", func() error { return log.SetUint64([]byte("term"), 7) }, 4},
		{"a read", func() error { return log.GetLog(1, &raft.Log{}) }, 4},
		{"a trim", func() error { return log.DeleteRange(1, 2) }, 5},
	} {
		if err := row.write(); err != nil || writes != row.want {
			t.Errorf("after %s: %d writes, want %d (%v)", row.what, writes, row.want, err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if err := log.StoreLog(entry(4)); err == nil || writes != 5 {
		t.Errorf("a write to a closed log is counted: %d (%v)", writes, err)
	}
}
