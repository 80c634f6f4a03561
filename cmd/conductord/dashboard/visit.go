package dashboard

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
)

// visit is one request of a user: the API with the user's credentials, and the user's permissions.
type visit struct {
	api       *api
	request   *http.Request
	who       *v1.WhoAmIResponse
	dashboard *Dashboard
	plan      *flow.Plan // of the flow that a live page shows; nil: not made yet, or unknown here
	shrunk    int        // see bound
	// same reads the subject of the page again, and reports whether it is unchanged; nil: the page has no
	// subject.
	same func(ctx context.Context) bool
}

// visit reads the caller of a request. Its error is errSignIn if the caller has not signed in.
func (d *Dashboard) visit(r *http.Request) (*visit, error) {
	if d.options.AccessControl && d.options.TokenOf(r) == "" && !local(r) && (r.TLS == nil || len(r.TLS.PeerCertificates) == 0) {
		return nil, errSignIn
	}
	v := &visit{api: newAPI(&d.options, r), request: r, dashboard: d}
	if acted, err := r.Cookie(indexCookie(r)); err == nil {
		v.api.index, _ = strconv.ParseUint(acted.Value, 10, 64)
	}
	var err error
	v.who, err = ask(r.Context(), v.api.access.WhoAmI, &v1.WhoAmIRequest{})
	if errors.Is(err, jobs.ErrNotAllowed) { // the node refuses this only to unauthenticated callers
		err = &statusError{http.StatusUnauthorized, err.Error()}
	}
	return v, err
}

// person names the caller: its principal, or its address if callers are not authenticated.
func (v *visit) person() string {
	if v.who.GetEnforced() && v.who.GetName() != "" {
		return v.who.GetName()
	}
	host, _, _ := net.SplitHostPort(v.request.RemoteAddr)
	return host // with a colon, or without a letter: no principal has such a name
}

// may reports whether to offer an operation that needs a permission on a board, or on
// access.AllBoards. The API checks the permission again when the operation is performed.
func (v *visit) may(needed command.Permission, board string) bool {
	return (needed == command.Read || !v.dashboard.options.ReadOnly) && v.allowed(needed, board)
}

// allowed is may for a dashboard that is not read-only.
func (v *visit) allowed(needed command.Permission, board string) bool {
	if !v.who.GetEnforced() {
		return true
	}
	for _, grant := range command.GrantsFromProto(v.who.GetGrants()) {
		if command.Allows(grant.Role, needed) && (grant.Boards == access.AllBoards || board != access.AllBoards && grant.Covers(board)) {
			return true
		}
	}
	return false
}

// query is a field of the page's address.
func (v *visit) query(name string) string { return strings.TrimSpace(v.request.URL.Query().Get(name)) }

// part is a part of the page's path, before addressBelow escaped it.
func (v *visit) part(name string) string { return strings.TrimPrefix(v.request.PathValue(name), "~") }

// form is a field of the form of an action.
func (v *visit) form(name string) string { return strings.TrimSpace(v.request.PostForm.Get(name)) }

func (v *visit) readForm() error {
	if err := v.request.ParseForm(); err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			return &statusError{http.StatusRequestEntityTooLarge, "the form has more than 65536 bytes; nothing was done"}
		}
		return &statusError{http.StatusBadRequest, "the form cannot be read: " + err.Error()}
	}
	return nil
}

// with is the page's address with some fields changed: name, value, name, value. An empty value
// removes the field. The cursor of a list is removed unless it is one of the changed fields.
func (v *visit) with(pairs ...string) string {
	query := v.request.URL.Query()
	query.Del("after")
	query.Del("done")
	for i := 0; i+1 < len(pairs); i += 2 {
		if query.Del(pairs[i]); pairs[i+1] != "" {
			query.Set(pairs[i], pairs[i+1])
		}
	}
	return (&url.URL{Path: v.request.URL.Path, RawQuery: query.Encode()}).String()
}

// maxLoads limits the loads of a page whose parts do not agree.
const maxLoads = 4

// whole loads a page whose parts agree: between its reads, no entry was applied, or no entry that
// changed the page's subject. Otherwise it loads the page again, with reads that are at least as new.
func (v *visit) whole(ctx context.Context, p page) (content view, err error) {
	for range maxLoads {
		v.api.first, v.same = 0, nil
		if content, err = p.load(ctx, v); err != nil || p.still {
			return content, err
		}
		if v.catchUp(ctx); v.api.index == v.api.first || v.same != nil && v.same(ctx) {
			return content, nil
		}
	}
	return content, nil
}

// bound limits a part of the page, in rows or bytes. While the page is too large, each further try gives the
// parts a quarter of the room, because names can be long.
func (v *visit) bound(most int) int { return max(1, most>>(2*v.shrunk)) }

// pageRows is the maximum number of rows of a list on one page. See bound.
const pageRows = 50

// rows is the maximum number of rows of a list.
func (v *visit) rows() uint32 { return uint32(v.bound(pageRows)) }

// most returns the first items of a list, up to a limit of the page.
func most[T any](v *visit, all []T, bound int) []T { return all[:min(len(all), v.bound(bound))] }

// listedBoard is the board to list. If the request names no board and the user may not list all boards, it is
// the first board that the user may see.
func (v *visit) listedBoard(ctx context.Context, asked string) (string, error) {
	if asked != "" || v.may(command.Read, access.AllBoards) {
		return asked, nil
	}
	names, err := v.boards(ctx)
	for _, grant := range v.who.GetGrants() {
		if board := grant.GetBoards(); !strings.HasSuffix(board, access.AllBoards) {
			names = append(names, board) // perhaps without any job so far
		}
	}
	if err != nil || len(names) == 0 {
		return asked, err
	}
	return names[0], nil
}

// catchUp makes later reads see all earlier answers of the visit, such as the result of its own
// action: a read waits until this node has applied them. It ignores errors.
func (v *visit) catchUp(ctx context.Context) {
	_, _ = ask(ctx, v.api.board.ListBoards, &v1.ListBoardsRequest{Limit: 1, Stale: true})
}

// errSignIn: the request shows neither a token nor a certificate.
var errSignIn = errors.New("sign in first")

// statusError is an error of the dashboard itself.
type statusError struct {
	status int
	text   string
}

// Error implements error.
func (e *statusError) Error() string { return e.text }

// statuses are the HTTP statuses of the API's errors; the first match wins.
var statuses = []struct {
	kind   error
	status int
}{
	{jobs.ErrNotAllowed, http.StatusForbidden},
	{jobs.ErrNotFound, http.StatusNotFound},
	{jobs.ErrInvalid, http.StatusBadRequest},
	{jobs.ErrConflict, http.StatusConflict},
	{jobs.ErrUnclaimable, http.StatusConflict},
	{jobs.ErrLimit, http.StatusTooManyRequests},
	{jobs.ErrUnavailable, http.StatusServiceUnavailable},
}

func statusOf(err error) int {
	var own *statusError
	if errors.As(err, &own) {
		return own.status
	}
	for _, row := range statuses {
		if errors.Is(err, row.kind) {
			return row.status
		}
	}
	return http.StatusInternalServerError
}
