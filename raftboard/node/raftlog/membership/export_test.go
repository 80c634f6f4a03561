package membership

import (
	"github.com/google/uuid"
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
