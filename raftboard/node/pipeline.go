package node

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// AppendEntriesPipeline opens a pipeline that can't hang. raft's own can: when a
// peer refuses an entry, raft reads no more answers, and if it sends two more
// before it looks whether it still should, the second call never returns. The
// peer would get heartbeats, and no entries, for as long as this node runs.
func (p *patientTransport) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	inner, err := p.NetworkTransport.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}
	made := &boundedPipeline{AppendPipeline: inner, ended: make(chan struct{})}
	go func() { // ends with the pipeline
		select {
		case <-p.closed:
			_ = made.Close()
		case <-made.ended:
		}
	}()
	return made, nil
}

// pipelinePatience is longer than a healthy call waits: for the answer to the
// one before, which takes raftTimeout at most.
const pipelinePatience = 2 * raftTimeout

// boundedPipeline closes itself when a call takes too long.
type boundedPipeline struct {
	raft.AppendPipeline
	closing sync.Once
	ended   chan struct{}
}

// AppendEntries sends entries. It fails, and so does every later call, when it
// has waited for pipelinePatience.
func (p *boundedPipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	hung := time.AfterFunc(pipelinePatience, func() { _ = p.Close() })
	defer hung.Stop()
	return p.AppendPipeline.AppendEntries(args, resp)
}

// Close ends the pipeline and the call under way. It may be called more than
// once.
func (p *boundedPipeline) Close() error {
	p.closing.Do(func() { close(p.ended) })
	return p.AppendPipeline.Close()
}
