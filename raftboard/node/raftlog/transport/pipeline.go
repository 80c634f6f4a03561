package transport

import (
	"context"

	"github.com/hashicorp/raft"
)

// pipelinePatience is longer than the wait of a healthy call, which waits at most raftTimeout
// for the previous answer.
const pipelinePatience = 2 * raftTimeout

// AppendEntriesPipeline opens a pipeline that cannot hang. raft's own can: when a peer refuses an
// entry, raft reads no more answers. If it then sends two more entries, the second call never
// returns. The peer gets heartbeats but no entries as long as this node runs.
func (p *Transport) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	inner, err := p.NetworkTransport.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}
	return &boundedPipeline{inner, p.life}, nil
}

// boundedPipeline closes itself when a call takes too long, or its node ends.
type boundedPipeline struct {
	raft.AppendPipeline
	life context.Context
}

// AppendEntries sends entries. It fails when it has waited for pipelinePatience; every later call
// then fails too.
func (p *boundedPipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	patience, cancel := context.WithTimeout(p.life, pipelinePatience)
	defer cancel()
	defer context.AfterFunc(patience, func() { _ = p.Close() })()
	return p.AppendPipeline.AppendEntries(args, resp)
}
