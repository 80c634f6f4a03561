package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/config"
)

const (
	// healthTimeout limits the request, because containers are probed every few seconds.
	healthTimeout = 5 * time.Second
	// maxReason limits the bytes that are read of an answer.
	maxReason = 4 << 10
)

// NodeHealth is the output of node check for a healthy node.
type NodeHealth struct {
	Node   string `json:"node"`
	Health string `json:"health"` // alive or ready
}

func checkRunning(ctx context.Context, p *cli.Program, loaded config.Config, ready bool) error {
	path, health := "/healthz", "alive"
	if ready {
		path, health = "/readyz", "ready"
	}
	if err := askHealth(ctx, loaded, path); err != nil {
		return fmt.Errorf("cannot confirm that node %q is %s: %w", loaded.Node, health, err)
	}
	return p.Show(NodeHealth{Node: loaded.Node, Health: health}, "node %s is %s", loaded.Node, health)
}

// askHealth requests a page of the node's own API port; nil: it answers 200.
func askHealth(ctx context.Context, c config.Config, path string) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	secure, err := openCredentials(c, daemonLogger(c, io.Discard))
	if err != nil {
		return err
	}
	scheme, transport := "http", &http.Transport{DisableKeepAlives: true}
	if secure != nil {
		scheme, transport.TLSClientConfig = "https", secure.Members(c.Cluster.ID)
		transport.TLSClientConfig.NextProtos = []string{"http/1.1"}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+localAddress(c.APIAddress())+path, nil)
	if err != nil {
		return err
	}
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	reason, err := io.ReadAll(io.LimitReader(answer.Body, maxReason))
	if err != nil || answer.StatusCode == http.StatusOK {
		return err
	}
	return errors.New(strings.TrimSpace(string(reason)))
}
