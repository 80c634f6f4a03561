// Package dashboard serves the web pages of a node: what runs, what waits and why, what has
// failed, and buttons for the next actions.
//
// The dashboard is a client of the node's own API, in the same process, with the credentials of the user at
// the browser. The API therefore applies permissions, hidden values, quotas, audit and forwarding as for
// every client, and the dashboard decides nothing. It only leaves out buttons that the user has no permission
// for; see visit.may. Reads are stale reads of this node, so most open pages cost the leader nothing; the
// overview and the page of the cluster ask every member.
//
// # To add a page
//
//  1. Write a loader: func(ctx, *visit) (view, error). It calls the API through v.api with
//     Stale: true where the request has that field, and returns the data of the template. One
//     list is one call for v.rows() rows, with its cursor in the query "after". Other lists are
//     bounded by most, and texts by v.bound: a page that is too large is loaded again with
//     lower bounds. An error of a call is returned as it is: it becomes the page's message.
//  2. Write templates/NAME.html, which defines "main". Use the parts of templates/parts.html and the
//     functions of funcs.go: they escape, format times and show states in the same way.
//     {{template "name" .Name}} folds a long name.
//     Elements of lists have an id, which keeps focus and open details over a live update.
//  3. Add a row to pages (pages.go). With a menu text it appears in the navigation. Its address is
//     below Options.Path; links are written with {{path "jobs" .Id}}.
//
// A change is a row of actions: func(ctx, *visit) (next string, err error), which reads the form
// (v.form), calls the API, and returns the page to show afterwards. Forms use {{template "button"}} or
// method="post" with an address from path. Cross-origin posts, and all posts to a read-only dashboard,
// are refused before an action runs. The API checks the caller's permissions.
//
// Every page is live without further code. The script opens the page's address again as a stream of events. After an
// event, the loader runs again, and the stream sends the new <main> if its bytes differ. So a template must not show
// texts that change by themselves, such as an age: it writes the time, and the script shows the age. view.Watch names
// the events that wake the stream.
//
// # Rules
//
// There is no inline script or style (the Content-Security-Policy refuses both), no request to
// another host, and no page over 300 KB. Every page works without script.
package dashboard

import (
	"embed"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/go-hclog"
)

//go:embed templates static
var files embed.FS

// Options are the properties of the node that a dashboard needs.
type Options struct {
	API      http.Handler // of the node, which authenticates and authorizes each call
	Path     string       // of the pages, such as "/dashboard/"
	ReadOnly bool         // the pages change nothing
	// AccessControl: callers must authenticate, so a user without a certificate signs in.
	AccessControl bool
	// Hosts are the names by which browsers reach the node in plain text. Addresses and localhost need not be named.
	// Requests to other names are refused: an attacker's name can resolve to this node (DNS rebinding).
	Hosts []string
	// Origin is the address of a reverse proxy under which browsers reach the node, such as
	// "https://conductord.example.org"; empty: there is none. Requests to this host come from the
	// proxy.
	Origin string
	Node   string // name of the node, for users
	Logger hclog.Logger
}

// Limits of requests, in bytes: the body of a form, and the path with the query.
const (
	maxForm    = 64 << 10
	maxAddress = 8 << 10
)

// Dashboard serves the pages. It has no background goroutines; each request has one.
type Dashboard struct {
	options Options
	views   *templates
	handler http.Handler

	mu      sync.Mutex
	streams map[*stream]struct{} // the live pages; guarded by mu
}

// New makes a dashboard.
func New(options Options) *Dashboard {
	d := &Dashboard{options: options, streams: make(map[*stream]struct{})}
	d.views = parseTemplates(d)
	mux := http.NewServeMux()
	mux.Handle("GET "+options.Path+"static/", d.static())
	for _, p := range pages() {
		mux.Handle("GET "+options.Path+p.pattern, d.page(p))
	}
	for _, a := range actions() {
		mux.Handle("POST "+options.Path+a.pattern, d.action(a))
	}
	mux.HandleFunc("GET "+options.Path+"sign-in", d.showSignIn)
	mux.HandleFunc("POST "+options.Path+"sign-in", d.signIn)
	mux.HandleFunc("POST "+options.Path+"sign-out", d.signOut)
	mux.HandleFunc(options.Path, func(w http.ResponseWriter, r *http.Request) {
		d.fail(w, r, nil, &statusError{http.StatusNotFound, "there is no page at " + r.URL.Path})
	})
	origins := http.NewCrossOriginProtection()
	if options.Origin != "" {
		if err := origins.AddTrustedOrigin(options.Origin); err != nil {
			panic("internal error: dashboard.origin was not checked: " + err.Error())
		}
	}
	origins.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.fail(w, r, nil, &statusError{http.StatusForbidden, "this form was sent from another site's page; nothing was done"})
	}))
	d.handler = d.guarded(origins.Handler(mux))
	return d
}

