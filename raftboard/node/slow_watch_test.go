package node_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node"
	"github.com/conductord/conductord/raftboard/node/admission"
)

// A reader that stops reading is dropped. It continues after the last position that it has seen: no
// event is repeated or lost.
func TestReaderThatStopsIsDropped(t *testing.T) {
	const total = 3_000
	dropped := &awaitedLine{text: "ended a call that waited for its client", seen: make(chan struct{})}
	c := newCluster(t, 1, func(o *node.Options) {
		o.Logger = hclog.New(&hclog.LoggerOptions{Level: hclog.Info, Output: dropped})
	}).startAll()
	node.Tune(c.nodes[0], func(b *admission.Bounds) { b.Patience = 300 * time.Millisecond })
	client := c.client()
	var postings []jobs.Posting
	for i := range total {
		postings = append(postings, jobs.Posting{Name: fmt.Sprint(i), Kind: "none"})
	}
	if _, err := client.Post(t.Context(), postings...); err != nil {
		t.Fatal(err)
	}

	transport := &http.Transport{Protocols: new(http.Protocols), HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10, MaxReceiveBufferPerConnection: 128 << 10}}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	address := "http://" + c.endpoints()[0] + "/conductord.v1.BoardService/Watch"
	answer, err := (&http.Client{Transport: transport}).Post(address, "application/json", strings.NewReader(`{"after": "0-0"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	select { // the reader does not read until then
	case <-dropped.seen:
	case <-time.After(patience):
		t.Fatal("a reader that takes nothing is not dropped")
	}

	seen, last := 0, jobs.Position{}
	lines := bufio.NewReader(answer.Body)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break // dropped
		}
		var message struct {
			Events   []struct{ Name string }
			Position string
		}
		if err := json.Unmarshal(line, &message); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		for _, event := range message.Events {
			if event.Name != fmt.Sprint(seen) {
				t.Fatalf("event %d is of job %q", seen, event.Name)
			}
			seen++
		}
		if seen >= total {
			t.Fatalf("the reader that stopped was told all %d events", seen)
		}
		if _, err := fmt.Sscanf(message.Position, "%d-%d", &last.Index, &last.Item); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	for event, err := range client.Watch(t.Context(), jobs.Watch{After: &last}) {
		if err != nil {
			t.Fatal(err)
		}
		if event.Name != fmt.Sprint(seen) {
			t.Fatalf("after %s the event of job %q comes, not of %d", last, event.Name, seen)
		}
		if seen++; seen == total {
			break
		}
	}
}

// awaitedLine is a log in which the test waits for one line.
type awaitedLine struct {
	text string
	seen chan struct{}
	once sync.Once
}

func (l *awaitedLine) Write(line []byte) (int, error) {
	if strings.Contains(string(line), l.text) {
		l.once.Do(func() { close(l.seen) })
	}
	return len(line), nil
}
