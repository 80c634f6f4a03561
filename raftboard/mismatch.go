package raftboard

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/conductord/conductord/jobs"
)

// Reasons why Open cannot communicate with a node that it reaches, in NodeFailure.Err. The client
// or the node must be configured differently.
var (
	ErrNodeSpeaksTLS       = errors.New("the node speaks TLS, and this client speaks plain text")
	ErrNodeSpeaksPlainText = errors.New("the node speaks plain text, and this client speaks TLS")
	ErrUnknownAuthority    = errors.New("the node's certificate is signed by an authority that this client does not know")
	ErrCertificateRefused  = errors.New("the node does not know the authority that issued this client's certificate, or the certificate has expired or is missing")
)

var mismatches = []error{ErrNodeSpeaksTLS, ErrNodeSpeaksPlainText, ErrUnknownAuthority, ErrCertificateRefused}

// noteMismatch replaces the error of an attempt by the mismatch that caused it, if the cause is
// certain.
func (c *core) noteMismatch(ctx context.Context, p *peer, failed *tryError) {
	var header tls.RecordHeaderError
	var authority x509.UnknownAuthorityError
	var alert *net.OpError // a node's alert has an unexported type, and only reports that the certificate is bad
	switch {
	case errors.As(failed.err, &header), errors.Is(failed.err, http.ErrSchemeMismatch):
		failed.err = ErrNodeSpeaksPlainText
	case errors.As(failed.err, &authority):
		failed.err = ErrUnknownAuthority
	case errors.As(failed.err, &alert) && alert.Op == "remote error" && strings.Contains(alert.Err.Error(), "certificate"):
		failed.err = ErrCertificateRefused
	case errors.Is(failed.err, jobs.ErrUncertain) && c.options.HTTPClient == nil && speaksTLS(ctx, p):
		failed.err = ErrNodeSpeaksTLS
	}
}

// speaksTLS starts a TLS handshake with a node that has ended a plain text connection. A node
// without TLS cannot show any certificate, verifiable or not.
func speaksTLS(ctx context.Context, p *peer) bool {
	address, plain := strings.CutPrefix(p.url, "http://")
	if !plain || socketOf(p.url) != "" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := (&tls.Dialer{NetDialer: new(net.Dialer)}).DialContext(ctx, "tcp", address)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil || errors.As(err, new(*tls.CertificateVerificationError))
}

// mismatched reports that no known node can communicate with this client, so another attempt is
// useless.
func (r *retry) mismatched() bool {
	return len(r.failures) == len(r.core.peers.known()) && !slices.ContainsFunc(r.failures, func(f NodeFailure) bool {
		return !slices.Contains(mismatches, f.Err)
	})
}
