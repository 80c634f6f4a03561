package node

import (
	"net/http"
	"strings"

	"github.com/conductord/conductord/raftboard/node/admission"
	"github.com/conductord/conductord/raftboard/node/guard"
)

// withPages has what is below a path answered by the handler of pages, and a browser that asks
// for the root sent there. Everything else goes to the API.
func withPages(server *admission.Server, api http.Handler, g *guard.Guard, o Options) http.Handler {
	if o.Pages == nil {
		return api
	}
	path, shown := o.PagesPath, g.Recognized(o.PageToken, server.Bound(o.Pages(api)))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, path):
			shown.ServeHTTP(w, r)
		case r.Method == http.MethodGet && (r.URL.Path == "/" || r.URL.Path+"/" == path) && strings.Contains(r.Header.Get("Accept"), "text/html"):
			http.Redirect(w, r, path, http.StatusFound)
		default:
			api.ServeHTTP(w, r)
		}
	})
}
