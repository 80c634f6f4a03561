package browser_test

import (
	"context"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/cmd/conductord/dashboard"
	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/handler"
	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/node/nodetest"
)

// site is a node with a conductor and its dashboard.
type site struct {
	t       *testing.T
	cluster *nodetest.Cluster
	url     string // of the dashboard
	gate    string // handler "held" ends when this file exists
}

const order = `
name = "order"
[[steps]]
name = "reserve"
handler = "quick"
provides = "shelf"
[[steps]]
name = "ship"
handler = "held"
requires = ["shelf"]
provides = "parcel"
[[steps]]
name = "invoice"
handler = "quick"
requires = ["parcel"]
`

// open opens a site with handlers "quick", and "held", which ends when the site is released.
func open(t *testing.T, nodes int) *site {
	t.Helper()
	directory, gate := t.TempDir(), filepath.Join(t.TempDir(), "gate")
	for name, script := range map[string]string{
		"quick": "echo '\"done\"'",
		"held":  "while [ ! -e '" + gate + "' ]; do sleep 0.05; done; echo '\"done\"'",
	} {
		if err := os.WriteFile(filepath.Join(directory, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s := openWith(t, nodes, directory)
	s.gate = gate
	t.Cleanup(s.release)
	return s
}

// openWith opens a site with the handlers of a directory.
func openWith(t *testing.T, nodes int, directory string) *site {
	t.Helper()
	s := &site{t: t, cluster: nodetest.New(t, nodes)}
	api := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: s.cluster.Endpoints[0]})
	server := httptest.NewServer(dashboard.New(dashboard.Options{API: api, Path: "/dashboard/", Node: "n1", Logger: hclog.NewNullLogger()}))
	t.Cleanup(server.Close)
	s.url = server.URL + "/dashboard/"
	set, err := handler.Open(directory)
	if err != nil {
		t.Fatal(err)
	}
	registry := flow.NewRegistry()
	if err := registry.Register(spec.Kind, spec.Factory(set)); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- conductor.Run(ctx, conductor.Options{Client: s.cluster.Client, Registry: registry, Name: "worker"})
	}() // ends with ctx
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s
}

// release lets handler "held" end.
func (s *site) release() {
	if err := os.WriteFile(s.gate, nil, 0o600); err != nil {
		s.t.Error(err)
	}
}

// run posts a flow.
func (s *site) run(document string) jobs.Job {
	s.t.Helper()
	return s.post(s.posting(document))
}

// posting is the posting of a flow.
func (s *site) posting(document string) jobs.Posting {
	s.t.Helper()
	d, err := spec.Parse([]byte(document), "flow.toml")
	if err != nil {
		s.t.Fatal(err)
	}
	book := logbook.NewBookID()
	return jobs.Posting{Name: d.Name, Book: &logbook.Book{ID: book, Name: d.Name, Flows: []logbook.FlowDetail{d.Detail(logbook.NewFlowID(), book, d.Store)}}}
}

// idle posts a job of a kind that no conductor runs.
func (s *site) idle(name string) jobs.Job {
	s.t.Helper()
	return s.post(jobs.Posting{Name: name, Kind: "other", Board: "quiet"})
}

func (s *site) post(posting jobs.Posting) jobs.Job {
	s.t.Helper()
	job, err := jobs.PostOne(s.t.Context(), s.cluster.Client, posting)
	if err != nil {
		s.t.Fatal(err)
	}
	return job
}
