package dashboard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs/access"
)

// pages is the table of pages, in the order of the navigation.
func pages() []page {
	return []page{
		{pattern: "{$}", menu: "Overview", name: "overview", load: loadOverview},
		{pattern: "jobs", menu: "Jobs", name: "jobs", load: loadJobs},
		{pattern: "bulk/{verb}", section: "jobs", name: "bulk", still: true, load: loadBulk},
		{pattern: "jobs/{id}", section: "jobs", name: "job", load: loadJob},
		{pattern: "flows/{id}", section: "jobs", name: "flow", load: loadFlow},
		{pattern: "approvals", menu: "Approvals", name: "approvals", load: loadApprovals},
		{pattern: "approvals/{id}/{step}", section: "approvals", name: "approval", still: true, load: loadApproval},
		{pattern: "trash", menu: "Trash", name: "trash", load: loadTrash},
		{pattern: "parked", section: "trash", name: "trash", load: loadParked},
		{pattern: "schedules", menu: "Schedules", name: "schedules", load: loadSchedules},
		{pattern: "schedules/{board}/{name}", section: "schedules", name: "schedule", load: loadSchedule},
		{pattern: "errors/{code}", name: "code", still: true, load: loadCode},
		{pattern: "boards", menu: "Boards", name: "boards", load: loadBoards},
		{pattern: "boards/{name}", section: "boards", name: "board", load: loadBoard},
		{pattern: "conductors", menu: "Conductors", name: "conductors", load: loadConductors},
		{pattern: "conductors/{name}", section: "conductors", name: "conductor", load: loadConductor},
		{pattern: "workers", section: "conductors", name: "workers", still: true, load: loadWorkers},
		{pattern: "sessions", section: "conductors", name: "sessions", load: loadSessions},
		{pattern: "claims", section: "conductors", name: "claims", still: true, load: loadClaims},
		{pattern: "cluster", menu: "Cluster", name: "cluster", load: loadCluster},
		{pattern: "access", menu: "Access", needs: command.Administer, name: "access", load: loadAccess},
		{pattern: "audit", menu: "Audit", needs: command.Administer, name: "audit", load: loadAudit},
		{pattern: "api", menu: "API", name: "api", still: true, load: loadAPI},
	}
}

func actions() []action {
	return []action{
		{"bulk/{verb}", doBulk},
		{"jobs/{name}/{verb}", operate(jobOperations)},
		{"approvals/{id}/{step}/{verb}", decideApproval},
		{"flows/{id}", changeFlow},
		{"schedules/{board}/{name}/{verb}", operate(scheduleOperations)},
		{"boards/{name}/{verb}", operate(boardOperations)},
		{"conductors/{name}/{verb}", operate(conductorOperations)},
		{"cluster/{verb}", operate(clusterOperations)},
		{"access/{name}/{verb}", operate(principalOperations)},
	}
}

// shown is the input of the layout's template.
type shown struct {
	view
	Node     string
	Who      *v1.WhoAmIResponse // nil: not signed in
	SignOut  bool               // the user has signed in with a token
	ReadOnly bool
	Menu     []link
	Self     string // the page's own address
	Live     bool   // the page has a live stream
}

func (d *Dashboard) shown(v *visit, p page, content view) *shown {
	s := &shown{
		view: content, Node: d.options.Node, Who: v.who, ReadOnly: d.options.ReadOnly, Self: v.request.URL.RequestURI(),
		Live: p.load != nil && !p.still, SignOut: v.who != nil && d.options.TokenOf(v.request) != "",
	}
	if v.who == nil {
		return s
	}
	section := p.section
	if section == "" {
		section = p.pattern
	}
	for _, other := range pages() {
		if other.menu != "" && (other.needs == "" || v.allowed(other.needs, access.AllBoards)) {
			path := other.pattern
			if path == "{$}" {
				path = ""
			}
			s.Menu = append(s.Menu, link{other.menu, d.options.Path + path, section == other.pattern, ""})
		}
	}
	return s
}

// maxCounted limits the count of open approvals in the navigation, because every page reads them.
const maxCounted = 20

// countApprovals adds the number of open approvals that the user can see to the navigation. A page is shown without it
// if this node cannot read them.
func (s *shown) countApprovals(v *visit) {
	i := slices.IndexFunc(s.Menu, func(l link) bool { return l.Path == v.dashboard.options.Path+"approvals" })
	if i < 0 {
		return
	}
	answer, _ := ask(v.request.Context(), v.api.board.ListApprovals, &v1.ListApprovalsRequest{Limit: maxCounted, Stale: true})
	switch n := len(answer.GetApprovals()); {
	case n == 0:
	case answer.GetNext() != "":
		s.Menu[i].Count = fmt.Sprintf("%d+", n)
	default:
		s.Menu[i].Count = fmt.Sprint(n)
	}
}

// maxShrunk limits how often the parts of a page get less room. At the limit, a list has one row
// and a text a few bytes.
const maxShrunk = 3

// fitted loads a page and renders it by a template: "layout", or "main", which is the live part. If the page
// is too large, its parts get less room. err is the loader's error, and becomes the page's message; fault is
// an error of the template.
func (d *Dashboard) fitted(ctx context.Context, v *visit, p page, template string) (text []byte, content view, fault, err error) {
	for {
		if content, err = v.whole(ctx, p); err != nil {
			return nil, content, nil, err
		}
		text, fault = d.render(v, p, content, template)
		if len(text) <= maxPage || v.shrunk == maxShrunk {
			return text, content, fault, nil
		}
		v.shrunk++
	}
}

// render renders a page. If the text is too large, it returns the text with an error.
func (d *Dashboard) render(v *visit, p page, content view, template string) ([]byte, error) {
	var text bytes.Buffer
	input := d.shown(v, p, content)
	if template == "layout" { // the live part has no navigation
		input.countApprovals(v)
	}
	err := d.views.of(p.name).ExecuteTemplate(&text, template, input)
	if err == nil && text.Len() > maxPage {
		err = fmt.Errorf("it has %d bytes; the limit of a page is %d", text.Len(), maxPage)
	}
	return text.Bytes(), err
}

// show writes a page that has no loader.
func (d *Dashboard) show(w http.ResponseWriter, v *visit, p page, content view, status int) {
	text, fault := d.render(v, p, content, "layout")
	d.write(w, p, text, fault, status)
}

// write answers with a page, or with its error.
func (d *Dashboard) write(w http.ResponseWriter, p page, text []byte, fault error, status int) {
	if fault != nil {
		d.options.Logger.Error("cannot show a page", "page", p.name, "error", fault)
		http.Error(w, "This page cannot be shown; the reason is in the log of the node.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

// fail shows the error, or the sign-in form.
func (d *Dashboard) fail(w http.ResponseWriter, r *http.Request, v *visit, err error) {
	if errors.Is(err, errSignIn) || statusOf(err) == http.StatusUnauthorized && d.options.TokenOf(r) != "" {
		next := ""
		if r.Method == http.MethodGet {
			next = "?next=" + url.QueryEscape(r.URL.RequestURI())
		}
		http.Redirect(w, r, d.options.Path+"sign-in"+next, http.StatusSeeOther)
		return
	}
	if v == nil {
		v = &visit{request: r, dashboard: d}
	}
	status := statusOf(err)
	d.show(w, v, page{name: "error"}, view{Title: http.StatusText(status), Data: failureOf(err)}, status)
}
