package dashboard

import (
	"net"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
)

// tokenCookie is the cookie that holds the token of the user. Scripts cannot read it, and browsers
// send it from this dashboard's own pages only. Over TLS its name starts with hostPrefix: browsers
// then accept the cookie from this host only, and not from another host of the domain.
const (
	tokenCookie = "conductord-token"
	hostPrefix  = "__Host-"
)

// tokenCookie makes the cookie for a token, for the browser of a request.
func (o *Options) tokenCookie(r *http.Request, token string) *http.Cookie {
	cookie := &http.Cookie{Name: tokenCookie, Value: token, Path: o.Path, HttpOnly: true, SameSite: http.SameSiteStrictMode}
	if strings.HasPrefix(o.origin(r), "https:") {
		cookie.Name, cookie.Path, cookie.Secure = hostPrefix+tokenCookie, "/", true // as the prefix requires
	}
	return cookie
}

// maxToken limits a token, in bytes. Browsers store no longer cookies.
const maxToken = 3_500

// TokenOf is the token of a request; empty: none. A reverse proxy that authenticates users can
// send the token in a header. TokenOf needs only Path and Origin.
func (o *Options) TokenOf(r *http.Request) string {
	if token, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); found {
		return token
	}
	cookie, err := r.Cookie(o.tokenCookie(r, "").Name)
	if err != nil {
		return ""
	}
	return cookie.Value
}

// indexAge is the time, in seconds, for which a browser keeps the log index of its last action. Each page that it opens
// in that time has at least this index, even if another node at the same address serves it.
const indexAge = 10

// indexCookie is the name of the cookie with the log index. The name contains the port: browsers send a
// cookie to all ports of a host, and another port may belong to another cluster.
func indexCookie(r *http.Request) string {
	_, port, _ := net.SplitHostPort(r.Host)
	return "conductord-index-" + port
}

// setIndex makes the browser store the log index of an action.
func (d *Dashboard) setIndex(w http.ResponseWriter, r *http.Request, index uint64) {
	http.SetCookie(w, &http.Cookie{Name: indexCookie(r), Value: strconv.FormatUint(index, 10), Path: d.options.Path, MaxAge: indexAge, HttpOnly: true, SameSite: http.SameSiteStrictMode})
}

// setToken makes the browser keep a token until the browser ends; an empty token deletes the
// cookie.
func (d *Dashboard) setToken(w http.ResponseWriter, r *http.Request, token string) {
	cookie := d.options.tokenCookie(r, token)
	if token == "" {
		cookie.MaxAge = -1
	}
	http.SetCookie(w, cookie)
}

// signInPage is the page on which a user enters a token.
var signInPage = page{name: "sign-in"}

func (d *Dashboard) showSignIn(w http.ResponseWriter, r *http.Request) { d.askToken(w, r, nil) }

// askToken shows the form for a token, with the reason for the refusal of the last one.
func (d *Dashboard) askToken(w http.ResponseWriter, r *http.Request, refused error) {
	next, status := r.FormValue("next"), http.StatusOK
	if refused != nil {
		status = statusOf(refused)
	}
	data := struct {
		Next  string
		Error error
	}{next, refused}
	d.show(w, &visit{request: r, dashboard: d}, signInPage, view{Title: "Sign in", Data: data}, status)
}

// signIn stores a token that the API accepts.
func (d *Dashboard) signIn(w http.ResponseWriter, r *http.Request) {
	token := strings.TrimSpace(r.PostFormValue("token"))
	switch {
	case token == "":
		d.askToken(w, r, &statusError{http.StatusBadRequest, "enter a token"})
		return
	case len(token) > maxToken:
		d.askToken(w, r, &statusError{http.StatusBadRequest, "a token has at most 3500 bytes here; use a client certificate"})
		return
	case strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(`",;\`, c) }):
		d.askToken(w, r, &statusError{http.StatusBadRequest, "this is not a token: it contains a character that tokens cannot have"})
		return
	}
	shown := r.Clone(r.Context())
	shown.Header.Del("Cookie")
	shown.Header.Del("Authorization")
	shown.AddCookie(d.options.tokenCookie(r, token))
	if _, err := d.visit(shown); err != nil {
		d.askToken(w, r, err)
		return
	}
	d.setToken(w, r, token)
	http.Redirect(w, r, d.ownAddress(r.PostFormValue("next")), http.StatusSeeOther)
}

func (d *Dashboard) signOut(w http.ResponseWriter, r *http.Request) {
	d.endAll(d.options.TokenOf(r))
	d.setToken(w, r, "")
	http.Redirect(w, r, d.options.Path+"sign-in", http.StatusSeeOther)
}

// ownAddress returns the page to show after signing in. It is always an address of the dashboard, even after
// a browser or a proxy resolves dots in its path, escaped or not.
func (d *Dashboard) ownAddress(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Host != "" || u.Scheme != "" || !strings.HasPrefix(u.Path, d.options.Path) || !strings.HasPrefix(path.Clean(u.Path)+"/", d.options.Path) {
		return d.options.Path
	}
	return u.RequestURI()
}
