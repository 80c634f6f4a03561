package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// etcdPeer is etcd, a key-value store without jobs: a post puts a new key.
type etcdPeer struct {
	members int
	client  *clientv3.Client
	last    atomic.Int64
}

func (p *etcdPeer) open(ctx context.Context, s *servers) (string, error) {
	free, err := ports(2 * p.members)
	if err != nil {
		return "", err
	}
	var cluster, endpoints []string
	for i := range p.members {
		cluster = append(cluster, fmt.Sprintf("m%d=http://127.0.0.1:%s", i, free[2*i]))
		endpoints = append(endpoints, "http://127.0.0.1:"+free[2*i+1])
	}
	for i := range p.members {
		name, peerURL, _ := strings.Cut(cluster[i], "=")
		err := s.serve(nil, "etcd", "--name", name, "--data-dir", filepath.Join(s.dir, name), "--listen-peer-urls", peerURL, "--initial-advertise-peer-urls", peerURL,
			"--listen-client-urls", endpoints[i], "--advertise-client-urls", endpoints[i], "--initial-cluster", strings.Join(cluster, ","), "--logger", "zap")
		if err != nil {
			return "", err
		}
	}
	if p.client, err = clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()}); err != nil {
		return "", err
	}
	if err := s.until(ctx, "etcd", p.post); err != nil {
		return "", err
	}
	version, err := command(ctx, find("etcd"), "--version").Output()
	return fmt.Sprintf("%s, members: %d; default configuration (an fsync for every entry; --unsafe-no-fsync is not given)", firstWords(version, 3), p.members), err
}

func (p *etcdPeer) post(ctx context.Context) error {
	_, err := p.client.Put(ctx, fmt.Sprintf("job/%019d", p.last.Add(1)), strings.Repeat("d", payloadBytes))
	return err
}

func (p *etcdPeer) flow(context.Context, int) error { return errNoFlows }

func (p *etcdPeer) signal(context.Context) error { return errNoSignals }

func (p *etcdPeer) close() {
	if p.client != nil {
		_ = p.client.Close()
	}
}
