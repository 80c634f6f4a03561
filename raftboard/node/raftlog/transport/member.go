package transport

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/hashicorp/raft"
)

// Member is a node of a cluster. Raft stores an id and one address of each server, and does not
// interpret the address. Here the address holds everything that is needed to reach and recognise
// a member, so raft's configuration is the only list of members.
type Member struct {
	Name string `json:"name"`
	// Incarnation distinguishes successive nodes of the same name: FirstIncarnation for the
	// founders of a cluster, and otherwise the result of IncarnationOf.
	Incarnation string `json:"incarnation"`
	Raft        string `json:"raft"` // host:port of its raft port for other nodes
	API         string `json:"api"`  // host:port of its HTTP port for other nodes and clients
}

// FirstIncarnation is equal for all founders of a cluster, so each of them can write the same first
// configuration without asking the others.
const FirstIncarnation = "1"

// IncarnationOf is the incarnation of a node that joins a cluster. Two nodes of one name
// have different ones.
func IncarnationOf(instance uuid.UUID) string { return instance.String()[:8] }

// ServerID returns raft's id of a node.
func ServerID(name, incarnation string) raft.ServerID {
	return raft.ServerID(name + "." + incarnation)
}

// ID is the member's id in raft's configuration.
func (m Member) ID() raft.ServerID { return ServerID(m.Name, m.Incarnation) }

// Address is the member's address in raft's configuration: ID@RAFT,API.
func (m Member) Address() raft.ServerAddress {
	return raft.ServerAddress(string(m.ID()) + "@" + m.Raft + "," + m.API)
}

// ParseAddress is the inverse of Member.Address.
func ParseAddress(address raft.ServerAddress) (Member, error) {
	text := string(address)
	at := strings.LastIndexByte(text, '@') // a name can contain @, a host:port cannot
	id := text[:max(at, 0)]
	dot := strings.LastIndexByte(id, '.')
	raftPort, api, complete := strings.Cut(text[at+1:], ",")
	if dot < 0 || !complete {
		return Member{}, fmt.Errorf("%.128q is not the address of a member in raft's configuration", text)
	}
	return Member{Name: id[:dot], Incarnation: id[dot+1:], Raft: raftPort, API: api}, nil
}

// Roster is the list of a cluster's founders: their addresses in raft's configuration, by name.
// It never changes.
type Roster map[string]raft.ServerAddress

// Names are the members' names in order.
func (r Roster) Names() []string { return slices.Sorted(maps.Keys(r)) }

func (r Roster) String() string {
	texts := make([]string, 0, len(r))
	for _, name := range r.Names() {
		texts = append(texts, string(r[name]))
	}
	return fmt.Sprintf("%q", texts) // quoted, because the other list can contain anything
}
