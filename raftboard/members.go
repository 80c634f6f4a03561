package raftboard

import (
	"context"

	"github.com/google/uuid"

	v1 "github.com/conductord/conductord/api/conductord/v1"
)

// Member is a node of the cluster.
type Member struct {
	Name        string
	ID          string // raft's id; a node that was created again has another id
	RaftAddress string
	APIAddress  string
	Voter       bool // false: it has the whole state, but is not part of majorities
}

// NewMember is a node that joins a cluster.
type NewMember struct {
	Cluster     string // the cluster's id
	Name        string
	Instance    uuid.UUID // random number of the node
	RaftAddress string
	APIAddress  string
	Replaces    string // name of the replaced member, which can be its own name; empty: none
}

// Admission is the cluster's answer to a new member.
type Admission struct {
	Generation uint64
	Origin     string   // digest of the state with which a restored cluster started
	Founders   []Member // the members with which the cluster started
}

// AddMember adds a node as a member without a vote, before the node is started. With
// Replaces, it first removes a member that does not answer. A member that answers stays:
// remove it when the new one has a vote. A repeat is harmless. "conductord cluster join" does
// everything that a new node needs.
//
// Errors: ErrInvalid; ErrNotFound if there is no member to replace; ErrConflict for a name or an
// address in use, or while another change is in progress; ErrLimit.
func (c *Client) AddMember(ctx context.Context, member NewMember) (Admission, error) {
	op := operation{name: "add a member", try: transferTime}
	request := &v1.AddMemberRequest{
		Cluster: member.Cluster, Name: member.Name, Instance: member.Instance.String(),
		RaftAddress: member.RaftAddress, ApiAddress: member.APIAddress, Replaces: member.Replaces,
	}
	answer, err := call(ctx, c.core, op, request, func(p *peer) unary[v1.AddMemberRequest, v1.AddMemberResponse] { return p.cluster.AddMember })
	if err != nil {
		return Admission{}, err
	}
	return Admission{Generation: answer.GetGeneration(), Origin: answer.GetOrigin(), Founders: readMembers(answer.GetFounders())}, nil
}

// RemoveMember removes a member, and returns the remaining members. The node stops when it learns
// of its removal. Errors: ErrNotFound; ErrConflict if no majority of the other voters answers, or
// while another change is in progress.
func (c *Client) RemoveMember(ctx context.Context, name string) ([]Member, error) {
	op := operation{name: "remove a member", try: transferTime}
	answer, err := call(ctx, c.core, op, &v1.RemoveMemberRequest{Name: name}, func(p *peer) unary[v1.RemoveMemberRequest, v1.RemoveMemberResponse] { return p.cluster.RemoveMember })
	return readMembers(answer.GetMembers()), err
}

// SetVote makes a member that has caught up a voter, or removes its vote, and returns the changed
// list of members. A repeat is harmless. Errors: ErrNotFound; ErrLimit; ErrConflict if the member
// does not answer or has not caught up, or while another change is in progress. ErrConflict also if
// no majority of the voters would answer after the change.
func (c *Client) SetVote(ctx context.Context, name string, vote bool) ([]Member, error) {
	op := operation{name: "change the vote of a member", try: transferTime}
	answer, err := call(ctx, c.core, op, &v1.SetVoteRequest{Name: name, Vote: vote}, func(p *peer) unary[v1.SetVoteRequest, v1.SetVoteResponse] { return p.cluster.SetVote })
	return readMembers(answer.GetMembers()), err
}

// MoveMember changes the addresses of a member, each HOST:PORT, and returns the changed list of
// members. The member must answer at the new raft address. A repeat is harmless. Errors:
// ErrInvalid; ErrNotFound; ErrConflict.
func (c *Client) MoveMember(ctx context.Context, name, raftAddress, apiAddress string) ([]Member, error) {
	op := operation{name: "change the addresses of a member", try: transferTime}
	request := &v1.MoveMemberRequest{Name: name, RaftAddress: raftAddress, ApiAddress: apiAddress}
	answer, err := call(ctx, c.core, op, request, func(p *peer) unary[v1.MoveMemberRequest, v1.MoveMemberResponse] { return p.cluster.MoveMember })
	return readMembers(answer.GetMembers()), err
}

func readMembers(messages []*v1.Member) []Member {
	var members []Member
	for _, m := range messages {
		members = append(members, Member{Name: m.GetName(), ID: m.GetId(), RaftAddress: m.GetRaftAddress(), APIAddress: m.GetApiAddress(), Voter: m.GetVoter()})
	}
	return members
}

// Comparison compares the states of the members at one entry of the log.
type Comparison struct {
	Index   uint64 // of the entry
	Members []MemberCheck
}

// MemberCheck is the result for one member.
type MemberCheck struct {
	Name    string
	Same    bool   // its state equals the majority's
	Differs string // the tables that differ; the node then stops
	Error   string // reason why it could not be compared
}

// Verify makes the members compare checksums of their tables at one entry of the log. A member
// that differs from a majority stops. The leader also does this regularly by itself. A repeat is
// harmless. Error: ErrUnavailable, also if another comparison takes long.
func (c *Client) Verify(ctx context.Context) (Comparison, error) {
	op := operation{name: "compare the members", try: 2 * transferTime}
	answer, err := call(ctx, c.core, op, &v1.VerifyRequest{}, func(p *peer) unary[v1.VerifyRequest, v1.VerifyResponse] { return p.cluster.Verify })
	comparison := Comparison{Index: answer.GetIndex()}
	for _, m := range answer.GetMembers() {
		comparison.Members = append(comparison.Members, MemberCheck{Name: m.GetName(), Same: m.GetSame(), Differs: m.GetDiffers(), Error: m.GetError()})
	}
	return comparison, err
}
