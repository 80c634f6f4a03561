// Package wire defines the parts of the API that its messages do not have: header names, sizes and times,
// the rule for batches, the encoding of errors, and the JSON form of messages. Clients and nodes use it.
//
// An error has a connect code, for programs that know only HTTP or gRPC, and a conductord.v1.Error as its
// detail. If there is a detail, it alone decides which error the client library returns.
package wire

import (
	"time"

	"connectrpc.com/connect"

	"github.com/conductord/conductord/logbook"
)

// Headers.
const (
	// HeaderLeader is in answers and errors: the API address (host:port) of the leader, if the
	// node knows it.
	HeaderLeader = "Conductord-Leader"
	// HeaderIndex is in answers: a log index. The answer includes all entries up to it.
	HeaderIndex = "Conductord-Index"
	// HeaderAge is in answers from a node's own state: the time since the node's last contact with
	// the leader, such as "1.5s". It is missing if the node had no contact since its start.
	HeaderAge = "Conductord-Age"
	// HeaderMinIndex is in requests: a node that answers from its own state first waits until it
	// has applied this index.
	HeaderMinIndex = "Conductord-Min-Index"
	// HeaderHops is in requests: the number of forwards. It stops a loop between two nodes that
	// take each other for the leader.
	HeaderHops = "Conductord-Hops"
	// HeaderTopology is in requests from a node of another cluster: the digest of the topology
	// by which that node forwarded the request. Such a request is not forwarded to a third
	// cluster.
	HeaderTopology = "Conductord-Topology"
	// HeaderPrincipal is in forwarded requests: the caller that the first node authenticated. A
	// node accepts it only from nodes, which it knows by their certificates.
	HeaderPrincipal = "Conductord-Principal"
	// HeaderToken is in forwarded requests: the id of the caller's access token. The leader also
	// refuses a revoked token.
	HeaderToken = "Conductord-Token"
	// HeaderFrom is in forwarded requests: the host of the caller, or "socket".
	HeaderFrom = "Conductord-From"
)

// Prefix precedes a call's name, such as "BoardService/Post", in its URL.
const Prefix = "/conductord.v1."

// MaxHops is the maximum number of forwards of a call: one, to the leader.
const MaxHops = 1

// Sizes, in bytes of a message's encoding.
const (
	// MaxMessage limits every request and every answer. A full batch fits, together with a command
	// of the largest size.
	MaxMessage = 4 << 20
	// PageBytes is the size at which a node ends a page. Such a page with one more large item
	// fits into MaxMessage.
	PageBytes = 1 << 20
	// PackBytes and PackCommands bound a client's batch of commands. A larger command is sent
	// alone. A full batch fits into one log entry.
	PackBytes    = 512 << 10
	PackCommands = 256
	// MaxCommand is the largest command that any node accepts.
	MaxCommand = 1 << 20
)

// A command of the largest size must fit, and so must a batch.
const _ = uint64(MaxMessage - PackBytes - MaxCommand)

// Times.
const (
	// MaxPoll limits the wait of one WaitJob, WaitStep or ClaimNext.
	MaxPoll = 60 * time.Second
	// WatchSign is the interval of a node's signs of life on a watch. After WatchSilence without
	// one, a client tries another node.
	WatchSign    = 3 * time.Second
	WatchSilence = 10 * time.Second
)

// MaxJSONDepth limits the nesting of a message in JSON. It allows a value of the maximum depth
// inside the most deeply nested message, with chains of causes.
const MaxJSONDepth = 2 * logbook.MaxJSONDepth

// HandlerOptions returns the options of all handlers of the API: the codecs, with JSON under both of its
// names, and the bound of a message.
func HandlerOptions() []connect.HandlerOption {
	return []connect.HandlerOption{
		connect.WithCodec(answerCodec{}),
		connect.WithCodec(JSONCodec{}),
		connect.WithCodec(charsetCodec{}),
		connect.WithReadMaxBytes(MaxMessage),
	}
}

// ClientOptions returns the options of all clients of the API. Answers are not compressed, because on a
// cluster's network processor time costs more than bytes.
func ClientOptions() []connect.ClientOption {
	return []connect.ClientOption{
		connect.WithCodec(ProtoCodec{}),
		connect.WithAcceptCompression("gzip", nil, nil),
		connect.WithReadMaxBytes(MaxMessage),
		connect.WithSendMaxBytes(MaxMessage),
	}
}
