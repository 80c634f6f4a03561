package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/conductord/conductord/jobs/access"
)

// Issuer makes JSON web tokens that authenticate principals. The zero value: no issuer.
type Issuer struct {
	Name     string // value of the claim "iss"
	Audience string // one of the claim "aud"
	Keys     string // its public keys as a JSON web key set: an absolute path, or an https URL
	Claim    string // the claim that names the principal; empty: "sub"
}

// Validate reports a missing field, or keys that are neither at an absolute path nor at an https
// URL.
func (i Issuer) Validate() error {
	if i == (Issuer{}) {
		return nil
	}
	if i.Name == "" || i.Audience == "" || i.Keys == "" {
		return errors.New("an issuer of JSON web tokens requires a name, an audience and keys: without an audience, this cluster would accept tokens for other systems")
	}
	if !filepath.IsAbs(i.Keys) && !strings.HasPrefix(i.Keys, "https://") {
		return fmt.Errorf("the keys of the issuer are at %q, which is neither an absolute path nor an https URL", i.Keys)
	}
	return nil
}

// algorithms are the accepted signatures: only signatures with a public key.
var algorithms = []string{
	oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.EdDSA,
}

// Limits for fetching keys. A token with an unknown key causes a fetch, and strangers can send
// any number of such tokens.
const (
	keysPatience = 5 * time.Second
	keysPause    = 5 * time.Second
	maxKeys      = 1 << 20 // bytes
)

// webTokens verifies JSON web tokens.
type webTokens struct {
	verifier *oidc.IDTokenVerifier
	claim    string
}

// newWebTokens makes the verifier of an issuer; nil without an issuer.
func newWebTokens(i Issuer, now func() time.Time) *webTokens {
	if i == (Issuer{}) {
		return nil
	}
	keys, transport := i.Keys, http.DefaultTransport
	if filepath.IsAbs(keys) {
		keys = (&url.URL{Scheme: "file", Path: "/" + filepath.Base(i.Keys)}).String()
		transport = http.NewFileTransport(http.Dir(filepath.Dir(i.Keys)))
	}
	client := &http.Client{Timeout: keysPatience, Transport: &seldom{next: transport}}
	set := oidc.NewRemoteKeySet(oidc.ClientContext(context.Background(), client), keys)
	return &webTokens{
		verifier: oidc.NewVerifier(i.Name, set, &oidc.Config{ClientID: i.Audience, SupportedSigningAlgs: algorithms, Now: now}), claim: cmp.Or(i.Claim, "sub"),
	}
}

// verify returns the principal that a token authenticates, and the token's expiry.
func (w *webTokens) verify(ctx context.Context, text string) (name string, expires time.Time, err error) {
	token, err := w.verifier.Verify(ctx, text)
	if err != nil {
		return "", expires, fmt.Errorf("%w: %w", access.ErrUnknown, err)
	}
	var claims map[string]any
	if err := token.Claims(&claims); err != nil {
		return "", expires, fmt.Errorf("%w: %w", access.ErrUnknown, err)
	}
	name, _ = claims[w.claim].(string)
	if name == "" || strings.Contains(name, "/") {
		return "", expires, fmt.Errorf("%w: the claim %q of its token is %.64q, which is not the name of a principal", access.ErrUnknown, w.claim, name)
	}
	return name, token.Expiry, nil
}

// seldom fetches keys at most once per keysPause, and at most maxKeys bytes.
type seldom struct {
	next http.RoundTripper

	mu   sync.Mutex
	last time.Time
}

// RoundTrip implements http.RoundTripper.
func (s *seldom) RoundTrip(request *http.Request) (*http.Response, error) {
	s.mu.Lock()
	since := time.Since(s.last)
	if since >= keysPause {
		s.last = time.Now()
	}
	s.mu.Unlock()
	if since < keysPause {
		return nil, fmt.Errorf("the issuer's keys were fetched %s ago, and do not contain the key of this token", since.Round(time.Millisecond))
	}
	answer, err := s.next.RoundTrip(request)
	if err == nil {
		answer.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(answer.Body, maxKeys), answer.Body}
	}
	return answer, err
}
