package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/node/api"
	"github.com/conductord/conductord/raftboard/node/clock"
	"github.com/conductord/conductord/raftboard/node/raftlog"
	"github.com/conductord/conductord/raftboard/node/raftlog/membership"
	"github.com/conductord/conductord/raftboard/node/raftlog/transport"
)

const (
	// maxVoters and maxMembers limit a cluster. More voters make each write slower, and seven
	// tolerate the loss of three. A leader sends every entry to every member.
	maxVoters  = 7
	maxMembers = 15
	// maxAddress bounds a host:port, in bytes: a DNS name has at most 253.
	maxAddress = 260
	// changePatience limits a change of members. A healthy majority needs milliseconds.
	changePatience = 5 * time.Second
	// promotionLag is the maximum number of entries that a member may lack when it gets a vote.
	// With more, the cluster could need this member for a majority, and would wait until the member
	// has the entries.
	promotionLag = 1_000
)

// memberService changes the members of the cluster, one at a time. Raft's configuration
// is the list; each change is one entry of the log.
type memberService struct {
	limits   logbook.Limits
	group    *raftlog.Group
	identity *membership.IdentityStore
	members  *membership.Members
	peers    *membership.Askers
	applied  func() uint64
	handOver func(ctx context.Context) error // of the leadership, to any other voter
	changing chan struct{}                   // with a buffer of one
	serves   func() bool                     // reports whether this node answers as the leader
	quiet    func(transport.Member) time.Duration
	logger   hclog.Logger
}

// one runs one change at a time, and the next change waits: a member list can show a change shortly
// before the change has ended. do returns the change, or nil if there is no change to make.
func (s *memberService) one(ctx context.Context, do func() (func() error, error)) error {
	waited, stop := context.WithTimeout(ctx, changePatience)
	defer stop()
	select {
	case s.changing <- struct{}{}:
		defer func() { <-s.changing }()
	case <-waited.Done():
		return fmt.Errorf("%w: another change of the members is in progress: try again later", jobs.ErrConflict)
	}
	change, err := do()
	if err != nil || change == nil {
		return err
	}
	return s.carryOut(ctx, change)
}

// carryOut waits until a change is committed.
func (s *memberService) carryOut(ctx context.Context, change func() error) error {
	done := make(chan error, 1)
	go func() { done <- change() }() // ends at the latest with this node's leadership
	select {
	case err := <-done:
		switch {
		case raftlog.Refused(err):
			return fmt.Errorf("%w: %w", jobs.ErrUnavailable, err)
		case err != nil:
			return fmt.Errorf("%w: the members may have changed: %w", jobs.ErrUncertain, err)
		}
		return nil
	case <-time.After(changePatience):
		return fmt.Errorf("%w: the change of the members was not committed within %v", jobs.ErrUncertain, changePatience)
	case <-ctx.Done():
		return fmt.Errorf("%w: it is unknown whether the change of the members was committed: %w", jobs.ErrUncertain, ctx.Err())
	}
}

func (s *memberService) add(ctx context.Context, message *conductordv1.AddMemberRequest) (*conductordv1.AddMemberResponse, uint64, error) {
	id := s.identity.Get()
	if message.Cluster != id.Cluster {
		return nil, 0, &logbook.InvalidError{Field: "cluster", Reason: fmt.Sprintf("this is cluster %q, not %.64q", id.Cluster, message.Cluster)}
	}
	instance, err := uuid.Parse(message.Instance)
	if err != nil || instance == uuid.Nil {
		return nil, 0, &logbook.InvalidError{Field: "instance", Reason: fmt.Sprintf("%.64q is not a UUID", message.Instance)}
	}
	member := transport.Member{Name: message.Name, Incarnation: transport.IncarnationOf(instance), Raft: message.RaftAddress, API: message.ApiAddress}
	if err := errors.Join(s.limits.CheckName("name", member.Name), checkAddresses(member)); err != nil {
		return nil, 0, err
	}
	err = s.one(ctx, func() (func() error, error) { return s.addition(ctx, member, instance, message.Replaces) })
	if err != nil {
		return nil, 0, err
	}
	answer := &conductordv1.AddMemberResponse{Generation: id.Generation, Origin: id.Origin}
	for _, server := range membership.FirstConfiguration(id.Members).Servers {
		founder, err := transport.ParseAddress(server.Address)
		if err != nil {
			return nil, 0, err
		}
		answer.Founders = append(answer.Founders, memberToProto(&membership.Listed{Member: founder, Voter: true}))
	}
	return answer, s.applied(), nil
}

