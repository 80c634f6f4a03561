// Package wire is what both ends of a conductord call agree on beyond the
// messages of package conductordv1: header names, sizes and times, the rule of
// batches, how errors are encoded, and the JSON form of messages.
//
// An error has a connect code, for programs that know only HTTP or gRPC, and a
// conductord.v1.Error as its detail. The detail alone decides which sentinel the
// client library returns.
package wire

import (
	"time"

	"connectrpc.com/connect"

	"github.com/conductord/conductord/logbook"
)

// Headers.
const (
	// HeaderLeader of an answer, also of an error, is the API address
	// (host:port) of the leader, if the node knows one.
	HeaderLeader = "Conductord-Leader"
	// HeaderIndex of an answer is a log index that the answer includes.
	HeaderIndex = "Conductord-Index"
	// HeaderAge of an answer from a node's own state is how long ago, such as "1.5s", that node
	// has heard the leader. It is missing if the node has heard none since it started.
	HeaderAge = "Conductord-Age"
	// HeaderMinIndex of a request makes a node that answers from its own state
	// wait until it has applied that index.
	HeaderMinIndex = "Conductord-Min-Index"
	// HeaderHops of a request counts how often it has been forwarded. It stops
	// two nodes that each take the other for the leader.
	HeaderHops = "Conductord-Hops"
	// HeaderTopology of a request is the digest of the topology by which a node of another
	// cluster has forwarded it. Such a call is not forwarded to a third cluster.
	HeaderTopology = "Conductord-Topology"
	// HeaderPrincipal of a forwarded request is the caller that the first node has
	// authenticated. It counts only from nodes, by their certificates.
	HeaderPrincipal = "Conductord-Principal"
	// HeaderToken is the id of the access token that the caller has shown, so that the
	// leader too refuses one that was revoked.
	HeaderToken = "Conductord-Token"
	// HeaderFrom is the host from which that call came, or "socket".
	HeaderFrom = "Conductord-From"
)

// Prefix stands before a call's name, such as "BoardService/Post", in its URL.
const Prefix = "/conductord.v1."

// MaxHops is how often a call may be forwarded: once, to the leader.
const MaxHops = 1

// Sizes, in bytes of a message's encoding.
const (
	// MaxMessage bounds every request and every answer. A full batch and one
	// command of the largest size fit into it.
	MaxMessage = 4 << 20
	// PageBytes is where a node ends a page and says that more follows. One
	// large item more still fits into MaxMessage.
	PageBytes = 1 << 20
	// PackBytes and PackCommands bound a client's batch of commands. A larger
	// command goes alone. A full batch fits into one log entry of the largest
	// size.
	PackBytes    = 512 << 10
	PackCommands = 256
	// MaxCommand is the largest command that any node accepts.
	MaxCommand = 1 << 20
)

// A command of the largest size must fit, and so must a batch.
const _ = uint64(MaxMessage - PackBytes - MaxCommand)

// Times.
const (
	// MaxPoll is the longest that one WaitJob or ClaimNext may wait.
	MaxPoll = 60 * time.Second
	// WatchSign is how often a node sends a sign of life on a watch, and
	// WatchSilence how long a client waits for one before it goes elsewhere.
	WatchSign    = 3 * time.Second
	WatchSilence = 10 * time.Second
)

// MaxJSONDepth bounds the nesting of a message in JSON: a value of the
// greatest depth, inside the most deeply nested message, with room for chains
// of causes.
const MaxJSONDepth = 2 * logbook.MaxJSONDepth

// HandlerOptions are those of every handler of the API: our codecs, that of JSON
// under both names that callers give it, and the bound of a message.
func HandlerOptions() []connect.HandlerOption {
	return []connect.HandlerOption{
		connect.WithCodec(answerCodec{}),
		connect.WithCodec(JSONCodec{}),
		connect.WithCodec(charsetCodec{}),
		connect.WithReadMaxBytes(MaxMessage),
	}
}

// ClientOptions are those of every client of the API. Answers are not compressed:
// on a cluster's network, processor time costs more than bytes.
func ClientOptions() []connect.ClientOption {
	return []connect.ClientOption{
		connect.WithCodec(ProtoCodec{}),
		connect.WithAcceptCompression("gzip", nil, nil),
		connect.WithReadMaxBytes(MaxMessage),
		connect.WithSendMaxBytes(MaxMessage),
	}
}
