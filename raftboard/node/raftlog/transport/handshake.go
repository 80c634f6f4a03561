package transport

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/raft"
)

// A handshake precedes everything else on the raft port, so raft gets no message of a node of
// another cluster, of an older generation, or with forgotten votes.
//
//	dialer  → magic, purpose, length, hello (JSON)
//	listener→ length, welcome (JSON); a refusal has a reason, and ends the connection
const (
	// HandshakeMagic is the start of each connection.
	HandshakeMagic   = "CDR1"
	handshakeTimeout = 2 * time.Second
	maxHandshake     = 16 << 10 // bytes of a hello or welcome: a refusal contains two member lists
)

// Purpose is the use of a connection to the raft port.
type Purpose byte

// The purposes.
const (
	PurposeRaft     Purpose = 'R' // hashicorp/raft's own protocol
	PurposeStanding Purpose = 'T' // questions for the peer's Standing
	PurposeProbe    Purpose = 'P' // nothing further: the handshake is the question
)

// Hello is the first message of each end.
type Hello struct {
	Cluster     string    `json:"cluster"`
	Generation  uint64    `json:"generation"`
	Origin      string    `json:"origin,omitempty"` // digest of the state with which a restored cluster started
	Name        string    `json:"name"`
	Incarnation string    `json:"incarnation"`
	Instance    uuid.UUID `json:"instance"`
	// Start counts the starts of the node, and Run is drawn at each. They distinguish a copy of a
	// data directory from its original.
	Start uint64    `json:"start"`
	Run   uuid.UUID `json:"run"`
	// Members is the list of the founders of the node's cluster. Agreed: the node has listened
	// for an election timeout and found no other list. Joined: the node takes part in raft.
	Members Roster `json:"members"`
	Agreed  bool   `json:"agreed"`
	Joined  bool   `json:"joined"`
	// Present are the current members known to the node.
	Present []raft.ServerID `json:"present"`
	// Peers are the instances of the other nodes that this one has met.
	Peers map[raft.ServerID]uuid.UUID `json:"peers"`
}

// ID is the node's id in raft's configuration.
func (h Hello) ID() raft.ServerID { return ServerID(h.Name, h.Incarnation) }

// Welcome is the listener's answer.
type Welcome struct {
	Hello
	Refusal string `json:"refusal,omitempty"`
	Removed bool   `json:"removed,omitempty"` // the reason of the refusal is ErrRemoved
}

// ErrRemoved: the node was a member of the cluster, and was removed.
var ErrRemoved = errors.New("it was removed or replaced")

// RefusedError is a listener's refusal, as returned to its dialer.
type RefusedError struct {
	peer    string
	reason  string
	From    uuid.UUID // instance of the listener
	Removed bool      // the reason is ErrRemoved
}

func (e *RefusedError) Error() string { return fmt.Sprintf("refused by node %q: %s", e.peer, e.reason) }

// Identity keeps this node's identity durably. Its methods may be called concurrently.
type Identity interface {
	// Self is the durable part of this node's hello. The port sets Run, Members, Present, Agreed
	// and Joined.
	Self() Hello
}

// answer is the listener's half of the handshake. It returns the purpose of the connection, and the
// node at its other end.
func (p *Port) answer(conn net.Conn) (Purpose, raft.ServerID, error) {
	if err := conn.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return 0, "", err
	}
	head := make([]byte, len(HandshakeMagic)+1)
	if _, err := io.ReadFull(conn, head); err != nil {
		return 0, "", fmt.Errorf("no handshake: %w", err)
	}
	if string(head[:len(HandshakeMagic)]) != HandshakeMagic {
		return 0, "", fmt.Errorf("not a conductord node: its first bytes are %q", head)
	}
	var from Hello
	if err := readFrame(conn, &from); err != nil {
		return 0, "", fmt.Errorf("bad handshake: %w", err)
	}
	if err := p.certified(conn, from.Name); err != nil {
		return 0, "", err // no welcome: only members may learn what this node knows
	}
	refusal := p.judge(from)
	reply := Welcome{Hello: p.Hello()}
	if refusal != nil {
		reply.Refusal, reply.Removed = refusal.Error(), errors.Is(refusal, ErrRemoved)
	}
	err := writeFrame(conn, nil, reply)
	p.reportLists(from, refusal) // after the answer: this node may stop now, and the other one needs the reason
	if err != nil {
		return 0, "", err
	}
	if refusal != nil {
		return 0, "", refusal
	}
	return Purpose(head[len(HandshakeMagic)]), from.ID(), conn.SetDeadline(time.Time{})
}

// Greet is the dialer's half of the handshake. The welcome can be a refusal.
func Greet(conn net.Conn, what Purpose, from Hello) (Welcome, error) {
	var reply Welcome
	if err := writeFrame(conn, append([]byte(HandshakeMagic), byte(what)), from); err != nil {
		return reply, err
	}
	err := readFrame(conn, &reply)
	return reply, err
}

