package command

import (
	"slices"

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

// ClaimFromProto converts a claim; nil stays nil.
func ClaimFromProto(message *v1.Claim) (*jobs.Claim, error) {
	if message == nil {
		return nil, nil
	}
	var r reader
	c := &jobs.Claim{
		Session: jobs.SessionID{UUID: r.id("claim session", message.Session)},
		Owner:   message.Owner,
		Token:   TokenFromProto(message.Token),
		Since:   r.time("claim since", message.Since),

		Expiry:     r.duration("claim expiry", message.Expiry),
		Extensions: r.count("claim extensions", message.Extensions),
		Begins:     message.Begins,
	}
	if r.err != nil {
		return nil, r.err
	}
	return c, nil
}

// ClaimedToProto converts the answer to a claim; nil stays nil. Whether the
// flow fits into one answer is for the sender to say.
func ClaimedToProto(c *jobs.Claimed) *v1.Claimed {
	if c == nil {
		return nil
	}
	return &v1.Claimed{
		Job:  JobToProto(&c.Job),
		Book: BookToProto(c.Book),
		Flow: FlowDetailToProto(c.Flow),
	}
}

// ClaimedFromProto converts the answer to a claim. Nil is the zero answer.
// Where message.FlowOmitted is set, the receiver has yet to read the flow.
func ClaimedFromProto(message *v1.Claimed) (jobs.Claimed, error) {
	var r reader
	job, err := JobFromProto(message.GetJob())
	c := jobs.Claimed{Job: keep(&r, job, err)}
	if message.GetBook() != nil {
		book, err := BookFromProto(message.GetBook())
		c.Book = keep(&r, &book, err)
	}
	if message.GetFlow() != nil {
		flow, err := FlowDetailFromProto(message.GetFlow())
		c.Flow = keep(&r, &flow, err)
	}
	if r.err != nil {
		return jobs.Claimed{}, r.err
	}
	return c, nil
}

// ClaimRequestToProto converts a request for claims to the command that it
// becomes; nil stays nil. How long the caller waits is not part of that.
func ClaimRequestToProto(r *jobs.ClaimRequest) *v1.ClaimNextCommand {
	if r == nil {
		return nil
	}
	return &v1.ClaimNextCommand{
		Session: idText(r.Session.UUID),
		Nonce:   idText(r.Nonce.UUID),
		Boards:  slices.Clone(r.Boards),
		Kinds:   slices.Clone(r.Kinds),
		Max:     countOf(r.Max),
		Labels:  slices.Clone(r.Labels),
		Expiry:  DurationToProto(r.Expiry),
		Begins:  r.Begins,
	}
}

// ClaimRequestFromProto converts the command to a request that does not wait.
// Nil is the zero request.
func ClaimRequestFromProto(message *v1.ClaimNextCommand) (jobs.ClaimRequest, error) {
	var r reader
	request := jobs.ClaimRequest{
		Session: jobs.SessionID{UUID: r.id("claim session", message.GetSession())},
		Nonce:   jobs.Nonce{UUID: r.id("claim nonce", message.GetNonce())},
		Boards:  slices.Clone(message.GetBoards()),
		Kinds:   slices.Clone(message.GetKinds()),
		Max:     r.count("claim max", message.GetMax()),
		Labels:  slices.Clone(message.GetLabels()),
		Expiry:  r.duration("claim expiry", message.GetExpiry()),
		Begins:  message.GetBegins(),
	}
	if r.err != nil {
		return jobs.ClaimRequest{}, r.err
	}
	return request, nil
}

// HeldClaimToProto converts a claim of a listing; nil stays nil.
func HeldClaimToProto(h *jobs.HeldClaim) *v1.HeldClaim {
	if h == nil {
		return nil
	}
	return &v1.HeldClaim{
		Job:     idText(h.Job.UUID),
		Board:   h.Board,
		Name:    h.Name,
		Kind:    h.Kind,
		Claim:   ClaimToProto(&h.Claim),
		Left:    DurationToProto(h.Left),
		Silent:  DurationToProto(h.Silent),
		Suspect: h.Suspect,
	}
}

// HeldClaimFromProto converts a claim of a listing. Nil is the zero claim.
func HeldClaimFromProto(message *v1.HeldClaim) (jobs.HeldClaim, error) {
	var r reader
	h := jobs.HeldClaim{
		Job:     jobs.JobID{UUID: r.id("claim job", message.GetJob())},
		Board:   message.GetBoard(),
		Name:    message.GetName(),
		Kind:    message.GetKind(),
		Left:    r.duration("claim left", message.GetLeft()),
		Silent:  r.duration("claim silent", message.GetSilent()),
		Suspect: message.GetSuspect(),
	}
	claim, err := ClaimFromProto(message.GetClaim())
	if keep(&r, claim, err); claim != nil {
		h.Claim = *claim
	}
	if r.err != nil {
		return jobs.HeldClaim{}, r.err
	}
	return h, nil
}

// EndingToProto converts an ending; nil stays nil.
func EndingToProto(e *jobs.Ending) *v1.Ending {
	if e == nil {
		return nil
	}
	return &v1.Ending{
		Job:     idText(e.Job.UUID),
		Token:   TokenToProto(e.Token),
		Update:  UpdateToProto(e.Update),
		Outcome: string(e.Outcome),
		Reason:  text(e.Reason),
		Failure: FailureToProto(e.Failure),
		Delay:   DurationToProto(e.Delay),

		Recorded: e.Recorded,
	}
}

// EndingFromProto converts an ending. Nil is the zero ending.
func EndingFromProto(message *v1.Ending) (jobs.Ending, error) {
	var r reader
	e := jobs.Ending{
		Job:     jobs.JobID{UUID: r.id("ending job", message.GetJob())},
		Token:   TokenFromProto(message.GetToken()),
		Outcome: word(&r, "ending outcome", message.GetOutcome(), knownOutcome),
		Reason:  message.GetReason(),
		Failure: FailureFromProto(message.GetFailure()),
		Delay:   r.duration("ending delay", message.GetDelay()),

		Recorded: message.GetRecorded(),
	}
	if message.GetUpdate() != nil {
		update, err := UpdateFromProto(message.GetUpdate())
		e.Update = keep(&r, &update, err)
	}
	if r.err != nil {
		return jobs.Ending{}, r.err
	}
	return e, nil
}
