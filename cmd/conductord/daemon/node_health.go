package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/config"
)

const (
	// healthTimeout bounds the question: containers are probed every few seconds.
	healthTimeout = 5 * time.Second
	// maxReason limits the bytes that are read of an answer.
	maxReason = 4 << 10
)

// NodeHealth is the output of node health for a healthy node.
type NodeHealth struct {
	Node   string `json:"node"`
	Health string `json:"health"` // alive or ready
}

func healthCommand(p *cli.Program) *cobra.Command {
	var ready bool
	cmd := configured(p, &cobra.Command{
		Use:   "health [--config FILE]",
		Short: "Ask this machine's node if it is alive; exit 1 if not",
		Long: "Check that the configured node answers at its API address. With --ready, check that it can serve every call: it\n" +
			"knows a leader and has caught up. Use it as a container's health check.",
		Args: cobra.NoArgs,
	}, func(ctx context.Context, loaded config.Config, _ []string) error {
		path, health := "/healthz", "alive"
		if ready {
			path, health = "/readyz", "ready"
		}
		if err := askHealth(ctx, loaded, path); err != nil {
			return fmt.Errorf("cannot call node %q %s: %w", loaded.Node, health, err)
		}
		return p.Show(NodeHealth{Node: loaded.Node, Health: health}, "node %s is %s", loaded.Node, health)
	})
	cmd.Flags().BoolVar(&ready, "ready", false, "check that the node knows a leader and has caught up")
	return cmd
}

// askHealth asks for a page of the node's own API port; nil: it answers 200.
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
