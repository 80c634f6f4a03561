// Package sums compares the states of the nodes.
//
// All nodes apply the same entries, so they have the same state. If a program applies an entry
// differently, or memory or disk changes a row, the states differ. So the leader compares the nodes
// at intervals:
//
//   - The leader proposes a check, an entry that changes nothing. Each node notes the sums of its
//     tables at this entry.
//   - The leader asks all members for their noted sums.
//   - If some sums differ from a majority, the leader proposes the sums of the majority. Each node
//     compares them with its own. A node with different sums keeps its state as evidence and stops.
//
// A node without sums of this entry, because it was away or has received a snapshot since, is not
// compared. If it runs, the leader proposes another check first.
package sums

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/raftlog/logstore"
)

const (
	// evidenceDir is in the data directory, and contains the state of a node that differed from the
	// majority. A node with this directory does not start.
	evidenceDir = "differs"

	checkMagic   = 'S'
	checkVersion = 1
)

// IsCheck reports whether an entry is a check.
func IsCheck(entry []byte) bool {
	return len(entry) > 1 && entry[0] == checkMagic
}

// Encode makes the entry of a check.
func Encode(check *conductordv1.StateCheck) ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.MarshalAppend([]byte{checkMagic, checkVersion}, check)
}

func decode(data []byte) (*conductordv1.StateCheck, error) {
	if data[1] != checkVersion {
		return nil, fmt.Errorf("a check of the state has version %d, and this program supports %d", data[1], checkVersion)
	}
	check := &conductordv1.StateCheck{}
	return check, command.DecodeMessage(data[2:], check)
}

// Checks wrap the state machine for the log, and keep the noted sums of this node. The goroutine
// that applies entries calls Apply; the other methods may be called concurrently.
type Checks struct {
	*fsm.Machine
	dataDir string
	fatal   func(error)

	mu     sync.Mutex
	latest *notedSums // nil: none yet; guarded by mu
	noting sync.WaitGroup
}

// New is a state machine that notes sums. It keeps evidence in the data directory.
func New(machine *fsm.Machine, dataDir string, fatal func(error)) *Checks {
	return &Checks{Machine: machine, dataDir: dataDir, fatal: fatal}
}

// Close waits for the computation of sums.
func (c *Checks) Close() { c.noting.Wait() }

// notedSums are the sums at one entry.
type notedSums struct {
	index uint64
	done  chan struct{}  // closed when sums is set
	sums  []fsm.TableSum // nil: the node was closing
}

// Apply applies entries, and handles each check after the previous entries are applied.
func (c *Checks) Apply(entries []fsm.Entry) (results [][]*conductordv1.Result, err error) {
	for len(entries) > 0 {
		many := slices.IndexFunc(entries, func(entry fsm.Entry) bool { return IsCheck(entry.Data) }) + 1
		if many == 0 && results == nil {
			return c.Machine.Apply(entries)
		}
		meet := func() {}
		if many == 0 {
			many = len(entries)
		} else {
			check := &entries[many-1]
			meet = c.begin(check.Index, check.Data)
			check.Data = nil // it changes nothing
		}
		applied, err := c.Machine.Apply(entries[:many])
		if err != nil {
			return nil, err
		}
		meet()
		results, entries = append(results, applied...), entries[many:]
	}
	return results, nil
}

// begin runs before a check is applied: a caller that waits until the check is applied must then
// find its sums, or wait for them. meet runs after the check is applied, and handles its content.
func (c *Checks) begin(index uint64, data []byte) (meet func()) {
	check, err := decode(data)
	switch {
	case err != nil:
		return func() { c.fatal(fmt.Errorf("cannot apply entry %d: %w", index, err)) }
	case check.Index > 0:
		return func() { c.judge(check) }
	}
	noted := &notedSums{index: index, done: make(chan struct{})}
	c.mu.Lock()
	c.latest = noted
	c.mu.Unlock()
	return func() { c.note(noted) }
}

