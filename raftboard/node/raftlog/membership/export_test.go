package membership

import (
	"strings"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/conductord/conductord/raftboard/node/raftlog"
	"github.com/conductord/conductord/raftboard/node/raftlog/transport"
)

// AdmitAtStart asks a starting node whether it admits another node. It has not read raft's
// configuration yet, and has met one other node in an earlier run.
func AdmitAtStart(met, other transport.Hello) error {
	three := []transport.Member{{Name: "n1"}, {Name: "n2"}, {Name: "n3"}}
	known := &IdentityStore{id: Identity{Bootstrapped: true, Peers: map[raft.ServerID]uuid.UUID{met.ID(): met.Instance}}}
	return (&Members{roster: RosterOf(three), identity: known, group: new(raftlog.Group)}).Admit(other)
}

// WarningsAboutFile is the log at the start of the first node of a file, in a cluster with other members.
func WarningsAboutFile(cluster, file []transport.Member) string {
	var log strings.Builder
	logger := hclog.New(&hclog.LoggerOptions{Output: &log, DisableTime: true})
	known := &IdentityStore{id: Identity{Bootstrapped: true}}
	(&Members{self: file[0], file: file, roster: RosterOf(cluster), identity: known, group: new(raftlog.Group), logger: logger}).warnOfFile()
	return log.String()
}
