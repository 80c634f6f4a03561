package raftboard_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard"
)

// TestTLSMismatch: a client that cannot communicate with its only node reports it at once, with the
// reason.
func TestTLSMismatch(t *testing.T) {
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.EnableHTTP2 = true
	secure.StartTLS()
	defer secure.Close()
	verifying := httptest.NewUnstartedServer(http.NotFoundHandler())
	verifying.Config.ErrorLog = log.New(io.Discard, "", 0)
	verifying.EnableHTTP2 = true
	verifying.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, VerifyConnection: func(tls.ConnectionState) error { return errors.New("no") }}
	verifying.StartTLS()
	defer verifying.Close()
	trusting := x509.NewCertPool()
	trusting.AddCert(verifying.Certificate())
	plain := startHere(t, &script{}, "a")[0]
	for _, row := range []struct {
		name    string
		address string
		tls     *tls.Config
		want    error
	}{
		{"plain text to a node that speaks TLS", secure.Listener.Addr().String(), nil, raftboard.ErrNodeSpeaksTLS},
		{"TLS to a node that speaks plain text", plain, new(tls.Config), raftboard.ErrNodeSpeaksPlainText},
		{"unknown authority", secure.Listener.Addr().String(), &tls.Config{RootCAs: x509.NewCertPool()}, raftboard.ErrUnknownAuthority},
		{"refused certificate", verifying.Listener.Addr().String(), &tls.Config{RootCAs: trusting}, raftboard.ErrCertificateRefused},
	} {
		began := time.Now()
		_, err := raftboard.Open(t.Context(), raftboard.Options{Endpoints: []string{row.address}, TLS: row.tls, Patience: time.Minute})
		checkKinds(t, err, []error{jobs.ErrUnavailable})
		if !strings.HasSuffix(err.Error(), row.address+": "+row.want.Error()) || time.Since(began) > 20*time.Second {
			t.Errorf("%s: after %v: %v", row.name, time.Since(began), err)
		}
	}
}
