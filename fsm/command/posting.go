package command

import (
	"crypto/sha256"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
)

// DigestSize is the length of a PostingDigest.
const DigestSize = sha256.Size

// PostingDigest distinguishes a repeat of a posting from another posting with the same id. It is
// the SHA-256 of the posting's encoding, with named values in sorted order. It treats an empty
// board as the default board, because both have the same meaning. It ignores the traceparent,
// because a repeat can come from another span. PostingDigest changes both fields temporarily, so no
// other goroutine may use the posting meanwhile. Protobuf guarantees this encoding only for one
// build; digests are stored, so a test pins one.
//
// The encoding uses the given memory, which may be nil. again is this memory, or larger memory, for
// the next call.
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
