package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/proto"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/replication"
	"github.com/conductord/conductord/raftboard/wire"
)

// All nodes apply the same entries, so they have the same state. If a program applies an
// entry differently, or memory or disk changes a row, they have not. So the leader compares
// the nodes now and then:
//
//   - It proposes a check, an entry that changes nothing. Each node notes the sums of its
//     tables at that entry.
//   - It asks all members for what they have noted.
//   - If some differ from a majority, it proposes the sums of the majority. Each node
//     compares them with its own. One that differs keeps its state as evidence and stops.
//
// A node without those sums, because it was away or got a snapshot since, is not judged. If
// it runs, the leader proposes another check first.
const (
	// checkPatience is how long a node that is behind is waited for.
	checkPatience = 8 * time.Second
	// checkRounds is how many checks are proposed until each running member has sums at one.
	// The second finds the sums of a member that has just restored a snapshot.
	checkRounds = 3
	// comparePatience bounds all rounds. A client waits for 20 s.
	comparePatience = 16 * time.Second
	// evidenceDir is in the data directory, and has the state of a node that differed. A
	// node with it does not start.
	evidenceDir = "differs"

	checkMagic   = 'S'
	checkVersion = 1
)

// isStateCheck reports whether an entry is a check.
func isStateCheck(entry []byte) bool {
	return len(entry) > 1 && entry[0] == checkMagic
}

func encodeCheck(check *conductordv1.StateCheck) ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.MarshalAppend([]byte{checkMagic, checkVersion}, check)
}

func decodeCheck(data []byte) (*conductordv1.StateCheck, error) {
	if data[1] != checkVersion {
		return nil, fmt.Errorf("a check of the state has version %d, and this program knows %d", data[1], checkVersion)
	}
	check := &conductordv1.StateCheck{}
	return check, command.DecodeMessage(data[2:], check)
}

// stateChecks are the state machine as the log sees it, and what this node has noted. The
// goroutine that applies entries calls Apply; the other methods may be called concurrently.
type stateChecks struct {
	*fsm.Machine
	dataDir string
	fatal   func(error)

	mu     sync.Mutex
	latest *notedSums // nil: none yet; under mu
	noting sync.WaitGroup
}

// notedSums are the sums at one entry.
type notedSums struct {
	index uint64
	done  chan struct{}  // closed when sums is set
	sums  []fsm.TableSum // nil: the node was closing
}

