package cli_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/raftboard/credentials"
)

// unverified is how TLS reports a certificate that it does not accept.
func unverified(err error) error {
	return fmt.Errorf("%w: %w", jobs.ErrUnavailable, &tls.CertificateVerificationError{Err: err})
}

// TestNobodySettles: the message differs if no node answers, or if nodes answer that there is no
// leader.
func TestNobodySettles(t *testing.T) {
	noLeader := raftboard.NodeFailure{Node: "a:1", Reached: true, Err: jobs.ErrUnavailable}
	refused := func(node string) raftboard.NodeFailure {
		return raftboard.NodeFailure{Node: node, Err: syscall.ECONNREFUSED}
	}
	for _, row := range []struct {
		name  string
		nodes []raftboard.NodeFailure
		want  string
	}{
		{"one of three answers", []raftboard.NodeFailure{noLeader, refused("b:2"), refused("c:3")},
			"unavailable: it did not happen: a:1: unavailable; b:2, c:3: connection refused\n" +
				"conductord: a majority of the nodes must run: start b:2, c:3; `conductord cluster status --server a:1,b:2` shows what each node sees\n"},
		{"all answer", []raftboard.NodeFailure{noLeader}, "conductord: `conductord cluster status --server a:1,b:2` shows what each node sees\n"},
		{"none answers", []raftboard.NodeFailure{refused("a:1"), refused("b:2")},
			"unavailable: it did not happen: a:1, b:2: connection refused\nconductord: is a server running, and is --server right? start one with `conductord dev`\n"},
		{"TLS at the node only", []raftboard.NodeFailure{{Node: "a:1", Err: raftboard.ErrNodeSpeaksTLS}},
			"a:1: the node speaks TLS, and this client speaks plain text\nconductord: name the file of the authorities that sign the nodes' certificates: --ca-file (CONDUCTORD_CA_FILE)\n"},
		{"TLS at the client only", []raftboard.NodeFailure{{Node: "a:1", Err: raftboard.ErrNodeSpeaksPlainText}}, "conductord: omit --ca-file"},
		{"unknown authority", []raftboard.NodeFailure{{Node: "a:1", Err: raftboard.ErrUnknownAuthority}}, "conductord: --ca-file (CONDUCTORD_CA_FILE) must name"},
		{"certificate refused", []raftboard.NodeFailure{{Node: "a:1", Err: raftboard.ErrCertificateRefused}}, "conductord: the node's tls.ca must contain the authority that issued --cert-file"},
		{"another host", []raftboard.NodeFailure{{Node: "a:1", Err: unverified(x509.HostnameError{Certificate: &x509.Certificate{}, Host: "a"})}},
			"conductord: --server must name a host of the node's certificate"},
		{"expired", []raftboard.NodeFailure{{Node: "a:1", Err: unverified(x509.CertificateInvalidError{Reason: x509.Expired})}},
			"conductord: a:1 needs another certificate: `conductord cert issue node --help`\n"},
	} {
		got := clitest.RunWith(t, t.Context(), nil, func(p *cli.Program) {
			p.Dial = func(context.Context, raftboard.Options) (cli.Cluster, error) {
				return nil, &raftboard.UnsettledError{Kind: jobs.ErrUnavailable, Why: context.DeadlineExceeded, Nodes: row.nodes}
			}
		}, "job", "list", "--server", "a:1", "--server", "b:2")
		if got.Code != cli.ExitUnavailable || !strings.Contains(got.Err, row.want) {
			t.Errorf("%s: %+v", row.name, got)
		}
	}
}

// TestExpiredClientCertificate: a client reports itself that its certificate has expired.
func TestExpiredClientCertificate(t *testing.T) {
	authority, err := credentials.NewAuthority("authority", 2*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for valid, want := range map[time.Duration]bool{time.Nanosecond: true, time.Hour: false} {
		made, err := credentials.Issue(authority, credentials.Subject{Name: "ann", Valid: valid})
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		args := []string{"job", "list"}
		for flag, data := range map[string][]byte{"ca": authority.Cert, "cert": made.Cert, "key": made.Key} {
			path := filepath.Join(dir, flag)
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			args = append(args, "--"+flag+"-file", path)
		}
		got := clitest.RunWith(t, t.Context(), nil, func(p *cli.Program) {
			p.Dial = func(context.Context, raftboard.Options) (cli.Cluster, error) { return nil, jobs.ErrUnavailable }
		}, args...)
		if said := strings.Contains(got.Err, "of this client expired on"); said != want || got.Code != cli.ExitUnavailable {
			t.Errorf("valid for %s: %+v", valid, got)
		}
	}
}

// TestErrorsAreSaidOnce has errors that formerly repeated a statement, or quoted a library.
func TestErrorsAreSaidOnce(t *testing.T) {
	cluster := clitest.Open(t)
	const absent = "01890000-0000-7000-8000-000000000001"
	job := clitest.Post(t, cluster, "--kind", "k").String()
	done := clitest.Post(t, cluster, "--kind", "k").String()
	clitest.Run(t, cluster, "job", "consume", done)
	held := clitest.Post(t, cluster, "--kind", "k")
	clitest.NewWorker(t, cluster, held)
	claimed := held.String()
	clitest.Post(t, cluster, "--kind", "k", "--board", "other")
	for _, row := range []struct {
		args string
		code int
		want string // all of stderr
	}{
		{"job get --server a:1", cli.ExitUsage, "`conductord job get --help` shows details\n"},
		{"job cancel " + absent, cli.ExitNotFound, "cannot cancel job " + absent + ": not found\n"},
		{"job wait --timeout 500ms " + job, cli.ExitTimeout,
			"job " + job + " is not finished: timed out after 500ms\nconductord: `conductord job explain " + job + "` shows the reason\n"},
		{"job wait --timeout 500ms " + job + " " + done, cli.ExitTimeout,
			"1 jobs are not finished: timed out after 500ms\nconductord: list them with `conductord job list`\n"},
		{"job consume --token 1-1 " + done, cli.ExitConflict, "conductord: `conductord job get " + done + "` shows the job's state, and the token of its claim if there is one\n"},
		{"job retry " + done, cli.ExitConflict, "only a new job can do its work again\nconductord: to do its work again with a new job: `conductord job repost " + done + "`\n"},
		{"job move " + claimed + " other", cli.ExitConflict, "\nconductord: first `conductord job suspend " + claimed + "`, and when its steps have ended `conductord job move " + claimed + " other`; then `conductord job resume " + claimed + "`\n"},
	} {
		got := clitest.Run(t, cluster, strings.Fields(row.args)...)
		if got.Code != row.code || !strings.HasSuffix(got.Err, row.want) || strings.Contains(got.Err, "another token") {
			t.Errorf("conductord %s: %+v", row.args, got)
		}
	}
	for _, verb := range []string{"abandon", "consume", "trash"} {
		got := clitest.Run(t, cluster, "job", verb, absent)
		if want := "conductord: cannot " + verb + " job " + absent + ": not found\n"; got.Code != cli.ExitNotFound || got.Err != want {
			t.Errorf("%s: %+v", verb, got)
		}
	}
	got := clitest.Run(t, cluster, "job", "wait", "-o", "json", "--timeout", "20ms", job)
	if !strings.Contains(got.Err, `timed out after 20ms`) {
		t.Errorf("%+v", got)
	}
}
