package api

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"connectrpc.com/connect"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/steplog"
	"github.com/conductord/conductord/raftboard/wire"
)

// NodeKey is the metadata key under which a conductor's entity names the node that keeps its
// Logs.
const NodeKey = "node"

// logService reads the output of running steps. The called node finds the node whose conductor has
// the job, and forwards the call at most once.
type logService struct {
	node    string
	machine *fsm.Machine
	router  *Router
	logs    *steplog.Buffer
}

func (s *logService) read(row Call) unary[conductordv1.ReadLogsRequest, conductordv1.ReadLogsResponse] {
	return func(ctx context.Context, request *connect.Request[conductordv1.ReadLogsRequest]) (*connect.Response[conductordv1.ReadLogsResponse], error) {
		answer, err := s.answer(ctx, row, request)
		if err != nil {
			return nil, wire.ErrorToConnect(err)
		}
		return connect.NewResponse(answer), nil
	}
}

func (s *logService) answer(ctx context.Context, row Call, request *connect.Request[conductordv1.ReadLogsRequest]) (*conductordv1.ReadLogsResponse, error) {
	message, guard := request.Msg, s.router.Guard
	if err := s.router.Ready.AwaitMinIndex(ctx, request.Header()); err != nil {
		return nil, err
	}
	still := func() error { return guard.Allow(ctx, row.Name, row.Permission, message) }
	if err := still(); err != nil {
		return nil, err
	}
	within, end := guard.While(ctx, still)
	defer end()
	answer, err := s.lines(within, row, request)
	if refusal := still(); refusal != nil {
		return nil, refusal
	}
	return answer, err
}

// lines returns the requested lines.
func (s *logService) lines(ctx context.Context, row Call, request *connect.Request[conductordv1.ReadLogsRequest]) (*conductordv1.ReadLogsResponse, error) {
	message, guard := request.Msg, s.router.Guard
	if p := guard.HidesValuesFrom(ctx); p != "" {
		return nil, fmt.Errorf("%w: principal %q has no permission to read values, and logs can contain values", jobs.ErrNotAllowed, p)
	}
	wait, err := pollTime("wait", message.Wait)
	if err != nil {
		return nil, err
	}
	release, err := guard.HoldPoll(ctx, wait, false)
	if err != nil {
		return nil, err
	}
	defer release()
	hops, err := HopsOf(request.Header())
	if err != nil {
		return nil, err
	}
	id, err := jobs.ParseJobID(message.Job)
	if err != nil {
		return nil, err
	}
	holder, err := s.holder(id)
	if err != nil {
		return nil, err
	}
	address, found := s.router.Peers.Address(holder)
	if !found {
		return &conductordv1.ReadLogsResponse{Next: message.After}, nil // the job may return to that node
	}
	if holder == s.node || hops >= wire.MaxHops {
		return s.await(ctx, steplog.Query{Job: id, Step: message.Step, After: message.After}, wait)
	}
	request.Header().Set(wire.HeaderMinIndex, strconv.FormatUint(s.machine.AppliedIndex(), 10))
	forwarded, err := Forward[conductordv1.ReadLogsRequest, conductordv1.ReadLogsResponse](ctx, s.router, address, row.Name, request, hops)
	if err != nil {
		return nil, fmt.Errorf("cannot call node %s, which has the logs of job %s: %w", holder, id, wire.ErrorFromConnect(err))
	}
	return forwarded.Msg, nil
}

// holder returns the node whose conductor has the job, or had it last. It is empty if there is
// none, or if the conductor is a separate program.
func (s *logService) holder(id jobs.JobID) (string, error) {
	job, err := s.machine.Job(id)
	if err != nil {
		return "", err
	}
	conductors, err := s.machine.Entities(jobs.EntityConductor)
	for i := range conductors {
		has := job.Claim == nil && conductors[i].Name == job.LastOwner || job.Claim != nil && conductors[i].Session == job.Claim.Session
		var node string
		if has && json.Unmarshal(conductors[i].Metadata[NodeKey], &node) == nil {
			return node, nil
		}
	}
	return "", err
}

// await reads lines that this node stores, and waits for one while the job runs here.
func (s *logService) await(ctx context.Context, query steplog.Query, wait time.Duration) (*conductordv1.ReadLogsResponse, error) {
	over, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		page, changed, err := s.logs.Read(query)
		if err != nil {
			return nil, err
		}
		if len(page.Lines) > 0 || changed == nil || over.Err() != nil {
			return &conductordv1.ReadLogsResponse{
				Lines: ToProto(page.Lines, command.LogLineToProto), Next: page.Next, Running: page.Running, Node: page.Node,
			}, nil
		}
		select {
		case <-changed:
		case <-over.Done():
		}
	}
}