// note starts to compute the sums of the current state, in parallel with further entries.
func (c *Checks) note(noted *notedSums) {
	begun, err := c.Machine.Sums()
	if err != nil { // the node is closing
		close(noted.done)
		return
	}
	c.noting.Go(func() { // ends after reading the rows in memory
		noted.sums = begun.Compute()
		_ = begun.Close() // it was only read
		close(noted.done)
	})
}

// At returns the sums at an applied entry. ErrNotFound: none. ErrUnavailable: ctx has ended during
// their computation.
func (c *Checks) At(ctx context.Context, index uint64) ([]fsm.TableSum, error) {
	c.mu.Lock()
	noted := c.latest
	c.mu.Unlock()
	if noted != nil && noted.index == index {
		select {
		case <-noted.done:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: this node is still computing its checksums at entry %d: %w; try again later", jobs.ErrUnavailable, index, ctx.Err())
		}
		if noted.sums != nil {
			return noted.sums, nil
		}
	}
	return nil, fmt.Errorf("%w: this node has no checksums for entry %d: it has restored a snapshot, or another comparison has started; try again", jobs.ErrNotFound, index)
}

// judge stops this node if its sums differ from the sums of the majority.
func (c *Checks) judge(check *conductordv1.StateCheck) {
	own, err := c.At(context.Background(), check.Index) // the computation always ends
	if err != nil {
		return
	}
	differs := Differing(ToProto(own), check.Sums)
	if len(differs) == 0 {
		return
	}
	c.fatal(errors.Join(fmt.Errorf("the state of this node at entry %d differs from the majority, in %s", check.Index, strings.Join(differs, ", ")),
		c.keepEvidence(check, own)))
}

// keepEvidence writes the current state and both lists of sums.
func (c *Checks) keepEvidence(check *conductordv1.StateCheck, own []fsm.TableSum) error {
	dir := filepath.Join(c.dataDir, evidenceDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("cannot keep the evidence: %w", err)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "entry %d\n", check.Index)
	for i, sum := range own {
		fmt.Fprintf(&text, "%s: %016x here, %016x at the majority\n", sum.Table, sum.Sum, check.Sums[min(i, len(check.Sums)-1)].GetSum())
	}
	snapshot, err := c.Machine.Snapshot()
	if err != nil {
		return fmt.Errorf("cannot keep the evidence: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(dir, "state"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = snapshot.WriteTo(file)
		err = errors.Join(err, file.Sync(), file.Close())
	}
	return errors.Join(err, snapshot.Close(), logstore.WriteSynced(filepath.Join(dir, "sums"), []byte(text.String())))
}

// RefuseEvidence refuses to start a node that has differed from a majority.
func RefuseEvidence(dataDir string) error {
	dir := filepath.Join(dataDir, evidenceDir)
	if _, err := os.Stat(dir); err != nil {
		return nil
	}
	return fmt.Errorf("the state of this node differed from the majority: %s contains its state and the checksums of its tables; "+
		"keep these files for an analysis, empty the data directory, and run \"conductord cluster replace\" on this machine", dir)
}

// Differing returns the names of the tables whose sums differ.
func Differing(a, b []*conductordv1.TableSum) (tables []string) {
	for i, sum := range a {
		if i >= len(b) || b[i].GetTable() != sum.GetTable() || b[i].GetSum() != sum.GetSum() {
			tables = append(tables, "table "+sum.GetTable())
		}
	}
	if len(b) > len(a) {
		tables = append(tables, "tables that it does not have")
	}
	return tables
}

// ToProto converts sums to messages.
func ToProto(sums []fsm.TableSum) []*conductordv1.TableSum {
	told := make([]*conductordv1.TableSum, len(sums))
	for i, sum := range sums {
		told[i] = &conductordv1.TableSum{Table: sum.Table, Sum: sum.Sum}
	}
	return told
}