// ServeHTTP implements http.Handler.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.handler.ServeHTTP(w, r) }

// contentPolicy lets a page load only this node's own files.
const contentPolicy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// guarded sets the headers of all answers, and refuses requests to a host that is not this node.
func (d *Dashboard) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", contentPolicy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "same-origin")
		header.Set("Cache-Control", "no-store")
		if r.TLS == nil && !d.ownHost(r.Host) && !local(r) {
			http.Error(w, fmt.Sprintf("This node does not have the name %.128q. Use the address of the node, or its name in the list of members.", r.Host), http.StatusMisdirectedRequest)
			return
		}
		if address := r.URL.RequestURI(); len(address) > maxAddress { // pages repeat it
			http.Error(w, fmt.Sprintf("The address has %d bytes; the limit is %d.", len(address), maxAddress), http.StatusRequestURITooLong)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		next.ServeHTTP(w, r)
	})
}

// ownHost reports whether a host is an IP address, localhost, or a name of this node.
func (d *Dashboard) ownHost(whole string) bool {
	host := whole
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	return d.options.proxied(whole) || host == "localhost" || net.ParseIP(host) != nil || slices.Contains(d.options.Hosts, host)
}

// proxied reports whether a host is the host of Options.Origin.
func (o *Options) proxied(host string) bool {
	_, of, _ := strings.Cut(o.Origin, "://")
	return of != "" && strings.EqualFold(host, of)
}

// origin is the address at which the browser reached the node.
func (o *Options) origin(r *http.Request) string {
	switch {
	case o.proxied(r.Host):
		return o.Origin
	case r.TLS != nil:
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// local reports whether a request has come by the socket of the machine's operators.
func local(r *http.Request) bool {
	_, unix := r.Context().Value(http.LocalAddrContextKey).(*net.UnixAddr)
	return unix
}

// static serves the files of all pages. Their addresses contain a hash of the files, so browsers
// can cache them permanently.
func (d *Dashboard) static() http.Handler {
	folder, err := fs.Sub(files, "static")
	if err != nil {
		panic("internal error: no static files: " + err.Error())
	}
	serve := http.StripPrefix(d.options.Path+"static/", http.FileServerFS(folder))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/") {
			d.fail(w, r, nil, &statusError{http.StatusNotFound, "there is no page at " + r.URL.Path})
			return
		}
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
		serve.ServeHTTP(w, r)
	})
}

// page serves a page, or its live stream.
func (d *Dashboard) page(p page) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		streams := r.Header.Get("Accept") == "text/event-stream"
		v, err := d.visit(r)
		if err == nil && streams && !p.still {
			d.stream(w, r, v, p)
			return
		}
		var text []byte
		var fault error
		if err == nil {
			text, _, fault, err = d.fitted(r.Context(), v, p, "layout")
		}
		if err != nil {
			d.fail(w, r, v, err)
			return
		}
		d.write(w, p, text, fault, http.StatusOK)
	})
}

var errReadOnly = &statusError{http.StatusForbidden, "this dashboard is read-only (dashboard.read_only): use the command line"}

// action performs a change and redirects the browser to the page that shows it.
func (d *Dashboard) action(a action) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, err := d.visit(r)
		if err == nil && d.options.ReadOnly {
			err = errReadOnly
		}
		if err == nil {
			err = v.readForm()
		}
		var next string
		if err == nil {
			next, err = a.do(r.Context(), v)
		}
		if err != nil {
			d.fail(w, r, v, err)
			return
		}
		v.catchUp(r.Context())
		d.setIndex(w, r, v.api.index)
		http.Redirect(w, r, d.options.Path+next, http.StatusSeeOther)
	})
}
