package command

import (
	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
)

// ClaimToProto converts a claim; nil stays nil.
func ClaimToProto(c *jobs.Claim) *v1.Claim { return claimInto(nil, c) }

// claimInto is ClaimToProto into the message of another claim, if there is one.
func claimInto(message *v1.Claim, c *jobs.Claim) *v1.Claim {
	switch {
	case c == nil:
		return nil
	case message == nil:
		message = new(v1.Claim)
	}
	*message = v1.Claim{
		Session: idLike(message.Session, c.Session.UUID),
		Owner:   c.Owner,
		Token:   TokenInto(message.Token, c.Token),
		Since:   TimeInto(message.Since, c.Since),

		Expiry:     DurationToProto(c.Expiry),
		Extensions: countOf(c.Extensions),
		Begins:     c.Begins,
	}
	return message
}
