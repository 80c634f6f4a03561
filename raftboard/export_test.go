package raftboard

import (
	"context"
	"net"
	"net/http"

	"google.golang.org/protobuf/proto"

	"github.com/conductord/conductord/valuekeys"
)

// NewTransport is the transport of a client, with the connections of dial.
func NewTransport(dial func(ctx context.Context, network, address string) (net.Conn, error)) *http.Transport {
	transport := newTransport(nil, nil)
	transport.DialContext = dial
	return transport
}

// Waiting is the number of updates and endings that wait to be sent.
func Waiting(c *Client) int {
	c.ordered.mu.Lock()
	defer c.ordered.mu.Unlock()
	return len(c.ordered.queue)
}

// WaitingPosts is the number of Post calls that wait to be sent.
func WaitingPosts(c *Client) int {
	c.posts.mu.Lock()
	defer c.posts.mu.Unlock()
	return len(c.posts.queue)
}

// WantStreams makes a client request a stream to every known node.
func WantStreams(c *Client) {
	for _, p := range c.peers.known() {
		p.stream.Want()
	}
}

// Streams is the number of open streams.
func Streams(c *Client) int {
	n := 0
	for _, p := range c.peers.known() {
		if p.stream.Ready() {
			n++
		}
	}
	return n
}

// Encrypt encrypts a message of a call like a client with keys, and Decrypt decrypts it.
func Encrypt(keys *valuekeys.Keys, message proto.Message) {
	(&core{options: Options{ValueKeys: keys}}).encrypt(message)
}

func Decrypt(keys *valuekeys.Keys, message proto.Message) {
	(&core{options: Options{ValueKeys: keys}}).decrypt(message)
}
