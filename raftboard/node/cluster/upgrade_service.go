package cluster

import (
	"context"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/api"
	"github.com/conductord/conductord/raftboard/node/raftlog/membership"
)

// The cluster uses a version of the vocabulary only after an operator has raised it. Until then,
// newer programs write only commands that older programs can read. So nodes of both versions apply
// the same entries to the same state, and a node can return to the older program.

// upgradePatience limits the wait for the members' answers.
const upgradePatience = 2 * time.Second

// upgradeService raises the version of the cluster.
type upgradeService struct {
	machine *fsm.Machine
	members *membership.Members
	router  *api.Router
}

// upgrade raises the version to the version of the leader's program.
func (s *upgradeService) upgrade(ctx context.Context, _ *conductordv1.UpgradeRequest) (*conductordv1.UpgradeResponse, uint64, error) {
	if s.machine.Version() == command.Version {
		return &conductordv1.UpgradeResponse{Version: command.Version}, s.machine.AppliedIndex(), nil
	}
	if cannot := s.cannotRead(ctx); len(cannot) > 0 {
		return nil, 0, fmt.Errorf("%w: not all members support version %d: %s", jobs.ErrConflict, command.Version, strings.Join(cannot, "; "))
	}
	raise := &conductordv1.Command{Kind: &conductordv1.Command_RaiseVersion{RaiseVersion: &conductordv1.RaiseVersionCommand{Version: command.Version}}}
	index, _, err := s.router.Submit.One(ctx, raise)
	if err != nil {
		return nil, 0, err
	}
	return &conductordv1.UpgradeResponse{Version: command.Version}, index, nil
}

// cannotRead returns the members that cannot read this program's version, or do not answer.
func (s *upgradeService) cannotRead(ctx context.Context) (cannot []string) {
	ctx, cancel := context.WithTimeout(ctx, upgradePatience)
	defer cancel()
	for _, member := range s.members.Now() {
		client := api.CallerOf[conductordv1.StatusRequest, conductordv1.StatusResponse](&s.router.Peers, member.API, "ClusterService/Status")
		answer, err := client.CallUnary(ctx, connect.NewRequest(&conductordv1.StatusRequest{}))
		switch {
		case err != nil:
			cannot = append(cannot, fmt.Sprintf("%s does not answer (%v)", member.Name, err))
		case answer.Msg.ProgramVersion < command.Version:
			cannot = append(cannot, fmt.Sprintf("%s supports versions up to %d", member.Name, answer.Msg.ProgramVersion))
		}
	}
	return cannot
}
