package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/internal/boottime"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/raftboard/node/admission"
	"github.com/conductord/conductord/raftboard/node/clock"
	"github.com/conductord/conductord/raftboard/node/guard"
	"github.com/conductord/conductord/raftboard/node/lead"
	"github.com/conductord/conductord/raftboard/node/raftlog"
	"github.com/conductord/conductord/raftboard/node/raftlog/logstore"
	"github.com/conductord/conductord/raftboard/node/raftlog/membership"
	"github.com/conductord/conductord/raftboard/wire"
)

// clusterService answers calls about the node itself.
type clusterService struct {
	options Options
	started time.Time // of boottime
	machine *fsm.Machine
	group   *raftlog.Group
	clock   *clock.Clock
	leader  *lead.State
	ready   *lead.Readiness
	members *membership.Members
	log     *logstore.Log
	guard   *guard.Guard
	disk    *admission.Disk
	router  *router
	backups *backupSchedule
}

// transferLeader hands the leadership over, and waits until another node leads.
// Proposals meanwhile are refused, and clients repeat them.
func (s *clusterService) transferLeader(ctx context.Context, message *conductordv1.TransferLeaderRequest) (*conductordv1.TransferLeaderResponse, uint64, error) {
	self := s.options.Name
	if message.To == self {
		return &conductordv1.TransferLeaderResponse{Leader: self}, s.machine.AppliedIndex(), nil
	}
	to, err := s.successor(message.To)
	if err != nil {
		return nil, 0, err
	}
	done := make(chan error, 1)
	go func() { // ends at raft's own timeout
		done <- s.group.Transfer(to)
	}()
	select {
	case err := <-done:
		if err != nil {
			return nil, 0, fmt.Errorf("%w: node %q goes on leading: %w", jobs.ErrUnavailable, self, err)
		}
	case <-time.After(handOverPatience):
		return nil, 0, fmt.Errorf("%w: the leadership was not taken over within %v", jobs.ErrUncertain, handOverPatience)
	case <-ctx.Done():
		return nil, 0, fmt.Errorf("%w: %w", jobs.ErrUncertain, ctx.Err())
	}
	now, err := s.leader.Find(ctx)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: it was handed over: %w", jobs.ErrUncertain, err)
	}
	if now.Here {
		now.There.Name = self // it was elected again
	}
	return &conductordv1.TransferLeaderResponse{Leader: now.There.Name}, s.machine.AppliedIndex(), nil
}

// handOver transfers the leadership to any other voter.
func (s *clusterService) handOver(ctx context.Context) error {
	_, _, err := s.transferLeader(ctx, &conductordv1.TransferLeaderRequest{})
	return err
}

// successor is the node of a name, or any other one, that answers now. raft itself would
// wait for ever for a node that does not, and refuse all entries meanwhile
// (hashicorp/raft#696).
func (s *clusterService) successor(name string) (Member, error) {
	if !s.members.HasOtherVoter() {
		return Member{}, fmt.Errorf("%w: the cluster has no other voter than %q", jobs.ErrConflict, s.options.Name)
	}
	var silent []error
	for _, member := range s.members.Peers() {
		if name != "" && member.Name != name || name == "" && !member.Voter {
			continue
		}
		if !member.Voter {
			return Member{}, fmt.Errorf("%w: node %q has no vote, so it cannot lead: promote it first", jobs.ErrConflict, name)
		}
		err := s.members.Call(member.Member)
		if err == nil {
			return member.Member, nil
		}
		silent = append(silent, fmt.Errorf("%q does not answer: %w", member.Name, err))
	}
	if len(silent) == 0 {
		return Member{}, membership.NotAMember(name)
	}
	return Member{}, fmt.Errorf("%w: no other node can lead: %w", jobs.ErrConflict, errors.Join(silent...))
}

func (s *clusterService) status(ctx context.Context, request *connect.Request[conductordv1.StatusRequest]) (*connect.Response[conductordv1.StatusResponse], error) {
	if name := request.Msg.GetNode(); name != "" && name != s.options.Name {
		answer, err := s.statusOf(ctx, name, request)
		if err != nil {
			return nil, wire.ErrorToConnect(err)
		}
		return answer, nil
	}
	status := &conductordv1.StatusResponse{
		Cluster:      s.options.Cluster,
		Generation:   s.machine.Generation(),
		Node:         s.options.Name,
		State:        s.group.State(),
		Term:         s.group.Term(),
		CommitIndex:  s.group.Committed(),
		AppliedIndex: s.machine.AppliedIndex(),
		Version:      s.options.Version,
		Jobs:         map[string]uint64{},
		Sessions:     s.machine.OpenSessions(),
		Ready:        true,
		LogStore:     string(s.options.LogStore),
		LogBytes:     uint64(logstore.Size(s.options.DataDir, s.options.LogStore)), LogFreeBytes: uint64(max(s.log.Reusable(), 0)),
		Members: toProto(s.members.Now(), memberToProto),

		MembersDiffer: s.members.Difference(), ClusterVersion: uint32(s.machine.Version()), ProgramVersion: command.Version,
	}
	status.SnapshotIndex, status.SnapshotBytes = s.group.LatestSnapshot()
	status.TopologyDigest, status.TopologyCluster = s.router.elsewhere.status()
	if err := s.ready.Check(); err != nil {
		status.Ready, status.NotReady = false, wire.WithoutClass(err)
	}
	status.DiskFreeBytes, status.DiskShort = uint64(max(s.disk.Free(), 0)), s.disk.Crowded()
	if s.backups.Directory != "" {
		status.BackupAge = durationpb.New(time.Duration(s.backups.age() * float64(time.Second)))
		status.BackupInterval = durationpb.New(s.backups.Interval)
	}
	if leader, known := s.leader.Known(); known {
		status.Leader, status.LeaderAddress = leader.Name, leader.API
	}
	if ago, known := s.leader.HeardAgo(); known && ago > 0 {
		status.LastContact = durationpb.New(ago)
	}
	if ahead, known := s.clock.WallOffset(); known {
		status.ClockOffset, status.StartedAt = durationpb.New(ahead), timestamppb.New(s.clock.Now().Add(-boottime.Since(s.started)))
	}
	if !s.guard.MayShow(ctx, access.AllBoards) {
		status.Sessions = 0
		return connect.NewResponse(status), nil
	}
	status.Backups = s.backups.list()
	for state, count := range s.machine.Counts() {
		status.Jobs[string(state)] = count
	}
	return connect.NewResponse(status), nil
}

// statusOf asks another member for its status, in the name of the caller.
func (s *clusterService) statusOf(ctx context.Context, name string, request *connect.Request[conductordv1.StatusRequest]) (*connect.Response[conductordv1.StatusResponse], error) {
	hops, err := hopsOf(request.Header())
	if err != nil {
		return nil, err
	}
	there, found := s.members.Find(name)
	switch {
	case !found:
		return nil, membership.NotAMember(name)
	case hops >= wire.MaxHops:
		return nil, fmt.Errorf("%w: node %q has another name now", jobs.ErrUnavailable, name)
	}
	answer, err := forward[conductordv1.StatusRequest, conductordv1.StatusResponse](ctx, s.router, there.API, "ClusterService/Status", request, hops)
	if err != nil {
		return nil, fmt.Errorf("cannot ask node %q: %w", name, wire.ErrorFromConnect(err))
	}
	return answer, nil
}
