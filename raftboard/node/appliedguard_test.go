package node_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node"
	"github.com/conductord/conductord/raftboard/node/raftlog/logstore"
	"github.com/conductord/conductord/raftboard/node/raftlog/transport"
)

// forger sends raft messages to the nodes under the name of a node.
type forger struct {
	net.Listener
	from transport.Hello
}

func (f forger) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	conn, err := net.DialTimeout("tcp", string(address), timeout)
	if err == nil {
		_, err = transport.Greet(conn, transport.PurposeRaft, f.from)
	}
	return conn, err
}

// A message that would remove applied entries, or install a snapshot older than them, ends every
// node that gets it, with the name of its sender. No entry is lost.
func TestAppliedEntriesAreNeverRemoved(t *testing.T) {
	t.Parallel()
	const hadJobs = 30
	for _, row := range []struct {
		name  string
		forge func(to *raft.NetworkTransport, address raft.ServerAddress, header raft.RPCHeader) error
		asked string
	}{
		{"the log is cut at its first entry", func(to *raft.NetworkTransport, address raft.ServerAddress, header raft.RPCHeader) error {
			return to.AppendEntries("", address, &raft.AppendEntriesRequest{
				RPCHeader: header, Term: 1000, Entries: []*raft.Log{{Index: 1, Term: 1000, Type: raft.LogNoop}},
			}, &raft.AppendEntriesResponse{})
		}, "remove all entries from 1 on"},
		{"the log is cut further on", func(to *raft.NetworkTransport, address raft.ServerAddress, header raft.RPCHeader) error {
			return to.AppendEntries("", address, &raft.AppendEntriesRequest{
				RPCHeader: header, Term: 1000, Entries: []*raft.Log{{Index: 5, Term: 1000, Type: raft.LogNoop}},
			}, &raft.AppendEntriesResponse{})
		}, "remove all entries from 5 on"},
		{"an old snapshot", func(to *raft.NetworkTransport, address raft.ServerAddress, header raft.RPCHeader) error {
			return to.InstallSnapshot("", address, &raft.InstallSnapshotRequest{
				RPCHeader: header, SnapshotVersion: 1, Term: 1000, LastLogIndex: 5, LastLogTerm: 1000, Size: 4,
				Configuration: raft.EncodeConfiguration(raft.Configuration{}),
			}, &raft.InstallSnapshotResponse{}, strings.NewReader("junk"))
		}, "go back to a snapshot of entry 5"},
	} {
		t.Run(row.name, func(t *testing.T) {
			onEachStore(t, func(t *testing.T, kind logstore.Kind) {
				t.Parallel()
				faults := make(chan error, 10)
				c := newCluster(t, 3, onStore(kind), func(o *node.Options) {
					o.Fatal = func(err error) { faults <- err }
				}).startAll()
				client := c.client()
				for range hadJobs {
					posted(t, client)
				}
				same(t, c)
				members := c.options[0].Members
				for i, victim := range members {
					listener, err := net.Listen("tcp", "127.0.0.1:0")
					if err != nil {
						t.Fatal(err)
					}
					other := (i + 1) % len(members)
					sender := members[other]
					sender.Incarnation = transport.FirstIncarnation
					as := forger{listener, node.HelloOf(c.nodes[other])}
					forged := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
						Stream: as, Timeout: patience, Logger: hclog.NewNullLogger(), MaxPool: 1,
					})
					header := raft.RPCHeader{ProtocolVersion: 3, ID: []byte(members[other].Name + ".1"), Addr: []byte(sender.Address())}
					var fault error
					for began := time.Now(); fault == nil; {
						_ = row.forge(forged, raft.ServerAddress(victim.Raft), header) // refused, or the connection ends, perhaps before the message is read
						select {
						case fault = <-faults:
						case <-time.After(time.Second):
						}
						if fault == nil && time.Since(began) > patience {
							t.Fatalf("%s continues after a request to remove applied entries", victim.Name)
						}
					}
					if !strings.Contains(fault.Error(), row.asked) || !strings.Contains(fault.Error(), string(header.ID)) {
						t.Errorf("the end of %s: %v", victim.Name, fault)
					}
					if err := forged.Close(); err != nil {
						t.Error(err)
					}
				}
				for i := range c.nodes {
					c.stop(i)
				}
				for len(faults) > 0 {
					<-faults
				}
				c.startAll()
				if page, err := client.Jobs(t.Context(), jobs.Query{}); err != nil || len(page.Items) != hadJobs {
					t.Errorf("%d jobs of %d are left, %v", len(page.Items), hadJobs, err)
				}
				same(t, c)
				if len(faults) > 0 {
					t.Error(<-faults)
				}
			})
		})
	}
}

