package api

import (
	"time"

	"github.com/conductord/conductord/raftboard/node/admission"
	"github.com/conductord/conductord/raftboard/stream"
)

// streams answers the calls on streams, with the handlers of the plain calls.
func (r *Router) streams(calls []Call, called func(call string, took time.Duration, err error), panics *Panics) *stream.Server {
	var offers []stream.Offer
	for _, c := range calls {
		if c.offer != nil {
			offers = append(offers, *c.offer)
		}
	}
	return stream.NewServer(stream.ServerOptions{
		Offers: offers,
		Leader: func() string {
			leader, _ := r.leader.Known()
			return leader.API
		},
		Called: func(procedure string, took time.Duration, err error) { called(procedureName(procedure), took, err) },
		Panicked: func(procedure string, cause any, stack []byte) error {
			return panics.note(procedureName(procedure), cause, stack)
		},
		Pace:     admission.KeepPace,
		Short:    r.memory.Short,
		Patience: admission.ClientPatience,
	})
}
