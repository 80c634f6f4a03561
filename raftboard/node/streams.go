package node

import (
	"github.com/conductord/conductord/raftboard/stream"
	"github.com/hashicorp/go-hclog"
)

// streams answers calls that come on streams, by the handlers that answer the
// plain ones.
func (s *services) streams(calls []call, metrics *nodeMetrics, logger hclog.Logger) *stream.Server {
	var offers []stream.Offer
	for _, c := range calls {
		if c.offer != nil {
			offers = append(offers, *c.offer)
		}
	}
	return stream.NewServer(stream.ServerOptions{
		Offers: offers,
		Leader: func() string {
			leader, _ := s.router.leader.known()
			return leader.API
		},
		Called: metrics.called,
		Panicked: func(procedure string, cause any, stack []byte) {
			logger.Error("a call has panicked", "call", procedureName(procedure), "cause", cause, "stack", string(stack))
		},
		Patience: clientPatience,
	})
}
