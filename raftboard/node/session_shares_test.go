package node_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
)

// clientFrom makes a client that calls from another host.
func (c *cluster) clientFrom(host string) *raftboard.Client {
	c.t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}
	transport := &http.Transport{Protocols: new(http.Protocols), DialContext: dialer.DialContext}
	transport.Protocols.SetUnencryptedHTTP2(true)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client, err := raftboard.Open(ctx, raftboard.Options{Endpoints: c.endpoints(), HTTPClient: &http.Client{Transport: transport}})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { client.Close(); transport.CloseIdleConnections() })
	return client
}

// One client cannot open so many sessions that others get none. The node's own conductor gets a
// session for any number of sessions from its host.
func TestSessionsOfOneClient(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1).startAll()
	client := c.client()
	opening := func() jobs.Opening {
		return jobs.Opening{ID: jobs.NewSessionID(), Name: "worker", TTL: time.Hour}
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var open []jobs.Opening
	for range 16 {
		all.Go(func() {
			for range maxClientSessions / 8 { // twice the allowed number
				next := opening()
				_, err := client.OpenSession(t.Context(), next)
				var limit *logbook.LimitError
				switch {
				case err == nil:
					mu.Lock()
					open = append(open, next)
					mu.Unlock()
				case !errors.As(err, &limit) || limit.Field != "sessions of client 127.0.0.1" || limit.Limit != maxClientSessions:
					t.Errorf("one more is refused by %v", err)
				}
			}
		})
	}
	all.Wait()
	if len(open) != maxClientSessions {
		t.Errorf("one client has opened %d sessions, and the limit is %d", len(open), maxClientSessions)
	}
	for _, how := range []struct {
		name string
		open func() error
		want error
	}{
		{"the same client", func() error { _, err := client.OpenSession(t.Context(), opening()); return err }, jobs.ErrLimit},
		{"the same client, by a call of its own", func() error { return openPlainly(t, c, opening().ID, "") }, jobs.ErrLimit},
		{"a repeat", func() error { _, err := client.OpenSession(t.Context(), open[0]); return err }, nil},
		{"another client", func() error { _, err := c.clientFrom("127.0.0.2").OpenSession(t.Context(), opening()); return err }, nil},
		{"another node of the same host", func() error { return openPlainly(t, c, opening().ID, "1") }, nil},
		{"the node's own conductor", func() error { _, err := c.nodes[0].OpenSession(t.Context(), opening()); return err }, nil},
	} {
		if err := how.open(); !errors.Is(err, how.want) {
			t.Errorf("%s: got %v, want %v", how.name, err, how.want)
		}
	}
	if err := client.CloseSession(t.Context(), open[0].ID); err != nil {
		t.Fatal(err)
	}
	if _, err := client.OpenSession(t.Context(), opening()); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
}

// openPlainly opens a session without the client library, like a call after a number of hops.
func openPlainly(t *testing.T, c *cluster, id jobs.SessionID, hops string) error {
	t.Helper()
	body := fmt.Sprintf(`{"opening":{"id":%q,"name":"w","ttl":"3600s"}}`, id)
	request, err := http.NewRequest(http.MethodPost, "http://"+c.endpoints()[0]+"/conductord.v1.SessionService/Open", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	if hops != "" {
		request.Header.Set("Conductord-Hops", hops)
	}
	answer, err := clientOf(t, false).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	said, _ := io.ReadAll(answer.Body)
	switch answer.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusTooManyRequests:
		return fmt.Errorf("%w: %s", jobs.ErrLimit, said)
	}
	return fmt.Errorf("%d: %s", answer.StatusCode, said)
}
