package node

import (
	"github.com/conductord/conductord/raftboard/node/admission"
	"github.com/conductord/conductord/raftboard/stream"
)

// streams answers the calls on streams, with the handlers of the plain calls.
func (s *services) streams(calls []call, metrics *nodeMetrics, panics *panics) *stream.Server {
	var offers []stream.Offer
	for _, c := range calls {
		if c.offer != nil {
			offers = append(offers, *c.offer)
		}
	}
	return stream.NewServer(stream.ServerOptions{
		Offers: offers,
		Leader: func() string {
			leader, _ := s.router.leader.Known()
			return leader.API
		},
		Called: metrics.called,
		Panicked: func(procedure string, cause any, stack []byte) error {
			return panics.note(procedureName(procedure), cause, stack)
		},
		Pace:     admission.KeepPace,
		Short:    s.router.memory.Short,
		Patience: admission.ClientPatience,
	})
}