// A damaged snapshot, or one that cannot be restored, changes nothing: it does not replace older
// snapshots, and the node continues and starts again.
func TestBadSnapshotsAreNotKept(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{
		"rubbish":               strings.Repeat("forged", 1000),
		"an empty one":          "",
		"cut short":             sealedSnapshot("pages")[:60],
		"another sum":           sealedSnapshot("pages")[:60] + strings.Repeat("x", 100),
		"a right sum of no use": sealedSnapshot(strings.Repeat("no tables", 1000)),
	} {
		t.Run(name, func(t *testing.T) {
			if name != "rubbish" && name != "a right sum of no use" {
				longtest.Skip(t)
			}
			t.Parallel()
			c := newCluster(t, 3).startAll()
			client := c.client()
			for range 3 {
				posted(t, client)
			}
			same(t, c)
			away := c.others(c.leader())
			victim, sender := c.nodes[away[0]], c.options[0].Members[away[1]]
			sender.Incarnation = transport.FirstIncarnation
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			forged := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
				Stream: forger{listener, node.HelloOf(c.nodes[away[1]])}, Timeout: patience, Logger: hclog.NewNullLogger(), MaxPool: 1,
			})
			defer forged.Close()
			behind := node.Raft(victim)
			index, term := behind.LastIndex()+10, behind.CurrentTerm()+1
			list := behind.GetConfiguration().Configuration()
			var answer raft.InstallSnapshotResponse
			err = forged.InstallSnapshot("", raft.ServerAddress(c.options[away[0]].Members[away[0]].Raft), &raft.InstallSnapshotRequest{
				RPCHeader:       raft.RPCHeader{ProtocolVersion: 3, ID: []byte(sender.ID()), Addr: []byte(sender.Address())},
				SnapshotVersion: 1, Term: term, LastLogIndex: index, LastLogTerm: term, Size: int64(len(content)),
				Configuration: raft.EncodeConfiguration(list), ConfigurationIndex: 1,
			}, &answer, strings.NewReader(content))
			if err == nil || answer.Success {
				t.Errorf("it is answered with %+v, %v", answer, err)
			}
			kept, err := os.ReadDir(filepath.Join(c.options[away[0]].DataDir, "snapshots"))
			if err != nil || len(kept) > 0 {
				t.Errorf("kept: %v, %v", kept, err)
			}
			posted(t, client)
			c.stop(away[0])
			c.options[away[0]].Init = false
			c.start(away[0])
			c.ready()
			posted(t, client)
			same(t, c)
		})
	}
}

// sealedSnapshot is a snapshot with a correct header, length and checksum.
func sealedSnapshot(database string) string {
	var text bytes.Buffer
	size := uint64(len(database))
	text.WriteString("conductd")
	for _, number := range []any{uint32(fsm.SnapshotFormat), uint32(fsm.RowsFormat), uint64(1), uint64(1), size} {
		_ = binary.Write(&text, binary.BigEndian, number)
	}
	text.WriteString(database)
	_ = binary.Write(&text, binary.BigEndian, size)
	sum := sha256.Sum256(text.Bytes())
	return text.String() + string(sum[:])
}
