package command

import (
	"crypto/sha256"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
)

// DigestSize is the length of a PostingDigest.
const DigestSize = sha256.Size

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
