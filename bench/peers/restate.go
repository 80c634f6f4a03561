package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	restate "github.com/restatedev/sdk-go"
	"github.com/restatedev/sdk-go/ingress"
	"github.com/restatedev/sdk-go/server"
)

// restatePeer is one Restate server. The steps are of a service in this program, which the server
// calls. A post is a call that the server makes after an hour, because Restate has no queue without a
// consumer.
type restatePeer struct {
	client  *ingress.Client
	ingress string // its address
	http    *http.Client
	stop    func()
	waits   sync.Map // by call: a channel that receives the id of its awakeable
	last    atomic.Int64
}

func (p *restatePeer) open(ctx context.Context, s *servers) (string, error) {
	free, err := ports(4)
	if err != nil {
		return "", err
	}
	local := func(i int) string { return "127.0.0.1:" + free[i] }
	env := []string{"RESTATE_ADMIN__BIND_ADDRESS=" + local(0), "RESTATE_INGRESS__BIND_ADDRESS=" + local(1), "RUST_LOG=error"}
	err = s.serve(env, "restate-server", "--no-logo", "--listen-mode", "tcp", "--base-dir", filepath.Join(s.dir, "data"), "--node-name", "peers",
		"--bind-address", local(2), "--advertised-address", "http://"+local(2))
	if err != nil {
		return "", err
	}
	service := restate.NewService("peers").Handler("flow", restate.NewServiceHandler(restateFlow)).Handler("post", restate.NewServiceHandler(restatePost)).
		Handler("wait", restate.NewServiceHandler(p.wait))
	serving, stop := context.WithCancel(context.Background())
	p.stop = stop
	quiet := slog.New(slog.DiscardHandler)
	go func() { // ends with stop
		if err := server.NewRestate().WithLogger(quiet.Handler(), false).Bind(service).Start(serving, local(3)); err != nil {
			progress("restate's service has ended: %v", err)
		}
	}()
	err = s.until(ctx, "restate-server", func(ctx context.Context) error { return register(ctx, local(0), local(3)) })
	if err != nil {
		return "", err
	}
	p.http = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: maxCallers}}
	p.ingress = local(1)
	p.client = ingress.NewClient("http://"+p.ingress, ingress.WithHttpClient(p.http))
	if err := s.until(ctx, "restate-server", func(ctx context.Context) error { return p.flow(ctx, 1) }); err != nil {
		return "", err
	}
	version, err := command(ctx, find("restate-server"), "--version").Output()
	if err != nil {
		return "", err
	}
	config, err := command(ctx, find("restate-server"), "--dump-config").Output()
	var settings []string
	for line := range strings.SplitSeq(string(config), "\n") {
		if strings.Contains(line, "fsync") || strings.HasPrefix(line, "default-") {
			settings = append(settings, line)
		}
	}
	return fmt.Sprintf("%s, one node; SDK %s; %s", strings.TrimSpace(string(version)), moduleVersion("github.com/restatedev/sdk-go"), strings.Join(settings, ", ")), err
}

// register registers the service's address with the server.
func register(ctx context.Context, admin, service string) error {
	body := bytes.NewBufferString(fmt.Sprintf(`{"uri": "http://%s"}`, service))
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+admin+"/deployments", body)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode >= http.StatusMultipleChoices {
		said, _ := io.ReadAll(response.Body)
		return fmt.Errorf("cannot register the service: %s: %s", response.Status, said)
	}
	return nil
}

func restateFlow(ctx restate.Context, steps int) (int, error) {
	for range steps {
		if _, err := restate.Run(ctx, func(restate.RunContext) (int, error) { return 0, nil }); err != nil {
			return 0, err
		}
	}
	return steps, nil
}

func restatePost(restate.Context, string) (int, error) { return 0, nil }

func (p *restatePeer) post(ctx context.Context) error {
	_, err := ingress.ServiceSend[string](p.client, "peers", "post").Send(ctx, strings.Repeat("d", payloadBytes), restate.WithDelay(time.Hour))
	return err
}

func (p *restatePeer) flow(ctx context.Context, steps int) error {
	_, err := ingress.Service[int, int](p.client, "peers", "flow").Request(ctx, steps)
	return err
}

// wait waits for an awakeable. The caller gets its id directly, because the handler runs in the same program.
func (p *restatePeer) wait(ctx restate.Context, call int64) (int, error) {
	future := restate.Awakeable[int](ctx)
	if id, found := p.waits.LoadAndDelete(call); found {
		id.(chan string) <- future.Id()
	}
	return future.Result()
}

func (p *restatePeer) signal(ctx context.Context) error {
	call, id, ended := p.last.Add(1), make(chan string, 1), make(chan error, 1)
	p.waits.Store(call, id)
	go func() { // ends with the call
		_, err := ingress.Service[int64, int](p.client, "peers", "wait").Request(ctx, call)
		ended <- err
	}()
	select {
	case awakeable := <-id:
		if err := p.resolve(ctx, awakeable); err != nil {
			return err
		}
	case err := <-ended:
		return err
	}
	return <-ended
}

func (p *restatePeer) resolve(ctx context.Context, awakeable string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.ingress+"/restate/awakeables/"+awakeable+"/resolve", strings.NewReader("1"))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := p.http.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode >= http.StatusMultipleChoices {
		said, _ := io.ReadAll(response.Body)
		return fmt.Errorf("cannot resolve an awakeable: %s: %s", response.Status, said)
	}
	return nil
}

func (p *restatePeer) close() {
	if p.stop != nil {
		p.stop()
	}
	if p.http != nil {
		p.http.CloseIdleConnections()
	}
}