// introduce is the dialer's half of the handshake.
func (p *Port) introduce(conn net.Conn, peer Member, what Purpose, timeout time.Duration) (Hello, error) {
	if timeout <= 0 || timeout > handshakeTimeout {
		timeout = handshakeTimeout
	}
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return Hello{}, err
	}
	reply, err := Greet(conn, what, p.Hello())
	if err != nil {
		return reply.Hello, fmt.Errorf("no handshake with node %q: %w", peer.Name, err)
	}
	if err := p.certified(conn, reply.Name); err != nil {
		return Hello{}, fmt.Errorf("no handshake with node %q: %w", peer.Name, err)
	}
	if reply.Refusal != "" {
		p.reportLists(reply.Hello, p.sameCluster(reply.Hello)) // the refusal has the same reason
		return reply.Hello, &RefusedError{peer: peer.Name, reason: reply.Refusal, From: reply.Instance, Removed: reply.Removed}
	}
	if reply.ID() != peer.ID() {
		return reply.Hello, fmt.Errorf("the address of node %q belongs to node %q", peer.ID(), reply.ID())
	}
	if err := p.judge(reply.Hello); err != nil {
		p.reportLists(reply.Hello, err)
		return reply.Hello, err
	}
	return reply.Hello, conn.SetDeadline(time.Time{})
}

// certified returns an error unless the other end has proven that it is the node.
func (p *Port) certified(conn net.Conn, name string) error {
	if p.options.Certified == nil {
		return nil
	}
	if tracked, ok := conn.(*trackedConn); ok {
		conn = tracked.Conn
	}
	return p.options.Certified(conn, name)
}

// Hello is the first message of this node.
func (p *Port) Hello() Hello {
	own := p.options.Identity.Self()
	own.Run, own.Members, own.Present, own.Agreed, own.Joined = p.options.Run, p.options.Roster, p.options.Present(), p.Agreed(), p.Joined()
	return own
}

// judge returns an error unless the other node is a member of this cluster.
func (p *Port) judge(other Hello) error {
	if err := p.sameCluster(other); err != nil {
		return err
	}
	own := p.options.Identity.Self()
	switch {
	case other.ID() == own.ID() && other.Instance != own.Instance:
		return fmt.Errorf("another node also has the name %q", own.Name)
	case other.ID() == own.ID() && other.Run != p.options.Run:
		return fmt.Errorf("node %q already runs, from this data directory or a copy of it: start %d runs in parallel to start %d", own.Name, other.Start, own.Start)
	case other.ID() == own.ID():
		return nil // raft can dial its own address
	}
	for id, instance := range other.Peers {
		if known, met := own.Peers[id]; met && known != instance {
			return fmt.Errorf("nodes %q and %q know different instances of node %q, %s and %s: two nodes use this name, or the node was initialized again", other.Name, own.Name, id, instance, known)
		}
	}
	if err := p.options.Admit(other); err != nil {
		return err
	}
	return p.latest(other)
}

// sameCluster returns an error unless cluster, generation and first member list agree.
func (p *Port) sameCluster(other Hello) error {
	own := p.options.Identity.Self()
	switch {
	case other.Cluster != own.Cluster:
		return fmt.Errorf("node %q belongs to cluster %q, and node %q to cluster %q", other.Name, other.Cluster, own.Name, own.Cluster)
	case other.Generation != own.Generation:
		return fmt.Errorf("node %q has generation %d of the cluster, and node %q has generation %d", other.Name, other.Generation, own.Name, own.Generation)
	case other.Origin != own.Origin:
		return fmt.Errorf("node %q and node %q were not restored from the same backup with the same flags: the first started with state %.12s, the second with %.12s: "+
			"restore the same file on all nodes", other.Name, own.Name, other.Origin, own.Origin)
	case maps.Equal(other.Members, p.options.Roster):
		return nil
	}
	return &listsError{fmt.Errorf("node %q and node %q of cluster %q list different members: %v and %v: correct cluster.members in their files, which must be equal at the first start of a cluster",
		other.Name, own.Name, own.Cluster, other.Members, p.options.Roster)}
}

// listsError refuses a node of this cluster with another first member list.
type listsError struct{ error }

// reportLists calls Disagreed if the other node was refused for its member list.
func (p *Port) reportLists(other Hello, refusal error) {
	var lists *listsError
	if errors.As(refusal, &lists) {
		p.options.Disagreed(other, refusal)
	}
}

// latest refuses an earlier process of a node once a later one was seen. A
// process cannot come back, so one of the two runs from a copy of the data
// directory.
func (p *Port) latest(other Hello) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.starts[other.ID()]
	if other.Start < known.Start || (other.Start == known.Start && other.Run != known.Run) {
		return fmt.Errorf("node %q runs twice, or from an old copy of its data directory: start %d (process %s) comes after start %d (process %s)",
			other.Name, other.Start, other.Run, known.Start, known.Run)
	}
	p.starts[other.ID()] = other
	return nil
}

func writeFrame(w io.Writer, head []byte, message any) error {
	body, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if len(body) > maxHandshake {
		return fmt.Errorf("the handshake has %d bytes; the limit is %d", len(body), maxHandshake)
	}
	frame := binary.BigEndian.AppendUint16(head, uint16(len(body)))
	_, err = w.Write(append(frame, body...))
	return err
}

func readFrame(r io.Reader, message any) error {
	var size [2]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return err
	}
	length := binary.BigEndian.Uint16(size[:])
	if length > maxHandshake {
		return fmt.Errorf("the handshake has %d bytes; the limit is %d", length, maxHandshake)
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(r, body); err != nil {
		return err
	}
	if err := json.Unmarshal(body, message); err != nil {
		return errors.New("the handshake is not from a conductord node")
	}
	return nil
}