// Apply applies entries, and meets each check after the entries before it are applied.
func (c *stateChecks) Apply(entries []fsm.Entry) (results [][]*conductordv1.Result, err error) {
	for len(entries) > 0 {
		many := slices.IndexFunc(entries, func(entry fsm.Entry) bool { return isStateCheck(entry.Data) }) + 1
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

// begin is called before a check is applied: a caller that waits for the check to be applied
// must then find its sums, or wait for them. meet does what the check says, after it is applied.
func (c *stateChecks) begin(index uint64, data []byte) (meet func()) {
	check, err := decodeCheck(data)
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

// note begins to sum up the present state. The sums are computed beside further entries.
func (c *stateChecks) note(noted *notedSums) {
	begun, err := c.Machine.Sums()
	if err != nil { // the node is closing
		close(noted.done)
		return
	}
	c.noting.Go(func() { // ends when it has looked at the rows in memory
		noted.sums = begun.Compute()
		_ = begun.Close() // it was only read
		close(noted.done)
	})
}

// at returns the sums that were noted at an entry that has been applied. ErrNotFound: there
// are none. ErrUnavailable: ctx has ended while they are computed.
func (c *stateChecks) at(ctx context.Context, index uint64) ([]fsm.TableSum, error) {
	c.mu.Lock()
	noted := c.latest
	c.mu.Unlock()
	if noted != nil && noted.index == index {
		select {
		case <-noted.done:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: this node still computes its sums at entry %d: %w; compare again later", jobs.ErrUnavailable, index, ctx.Err())
		}
		if noted.sums != nil {
			return noted.sums, nil
		}
	}
	return nil, fmt.Errorf("%w: this node has no sums at entry %d: it has restored a snapshot, or another comparison has begun; compare again", jobs.ErrNotFound, index)
}

// judge stops this node if its sums are not those of the majority.
func (c *stateChecks) judge(check *conductordv1.StateCheck) {
	own, err := c.at(context.Background(), check.Index) // computing ends
	if err != nil {
		return
	}
	differs := differing(sumsToProto(own), check.Sums)
	if len(differs) == 0 {
		return
	}
	c.fatal(errors.Join(fmt.Errorf("the state of this node at entry %d differs from that of a majority, in %s", check.Index, strings.Join(differs, ", ")),
		c.keepEvidence(check, own)))
}

// keepEvidence writes the present state and both lists of sums.
func (c *stateChecks) keepEvidence(check *conductordv1.StateCheck, own []fsm.TableSum) error {
	dir := filepath.Join(c.dataDir, evidenceDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("cannot keep the evidence: %w", err)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "entry %d\n", check.Index)
	for i, sum := range own {
		fmt.Fprintf(&text, "%s: %016x here, %016x at a majority\n", sum.Table, sum.Sum, check.Sums[min(i, len(check.Sums)-1)].GetSum())
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
	return errors.Join(err, snapshot.Close(), writeSynced(filepath.Join(dir, "sums"), []byte(text.String())))
}

// refuseEvidence refuses to start a node that has differed from a majority.
func refuseEvidence(dataDir string) error {
	dir := filepath.Join(dataDir, evidenceDir)
	if _, err := os.Stat(dir); err != nil {
		return nil
	}
	return fmt.Errorf("the state of this node has differed from that of a majority: %s has its state and the sums of its tables; "+
		"keep them for those who look into it, empty the data directory, and run \"conductord cluster replace\" here", dir)
}

// differing are the names of the tables whose sums differ.
func differing(a, b []*conductordv1.TableSum) (tables []string) {
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

func sumsToProto(sums []fsm.TableSum) []*conductordv1.TableSum {
	return toProto(sums, func(sum *fsm.TableSum) *conductordv1.TableSum {
		return &conductordv1.TableSum{Table: sum.Table, Sum: sum.Sum}
	})
}

// verifyService compares the members.
type verifyService struct {
	log     replication.Log
	checks  *stateChecks
	members *membership
	router  *router
	serves  func() bool
	running chan struct{} // holds one
	logger  hclog.Logger
}

// tableSums answers for this node.
func (s *verifyService) tableSums(ctx context.Context, request *connect.Request[conductordv1.TableSumsRequest]) (*connect.Response[conductordv1.TableSumsResponse], error) {
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	index := request.Msg.Index
	err := s.checks.WaitApplied(ctx, index)
	if err != nil {
		return nil, wire.ErrorToConnect(fmt.Errorf("%w: this node is behind, and has not applied entry %d yet: %w; compare again when \"conductord cluster health\" shows that it has caught up", jobs.ErrUnavailable, index, err))
	}
	sums, err := s.checks.at(ctx, index)
	if err != nil {
		return nil, wire.ErrorToConnect(err)
	}
	return connect.NewResponse(&conductordv1.TableSumsResponse{Sums: sumsToProto(sums)}), nil
}

// watch compares the members now and then while this node leads. It ends with ctx.
func (s *verifyService) watch(ctx context.Context, interval time.Duration) {
	for range every(ctx, interval) {
		if !s.serves() {
			continue
		}
		if _, _, err := s.verify(ctx, nil); err != nil && ctx.Err() == nil {
			s.logger.Warn("cannot compare the states of the members", "error", err)
		}
	}
}

func (s *verifyService) verify(ctx context.Context, _ *conductordv1.VerifyRequest) (*conductordv1.VerifyResponse, uint64, error) {
	bounded, cancel := context.WithTimeout(ctx, comparePatience)
	defer cancel()
	select {
	case s.running <- struct{}{}:
		defer func() { <-s.running }()
	case <-bounded.Done():
		return nil, 0, fmt.Errorf("%w: another comparison is under way: %w; compare again later", jobs.ErrUnavailable, bounded.Err())
	}
	members, told, index, err := s.sumsOfAll(bounded)
	if err != nil {
		return nil, 0, err
	}
	majority := majorityOf(told)
	answer := &conductordv1.VerifyResponse{Index: index}
	alike := majority != nil
	for i, member := range members {
		row := &conductordv1.MemberCheck{Name: member.Name}
		switch {
		case told[i].err != nil:
			row.Error = told[i].err.Error()
		case majority == nil:
			row.Error = "no majority of the members has the same sums"
		default:
			row.Differs = strings.Join(differing(told[i].sums, majority), ", ")
			row.Same = row.Differs == ""
			alike = alike && row.Same
		}
		answer.Members = append(answer.Members, row)
	}
	switch {
	case majority == nil:
		s.logger.Error("the members cannot be compared: no majority has the same sums", "index", index)
	case !alike:
		s.logger.Error("a member differs from a majority", "index", index, "members", answer.Members)
		_, err = s.propose(ctx, &conductordv1.StateCheck{Index: index, Sums: majority})
	}
	return answer, index, err
}

// sumsOfAll has the members sum up their tables at an entry: at a later one if a member that
// runs has none, while ctx lasts.
func (s *verifyService) sumsOfAll(ctx context.Context) (members []listed, told []toldSums, index uint64, err error) {
	for range checkRounds {
		later, err := s.propose(ctx, &conductordv1.StateCheck{})
		if err != nil && told == nil {
			return nil, nil, 0, err
		}
		if err != nil {
			break // the earlier round says which member has no sums
		}
		index, members = later, s.members.now()
		told = s.askAll(ctx, members, index)
		if !slices.ContainsFunc(told, func(one toldSums) bool { return errors.Is(one.err, jobs.ErrNotFound) }) {
			break
		}
	}
	return members, told, index, nil
}

// propose has a check committed, and returns its index.
func (s *verifyService) propose(ctx context.Context, check *conductordv1.StateCheck) (uint64, error) {
	data, err := encodeCheck(check)
	if err != nil {
		return 0, fmt.Errorf("cannot encode a check of the state: %w", err)
	}
	pending := s.log.Append(data)
	index := uint64(0)
	done := make(chan error, 1)
	go func() { // ends at the latest with this node's leadership
		var err error
		index, _, err = pending.Wait()
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil && !errors.Is(err, jobs.ErrUnavailable) {
			err = fmt.Errorf("%w: %w", jobs.ErrUnavailable, err)
		}
		return index, err
	case <-ctx.Done():
		return 0, fmt.Errorf("%w: the check of the state was not committed: %w", jobs.ErrUnavailable, ctx.Err())
	}
}

// toldSums are the sums that a member has told.
type toldSums struct {
	sums []*conductordv1.TableSum
	err  error
}

// askAll asks all members for their sums at an entry, at the same time.
func (s *verifyService) askAll(ctx context.Context, members []listed, index uint64) []toldSums {
	ctx, cancel := context.WithTimeout(ctx, checkPatience+time.Second)
	defer cancel()
	told := make([]toldSums, len(members))
	var asking sync.WaitGroup
	for i, member := range members {
		asking.Go(func() {
			client := connect.NewClient[conductordv1.TableSumsRequest, conductordv1.TableSumsResponse](
				s.router.client, s.router.secure.url(member.API, wire.Prefix+"ClusterService/TableSums"), wire.ClientOptions()...)
			answer, err := client.CallUnary(ctx, connect.NewRequest(&conductordv1.TableSumsRequest{Index: index}))
			if err != nil {
				told[i].err = wire.ErrorFromConnect(err)
				return
			}
			told[i].sums = answer.Msg.Sums
		})
	}
	asking.Wait()
	return told
}

// majorityOf returns the sums that more than half of the members have; nil: there are none.
func majorityOf(told []toldSums) []*conductordv1.TableSum {
	for _, one := range told {
		same := 0
		for _, other := range told {
			if one.err == nil && other.err == nil && slices.Equal(differing(one.sums, other.sums), nil) {
				same++
			}
		}
		if same > len(told)/2 {
			return one.sums
		}
	}
	return nil
}
