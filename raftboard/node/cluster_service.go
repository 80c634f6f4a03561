package node

import (
	"context"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/boottime"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/raftboard/wire"
)

// clusterService answers calls about the node itself.
type clusterService struct {
	options Options
	started time.Time // of boottime
	machine *fsm.Machine
	raft    *raft.Raft
	clock   *clock
	leader  *leaderState
	ready   *readiness
}

func (s *clusterService) status(_ context.Context, _ *connect.Request[conductordv1.StatusRequest]) (*connect.Response[conductordv1.StatusResponse], error) {
	sessions, err := s.machine.Sessions()
	if err != nil {
		return nil, wire.ErrorToConnect(err)
	}
	status := &conductordv1.StatusResponse{
		Cluster:      s.options.Cluster,
		Generation:   s.machine.Generation(),
		Node:         s.options.Name,
		State:        strings.ToLower(s.raft.State().String()),
		Term:         s.raft.CurrentTerm(),
		CommitIndex:  s.raft.CommitIndex(),
		AppliedIndex: s.machine.AppliedIndex(),
		Version:      s.options.Version,
		StartedAt:    timestamppb.New(s.clock.answerTime().Add(-boottime.Since(s.started))),
		Jobs:         map[string]uint64{},
		Sessions:     uint64(len(sessions)),
		Ready:        true,
		LogStore:     string(s.options.LogStore),
	}
	if err := s.ready.check(); err != nil {
		status.Ready, status.NotReady = false, err.Error()
	}
	if leader, known := s.leader.known(); known {
		status.Leader, status.LeaderAddress = leader.Name, leader.API
	}
	if heard := s.raft.LastContact(); !heard.IsZero() && !s.leader.serves() {
		status.LastContact = durationpb.New(time.Since(heard))
	}
	if ahead, known := s.clock.wallOffset(); known {
		status.ClockOffset = durationpb.New(ahead)
	}
	for state, count := range s.machine.Counts() {
		status.Jobs[string(state)] = count
	}
	for _, member := range s.options.Members {
		status.Members = append(status.Members, &conductordv1.Member{
			Name: member.Name, Id: string(serverID(member.Name, 1)), RaftAddress: member.Raft, ApiAddress: member.API,
		})
	}
	return connect.NewResponse(status), nil
}
