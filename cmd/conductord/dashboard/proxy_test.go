package dashboard_test

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/dashboard"
)

// Behind a reverse proxy that ends TLS, a user signs in, acts and copies commands at the proxy's
// address.
func TestReverseProxy(t *testing.T) {
	t.Parallel()
	const host, origin = "conductord.example", "https://conductord.example"
	s := open(t, func(o *dashboard.Options) { o.Origin = origin })
	id := s.post("one", "mine")
	to, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewTLSServer(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to); r.Out.Host = r.In.Host },
		Transport: s.browser.Transport, // without a client certificate
	})
	t.Cleanup(server.Close)
	through := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	t.Cleanup(through.CloseIdleConnections)
	p := *s
	p.url, p.browser = server.URL, &http.Client{Transport: through, CheckRedirect: s.browser.CheckRedirect}
	for _, row := range []struct {
		path, host, origin string
		form               url.Values // not nil: the form is sent
		status             int
		has, cookie        string
	}{
		{path: "sign-in", host: host, status: 200, has: "Sign in"},
		{path: "sign-in", host: host, origin: origin, form: url.Values{"token": {s.tokens["operator"]}}, status: 303, cookie: "Secure"},
		{path: "api", host: host, status: 200, has: origin + "/conductord.v1."},
		{path: "jobs/" + id.String() + "/suspend", host: host, origin: "https://evil.example", form: url.Values{}, status: 403, has: "another site"},
		{path: "jobs/" + id.String() + "/suspend", host: host, origin: origin, form: url.Values{}, status: 303},
		{path: "jobs/" + id.String() + "/resume", host: to.Host, origin: origin, form: url.Values{}, status: 303}, // the proxy did not pass the host on
	} {
		method := http.MethodGet
		if row.form != nil {
			method = http.MethodPost
		}
		response, text := p.from(row.host, method, "operator", "/dashboard/"+row.path, row.form, "Origin", row.origin, "Sec-Fetch-Site", "")
		if response.StatusCode != row.status || !strings.Contains(text, row.has) || strings.Contains(text, "--cacert") || !strings.Contains(response.Header.Get("Set-Cookie"), row.cookie) {
			t.Errorf("%s %s from %q: status %d, cookie %q, want %d, %q:\n%.3000s", method, row.path, row.origin, response.StatusCode, response.Header.Get("Set-Cookie"), row.status, row.has, text)
		}
	}
}
