package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/internal/boottime"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/raftboard/node/api"
	"github.com/conductord/conductord/raftboard/node/raftlog/logstore"
	"github.com/conductord/conductord/raftboard/node/raftlog/membership"
	"github.com/conductord/conductord/raftboard/node/raftlog/transport"
	"github.com/conductord/conductord/raftboard/wire"
)

// nodeService answers calls about one node: its status, and its leadership.
type nodeService struct {
	*Parts
	backups *backupSchedule
}

// HandOverPatience limits the time that a node waits until another node has become the leader.
const HandOverPatience = 3 * time.Second

// transferLeader transfers the leadership, and waits until another node leads. Meanwhile, proposals
// are refused, and clients repeat them.
func (s *nodeService) transferLeader(ctx context.Context, message *conductordv1.TransferLeaderRequest) (*conductordv1.TransferLeaderResponse, uint64, error) {
	self := s.Node
	if message.To == self {
		return &conductordv1.TransferLeaderResponse{Leader: self}, s.Machine.AppliedIndex(), nil
	}
	to, err := s.successor(message.To)
	if err != nil {
		return nil, 0, err
	}
	done := make(chan error, 1)
	go func() { // ends at raft's own timeout
		done <- s.Group.Transfer(to)
	}()
	select {
	case err := <-done:
		if err != nil {
			return nil, 0, fmt.Errorf("%w: node %q is still the leader: %w", jobs.ErrUnavailable, self, err)
		}
	case <-time.After(HandOverPatience):
		return nil, 0, fmt.Errorf("%w: no node took over the leadership within %v", jobs.ErrUncertain, HandOverPatience)
	case <-ctx.Done():
		return nil, 0, fmt.Errorf("%w: %w", jobs.ErrUncertain, ctx.Err())
	}
	now, err := s.Leader.Find(ctx)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: the leadership was transferred, but no new leader is known: %w", jobs.ErrUncertain, err)
	}
	if now.Here {
		now.There.Name = self // this node was elected again
	}
	return &conductordv1.TransferLeaderResponse{Leader: now.There.Name}, s.Machine.AppliedIndex(), nil
}

// handOver transfers the leadership to any other voter.
func (s *nodeService) handOver(ctx context.Context) error {
	_, _, err := s.transferLeader(ctx, &conductordv1.TransferLeaderRequest{})
	return err
}

// successor returns the named node, or any other node without a name, if it answers now. Without
// this check, raft would wait without limit for a node that does not answer, and refuse all entries
// meanwhile (hashicorp/raft#696).
func (s *nodeService) successor(name string) (transport.Member, error) {
	if !s.Members.HasOtherVoter() {
		return transport.Member{}, fmt.Errorf("%w: the only voter of the cluster is %q", jobs.ErrConflict, s.Node)
	}
	var silent []error
	for _, member := range s.Members.Peers() {
		if name != "" && member.Name != name || name == "" && !member.Voter {
			continue
		}
		if !member.Voter {
			return transport.Member{}, fmt.Errorf("%w: node %q has no vote, so it cannot lead: promote it first", jobs.ErrConflict, name)
		}
		err := s.Members.Call(member.Member)
		if err == nil {
			return member.Member, nil
		}
		silent = append(silent, fmt.Errorf("%q does not answer: %w", member.Name, err))
	}
	if len(silent) == 0 {
		return transport.Member{}, membership.NotAMember(name)
	}
	return transport.Member{}, fmt.Errorf("%w: no other node can lead: %w", jobs.ErrConflict, errors.Join(silent...))
}

func (s *nodeService) status(ctx context.Context, request *connect.Request[conductordv1.StatusRequest]) (*connect.Response[conductordv1.StatusResponse], error) {
	if name := request.Msg.GetNode(); name != "" && name != s.Node {
		answer, err := s.statusOf(ctx, name, request)
		if err != nil {
			return nil, wire.ErrorToConnect(err)
		}
		return answer, nil
	}
	status := &conductordv1.StatusResponse{
		Cluster:      s.Cluster,
		Generation:   s.Machine.Generation(),
		Node:         s.Node,
		State:        s.Group.State(),
		Term:         s.Group.Term(),
		CommitIndex:  s.Group.Committed(),
		AppliedIndex: s.Machine.AppliedIndex(),
		Version:      s.Version,
		Jobs:         map[string]uint64{},
		Sessions:     s.Machine.OpenSessions(),
		Ready:        true,
		LogStore:     string(s.LogStore),
		LogBytes:     uint64(logstore.Size(s.DataDir, s.LogStore)), LogFreeBytes: uint64(max(s.Log.Reusable(), 0)),
		Members: api.ToProto(s.Members.Now(), memberToProto),

		MembersDiffer: s.Members.Difference(), ClusterVersion: uint32(s.Machine.Version()), ProgramVersion: command.Version,
	}
	status.SnapshotIndex, status.SnapshotBytes = s.Group.LatestSnapshot()
	status.TopologyDigest, status.TopologyCluster = s.Router.Elsewhere.Status()
	if err := s.Ready.Check(); err != nil {
		status.Ready, status.NotReady = false, wire.WithoutClass(err)
	}
	status.DiskFreeBytes, status.DiskShort = uint64(max(s.Disk.Free(), 0)), s.Disk.Crowded()
	if s.backups.Directory != "" {
		status.BackupAge = durationpb.New(time.Duration(s.backups.Age() * float64(time.Second)))
		status.BackupInterval = durationpb.New(s.backups.Interval)
	}
	if leader, known := s.Leader.Known(); known {
		status.Leader, status.LeaderAddress = leader.Name, leader.API
	}
	if ago, known := s.Leader.HeardAgo(); known && ago > 0 {
		status.LastContact = durationpb.New(ago)
	}
	if ahead, known := s.Clock.WallOffset(); known {
		status.ClockOffset, status.StartedAt = durationpb.New(ahead), timestamppb.New(s.Clock.Now().Add(-boottime.Since(s.Started)))
	}
	if !s.Router.Guard.MayShow(ctx, access.AllBoards) {
		status.Sessions = 0
		return connect.NewResponse(status), nil
	}
	status.Backups = s.backups.list()
	for state, count := range s.Machine.Counts() {
		status.Jobs[string(state)] = count
	}
	return connect.NewResponse(status), nil
}

// statusOf reads another member's status, as the caller.
func (s *nodeService) statusOf(ctx context.Context, name string, request *connect.Request[conductordv1.StatusRequest]) (*connect.Response[conductordv1.StatusResponse], error) {
	hops, err := api.HopsOf(request.Header())
	if err != nil {
		return nil, err
	}
	there, found := s.Members.Find(name)
	switch {
	case !found:
		return nil, membership.NotAMember(name)
	case hops >= wire.MaxHops:
		return nil, fmt.Errorf("%w: the name of node %q has changed; try again", jobs.ErrUnavailable, name)
	}
	answer, err := api.Forward[conductordv1.StatusRequest, conductordv1.StatusResponse](ctx, s.Router, there.API, "ClusterService/Status", request, hops)
	if err != nil {
		return nil, fmt.Errorf("cannot call node %q: %w", name, wire.ErrorFromConnect(err))
	}
	return answer, nil
}
