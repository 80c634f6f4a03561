package command

import (
	"crypto/sha256"
	"slices"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// DigestSize is the length of a PostingDigest.
const DigestSize = sha256.Size

// PostingToProto converts a posting; nil stays nil.
func PostingToProto(p *jobs.Posting) *v1.Posting {
	if p == nil {
		return nil
	}
	return &v1.Posting{
		Id:        idText(p.ID.UUID),
		Board:     p.Board,
		Name:      p.Name,
		Priority:  int32(p.Priority),
		Book:      BookToProto(p.Book),
		BookId:    idText(p.BookID.UUID),
		Flow:      idText(p.Flow.UUID),
		Kind:      p.Kind,
		Details:   ValueToProto(p.Details),
		Store:     ValuesToProto(p.Store),
		NotBefore: TimeToProto(p.NotBefore),
		Hold:      p.Hold,

		Key: p.Key, Front: p.Front, Tags: slices.Clone(p.Tags), MaxCrashes: countOf(p.MaxCrashes),
		Labels: slices.Clone(p.Labels), Deadline: TimeToProto(p.Deadline),
		Retry: RetryPolicyToProto(p.Retry), Retention: DurationToProto(p.Retention),
		Traceparent: p.Traceparent,
	}
}

// PostingFromProto converts a posting. Nil is the zero posting.
func PostingFromProto(message *v1.Posting) (jobs.Posting, error) {
	var r reader
	p := jobs.Posting{
		ID:        jobs.JobID{UUID: r.id("job id", message.GetId())},
		Board:     message.GetBoard(),
		Name:      message.GetName(),
		Priority:  jobs.Priority(message.GetPriority()),
		BookID:    logbook.BookID{UUID: r.id("posting book_id", message.GetBookId())},
		Flow:      logbook.FlowID{UUID: r.id("posting flow", message.GetFlow())},
		Kind:      message.GetKind(),
		Details:   ValueFromProto(message.GetDetails()),
		Store:     ValuesFromProto(message.GetStore()),
		NotBefore: r.time("posting not_before", message.GetNotBefore()),
		Hold:      message.GetHold(),

		Key: message.GetKey(), Front: message.GetFront(), Tags: slices.Clone(message.GetTags()),
		MaxCrashes: r.count("posting max_crashes", message.GetMaxCrashes()), Labels: slices.Clone(message.GetLabels()),
		Deadline: r.time("posting deadline", message.GetDeadline()), Retention: r.duration("posting retention", message.GetRetention()),
		Traceparent: message.GetTraceparent(),
	}
	retry, err := RetryPolicyFromProto(message.GetRetry())
	p.Retry = keep(&r, retry, err)
	if message.GetBook() != nil {
		book, err := BookFromProto(message.GetBook())
		p.Book = keep(&r, &book, err)
	}
	if r.err != nil {
		return jobs.Posting{}, r.err
	}
	return p, nil
}

// PostingDigest tells a repeat of a posting from another posting with the same id. It
// is the SHA-256 of the posting's encoding, with named values in sorted order. An empty
// board counts as the default one, because both mean the same. The traceparent does not
// count: a repeat may come from another span. Both are changed for the moment, so no
// other goroutine may use the posting meanwhile. Protobuf
// promises this encoding for one build only; digests are stored, so a test pins one.
//
// The encoding is made in the given memory, which may be nil. It is returned, or larger
// memory in its place, for the next call.
func PostingDigest(memory []byte, p *v1.Posting) (digest [DigestSize]byte, again []byte) {
	if p.Board == "" {
		p.Board = jobs.DefaultBoard
		defer func() { p.Board = "" }()
	}
	traceparent := p.Traceparent
	p.Traceparent = ""
	defer func() { p.Traceparent = traceparent }()
	sortValues(p.GetStore())
	sortValues(p.GetBook().GetMeta())
	for _, flow := range p.GetBook().GetFlows() {
		sortValues(flow.GetStore())
		sortValues(flow.GetMeta())
	}
	encoded, err := AppendMessage(memory[:0], p, p.SizeVT())
	if err != nil {
		panic("internal error: a posting from the log cannot be encoded: " + err.Error())
	}
	return sha256.Sum256(encoded), encoded
}
