package dashboard

import (
	"context"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
)

// maxPage limits a page, in bytes.
const maxPage = 300 << 10

// page is a row of the table of pages.
type page struct {
	pattern string             // of http.ServeMux, below Options.Path
	menu    string             // its text in the navigation; empty: not in the navigation
	section string             // pattern of the current entry in the navigation; empty: its own
	name    string             // of templates/NAME.html, which defines "main"
	still   bool               // no live stream: its calls need the leader, or the user fills in its form
	needs   command.Permission // permission for all boards that the navigation requires for its entry; empty: none
	load    loader
}

// loader loads the data of a page. Its error is the page's message.
type loader func(ctx context.Context, v *visit) (view, error)

// view is the content of a page.
type view struct {
	Title   string
	Command string // command line with the same content; empty: none
	Data    any    // of the template
	// Watch selects the events that may change the page. nil: no events; the stream only checks the page at intervals.
	Watch *v1.WatchRequest
}

// action is a row of the table of changes. next is the address, below Options.Path, of the page to
// show then.
type action struct {
	pattern string
	do      func(ctx context.Context, v *visit) (next string, err error)
}

// link is an entry of the navigation.
type link struct {
	Text, Path string
	Current    bool
	Count      string // open objects of the page; empty: none
}
