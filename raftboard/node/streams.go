package node

import (
	"time"

	"github.com/conductord/conductord/raftboard/stream"
)

// streams answers calls that come on streams, by the handlers that answer the
// plain ones.
func (n *Node) streams(calls []call) *stream.Server {
	var offers []stream.Offer
	for _, c := range calls {
		if c.offer != nil {
			offers = append(offers, *c.offer)
		}
	}
	return stream.NewServer(stream.ServerOptions{
		Offers: offers,
		Leader: func() string {
			leader, _ := n.leader.known()
			return leader.API
		},
		Called: func(procedure string, took time.Duration, err error) { n.metrics.called(procedure, took, err) },
		Panicked: func(procedure string, cause any, stack []byte) {
			n.logger.Error("a call has panicked", "call", procedureName(procedure), "cause", cause, "stack", string(stack))
		},
		Patience: clientPatience,
	})
}
