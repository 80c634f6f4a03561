package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/hashicorp/go-hclog"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/api"
	"github.com/conductord/conductord/raftboard/node/clock"
	"github.com/conductord/conductord/raftboard/node/raftlog/membership"
	"github.com/conductord/conductord/raftboard/node/replication"
	"github.com/conductord/conductord/raftboard/node/sums"
	"github.com/conductord/conductord/raftboard/wire"
)

const (
	// checkPatience limits the wait for a node that has not yet applied the check.
	checkPatience = 8 * time.Second
	// checkRounds is the maximum number of checks until each running member has sums at the same
	// entry. The second check gives sums to a member that has just restored a snapshot.
	checkRounds = 3
	// comparePatience limits all rounds together. A client waits for 20 s.
	comparePatience = 16 * time.Second
)

// verifyService compares the members.
type verifyService struct {
	log     replication.Log
	checks  *sums.Checks
	members *membership.Members
	router  *api.Router
	serves  func() bool
	running chan struct{} // with a buffer of one
	logger  hclog.Logger
}

// tableSums answers for this node.
func (s *verifyService) tableSums(ctx context.Context, request *connect.Request[conductordv1.TableSumsRequest]) (*connect.Response[conductordv1.TableSumsResponse], error) {
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	index := request.Msg.Index
	err := s.checks.WaitApplied(ctx, index)
	if err != nil {
		return nil, wire.ErrorToConnect(fmt.Errorf("%w: this node is behind, and has not applied entry %d yet: %w; try again when \"conductord cluster check\" shows that the node has caught up", jobs.ErrUnavailable, index, err))
	}
	noted, err := s.checks.At(ctx, index)
	if err != nil {
		return nil, wire.ErrorToConnect(err)
	}
	return connect.NewResponse(&conductordv1.TableSumsResponse{Sums: sums.ToProto(noted)}), nil
}

// Watch compares the members at intervals while this node leads. It ends with ctx.
func (s *verifyService) Watch(ctx context.Context, interval time.Duration) {
	for range clock.Every(ctx, interval) {
		if !s.serves() {
			continue
		}
		if _, _, err := s.verify(ctx, nil); err != nil && ctx.Err() == nil {
			s.logger.Warn("cannot compare the members' states", "error", err)
		}
	}
}

func (s *verifyService) verify(ctx context.Context, _ *conductordv1.VerifyRequest) (*conductordv1.VerifyResponse, uint64, error) {
	bounded, cancel := context.WithTimeout(ctx, comparePatience)
	defer cancel()
	select {
	case s.running <- struct{}{}:
		defer func() { <-s.running }()
	case <-bounded.Done():
		return nil, 0, fmt.Errorf("%w: another comparison is in progress: %w; try again later", jobs.ErrUnavailable, bounded.Err())
	}
	members, told, index, err := s.sumsOfAll(bounded)
	if err != nil {
		return nil, 0, err
	}
	majority := majorityOf(told)
	answer := &conductordv1.VerifyResponse{Index: index}
	alike := majority != nil
	for i, member := range members {
		row := &conductordv1.MemberCheck{Name: member.Name}
		switch {
		case told[i].err != nil:
			row.Error = told[i].err.Error()
		case majority == nil:
			row.Error = "no majority of the members has the same checksums"
		default:
			row.Differs = strings.Join(sums.Differing(told[i].sums, majority), ", ")
			row.Same = row.Differs == ""
			alike = alike && row.Same
		}
		answer.Members = append(answer.Members, row)
	}
	switch {
	case majority == nil:
		s.logger.Error("no majority of the members has the same checksums", "index", index)
	case !alike:
		s.logger.Error("member differs from the majority", "index", index, "members", answer.Members)
		_, err = s.propose(ctx, &conductordv1.StateCheck{Index: index, Sums: majority})
	}
	return answer, index, err
}

// sumsOfAll makes the members compute the sums of their tables at one entry. If a running member
// has no sums at that entry, it repeats this at a later entry, until ctx ends.
func (s *verifyService) sumsOfAll(ctx context.Context) (members []membership.Listed, told []toldSums, index uint64, err error) {
	for range checkRounds {
		later, err := s.propose(ctx, &conductordv1.StateCheck{})
		if err != nil && told == nil {
			return nil, nil, 0, err
		}
		if err != nil {
			break // the previous round shows which member has no sums
		}
		index, members = later, s.members.Now()
		told = s.askAll(ctx, members, index)
		if !slices.ContainsFunc(told, func(one toldSums) bool { return errors.Is(one.err, jobs.ErrNotFound) }) {
			break
		}
	}
	return members, told, index, nil
}

// propose commits a check, and returns its index.
func (s *verifyService) propose(ctx context.Context, check *conductordv1.StateCheck) (uint64, error) {
	data, err := sums.Encode(check)
	if err != nil {
		return 0, fmt.Errorf("cannot encode a check of the state: %w", err)
	}
	pending := s.log.Append(data)
	index := uint64(0)
	done := make(chan error, 1)
	go func() { // ends at the latest with this node's leadership
		var err error
		index, _, err = pending.Wait()
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil && !errors.Is(err, jobs.ErrUnavailable) {
			err = fmt.Errorf("%w: %w", jobs.ErrUnavailable, err)
		}
		return index, err
	case <-ctx.Done():
		return 0, fmt.Errorf("%w: the check of the state was not committed: %w", jobs.ErrUnavailable, ctx.Err())
	}
}

// toldSums are the sums in a member's answer.
type toldSums struct {
	sums []*conductordv1.TableSum
	err  error
}

// askAll asks all members for their sums at an entry, in parallel.
func (s *verifyService) askAll(ctx context.Context, members []membership.Listed, index uint64) []toldSums {
	ctx, cancel := context.WithTimeout(ctx, checkPatience+time.Second)
	defer cancel()
	told := make([]toldSums, len(members))
	var asking sync.WaitGroup
	for i, member := range members {
		asking.Go(func() {
			client := api.CallerOf[conductordv1.TableSumsRequest, conductordv1.TableSumsResponse](&s.router.Peers, member.API, "ClusterService/TableSums")
			answer, err := client.CallUnary(ctx, connect.NewRequest(&conductordv1.TableSumsRequest{Index: index}))
			if err != nil {
				told[i].err = wire.ErrorFromConnect(err)
				return
			}
			told[i].sums = answer.Msg.Sums
		})
	}
	asking.Wait()
	return told
}

// majorityOf returns the sums that more than half of the members have; nil: none.
func majorityOf(told []toldSums) []*conductordv1.TableSum {
	for _, one := range told {
		same := 0
		for _, other := range told {
			if one.err == nil && other.err == nil && slices.Equal(sums.Differing(one.sums, other.sums), nil) {
				same++
			}
		}
		if same > len(told)/2 {
			return one.sums
		}
	}
	return nil
}