// addition is the change that makes a node a member, after the removal of the dead member that
// the node replaces.
func (s *memberService) addition(ctx context.Context, member transport.Member, instance uuid.UUID, replaces string) (func() error, error) {
	now := s.members.Now()
	if slices.ContainsFunc(now, func(other membership.Listed) bool { return other.Member == member }) {
		return nil, nil // a repeat
	}
	if replaces != "" {
		removed, err := s.makeWay(ctx, member, replaces)
		if err != nil {
			return nil, err
		}
		now = slices.DeleteFunc(now, func(other membership.Listed) bool { return removed && other.Name == replaces })
	}
	if err := unused(now, member); err != nil {
		return nil, err
	}
	if len(now) >= maxMembers {
		return nil, &logbook.LimitError{Field: "members", Limit: maxMembers, Size: int64(len(now)) + 1, Unit: "members"}
	}
	if err := s.members.Call(member); !transport.Undialled(err) {
		return nil, fmt.Errorf("%w: a process already answers at the raft address %s: stop it, and start the node after the join", jobs.ErrConflict, member.Raft)
	}
	if err := s.identity.Meet(member.ID(), instance); err != nil {
		return nil, err
	}
	return func() error { return s.group.AddNonvoter(member, changePatience) }, nil
}

// makeWay removes the member that a new member replaces, if the old member does not answer.
// Otherwise, the old member stays until the new member has a vote, so the number of voters does not
// fall.
func (s *memberService) makeWay(ctx context.Context, member transport.Member, replaces string) (removed bool, err error) {
	old, known := s.members.Find(replaces)
	if !known {
		return false, membership.NotAMember(replaces)
	}
	answers := s.members.Call(old.Member) == nil
	switch {
	case answers && old.Name == member.Name:
		return false, fmt.Errorf("%w: node %q answers at %s: stop it first", jobs.ErrConflict, old.Name, old.Raft)
	case answers:
		return false, nil
	}
	change, err := s.removal(ctx, old)
	if err != nil {
		return false, err
	}
	return true, s.carryOut(ctx, change)
}

// unused refuses a member whose name or address another member has.
func unused(now []membership.Listed, member transport.Member) error {
	for _, other := range now {
		if other.Name == member.Name {
			return fmt.Errorf("%w: node %q is already a member: if its disk is lost, run \"conductord cluster replace %s %s\" on its machine",
				jobs.ErrConflict, other.Name, other.Name, other.Name)
		}
		if taken := addressesInCommon(other.Member, member); taken != "" {
			return fmt.Errorf("%w: node %q has the address %s", jobs.ErrConflict, other.Name, taken)
		}
	}
	return nil
}

// addressesInCommon returns an address that both members have; empty: none.
func addressesInCommon(a, b transport.Member) string {
	for _, address := range []string{b.Raft, b.API} {
		if address == a.Raft || address == a.API {
			return address
		}
	}
	return ""
}

func (s *memberService) remove(ctx context.Context, message *conductordv1.RemoveMemberRequest) (*conductordv1.RemoveMemberResponse, uint64, error) {
	err := s.one(ctx, func() (func() error, error) {
		member, known := s.members.Find(message.Name)
		if !known {
			return nil, membership.NotAMember(message.Name)
		}
		return s.removal(ctx, member)
	})
	return &conductordv1.RemoveMemberResponse{Members: s.list()}, s.applied(), err
}

// removal is the change that removes a member.
func (s *memberService) removal(ctx context.Context, member membership.Listed) (func() error, error) {
	if err := s.mayLose(ctx, member); err != nil {
		return nil, err
	}
	return func() error { return s.group.Remove(member.Member, changePatience) }, nil
}

// mayLose returns an error if the cluster cannot do without the vote of a member.
func (s *memberService) mayLose(ctx context.Context, member membership.Listed) error {
	if !member.Voter {
		return nil
	}
	rest := slices.DeleteFunc(s.members.Now(), func(other membership.Listed) bool { return other.ID() == member.ID() })
	if err := s.keepsMajority(rest); err != nil {
		return err
	}
	if member.ID() != s.members.Self().ID() {
		return nil
	}
	if err := s.handOver(ctx); err != nil {
		return err
	}
	return fmt.Errorf("%w: node %q was the leader, and has transferred the leadership: repeat the call", jobs.ErrUnavailable, member.Name)
}

// keepsMajority returns an error unless a majority of the voters among some members answers.
func (s *memberService) keepsMajority(members []membership.Listed) error {
	voters, silent := 0, []string(nil)
	for _, member := range members {
		if !member.Voter {
			continue
		}
		voters++
		if err := s.members.Call(member.Member); err != nil && member.ID() != s.members.Self().ID() {
			silent = append(silent, fmt.Sprintf("%q does not answer (%v)", member.Name, err))
		}
	}
	if answer := voters - len(silent); answer < voters/2+1 {
		return fmt.Errorf("%w: %d voters would remain, %d of them must answer, and only %d can be reached: %s",
			jobs.ErrConflict, voters, voters/2+1, answer, strings.Join(silent, "; "))
	}
	return nil
}

// deadLooks is the number of checks for dead members within the time after which a leader removes
// one. A member answers raft several times in a second.
const deadLooks = 8

// RemoveDead removes members that have been silent for a long time while this node led.
// It ends with ctx.
func (s *memberService) RemoveDead(ctx context.Context, after time.Duration) {
	interval := after / deadLooks
	silent := map[string]time.Time{} // start of each member's silence
	for range clock.Every(ctx, interval) {
		if !s.serves() {
			clear(silent)
			continue
		}
		for _, member := range s.members.Peers() {
			since, known := silent[string(member.ID())]
			switch {
			case s.quiet(member.Member) < interval:
				delete(silent, string(member.ID()))
			case !known:
				silent[string(member.ID())] = time.Now()
			case time.Since(since) >= after:
				_, _, err := s.remove(ctx, &conductordv1.RemoveMemberRequest{Name: member.Name})
				if silence := time.Since(since).Round(time.Second); err != nil {
					s.logger.Warn("cannot remove a dead member", "node", member.Name, "silent", silence, "error", err)
				} else {
					s.logger.Warn("dead member removed", "node", member.Name, "silent", silence)
				}
				delete(silent, string(member.ID()))
			}
		}
	}
}

func (s *memberService) setVote(ctx context.Context, message *conductordv1.SetVoteRequest) (*conductordv1.SetVoteResponse, uint64, error) {
	err := s.one(ctx, func() (func() error, error) {
		member, known := s.members.Find(message.Name)
		switch {
		case !known:
			return nil, membership.NotAMember(message.Name)
		case member.Voter == message.Vote:
			return nil, nil
		case message.Vote:
			return s.promotion(ctx, member)
		}
		if err := s.mayLose(ctx, member); err != nil {
			return nil, err
		}
		return func() error { return s.group.Demote(member.Member, changePatience) }, nil
	})
	if old, stays := s.members.Find(message.Replaces); err == nil && stays && old.Name != message.Name {
		_, _, err = s.remove(ctx, &conductordv1.RemoveMemberRequest{Name: old.Name})
	}
	return &conductordv1.SetVoteResponse{Members: s.list()}, s.applied(), err
}

// promotion is the change that gives a member a vote.
func (s *memberService) promotion(ctx context.Context, member membership.Listed) (func() error, error) {
	commit := s.group.Committed()
	stands, err := s.peers.Ask(ctx, string(member.ID()))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: node %q does not answer: %w", jobs.ErrConflict, member.Name, err)
	case stands.Applied == 0 || stands.Applied+promotionLag < commit:
		return nil, fmt.Errorf("%w: node %q is catching up: it has applied entry %d of %d", jobs.ErrConflict, member.Name, stands.Applied, commit)
	}
	after := s.members.Now()
	at := slices.IndexFunc(after, func(other membership.Listed) bool { return other.ID() == member.ID() })
	after[at].Voter = true
	voters := len(slices.DeleteFunc(slices.Clone(after), func(other membership.Listed) bool { return !other.Voter }))
	if voters > maxVoters {
		return nil, &logbook.LimitError{Field: "voters", Limit: maxVoters, Size: int64(voters), Unit: "voters"}
	}
	if err := s.keepsMajority(after); err != nil {
		return nil, err
	}
	return func() error { return s.group.AddVoter(member.Member, changePatience) }, nil
}

func (s *memberService) move(ctx context.Context, message *conductordv1.MoveMemberRequest) (*conductordv1.MoveMemberResponse, uint64, error) {
	err := s.one(ctx, func() (func() error, error) {
		member, known := s.members.Find(message.Name)
		if !known {
			return nil, membership.NotAMember(message.Name)
		}
		moved := member.Member
		moved.Raft, moved.API = message.RaftAddress, message.ApiAddress
		if moved == member.Member {
			return nil, nil
		}
		if err := checkAddresses(moved); err != nil {
			return nil, err
		}
		others := slices.DeleteFunc(s.members.Now(), func(other membership.Listed) bool { return other.ID() == member.ID() })
		if err := unused(others, moved); err != nil {
			return nil, err
		}
		if err := s.members.Call(moved); err != nil {
			return nil, fmt.Errorf("%w: node %q does not answer at %s: start it there first: %w", jobs.ErrConflict, moved.Name, moved.Raft, err)
		}
		if member.Voter {
			return func() error { return s.group.AddVoter(moved, changePatience) }, nil
		}
		return func() error { return s.group.AddNonvoter(moved, changePatience) }, nil
	})
	return &conductordv1.MoveMemberResponse{Members: s.list()}, s.applied(), err
}

func (s *memberService) list() []*conductordv1.Member {
	return api.ToProto(s.members.Now(), memberToProto)
}

func memberToProto(m *membership.Listed) *conductordv1.Member {
	return &conductordv1.Member{Name: m.Name, Id: string(m.ID()), RaftAddress: m.Raft, ApiAddress: m.API, Voter: m.Voter}
}

// checkAddresses refuses addresses that other nodes could not dial.
func checkAddresses(member transport.Member) error {
	check := func(field, address string) error {
		host, port, err := net.SplitHostPort(address)
		number, bad := strconv.ParseUint(port, 10, 16)
		switch {
		case len(address) > maxAddress:
			return &logbook.LimitError{Field: field, Limit: maxAddress, Size: int64(len(address)), Unit: "bytes"}
		case err != nil, host == "", bad != nil || number == 0, strings.ContainsAny(address, "@, "):
			return &logbook.InvalidError{Field: field, Reason: fmt.Sprintf("%q is not HOST:PORT with a port from 1 to 65535", address)}
		}
		return nil
	}
	return errors.Join(check("raft_address", member.Raft), check("api_address", member.API))
}
