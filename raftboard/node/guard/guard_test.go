package guard_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/raftboard/node/guard"
	"github.com/conductord/conductord/raftboard/wire"
)

// FuzzCallerHeaders: headers authenticate only a caller with a token, and only as the token's
// principal. Promise: headers of unknown callers crash no node.
func FuzzCallerHeaders(f *testing.F) {
	text, token := access.Draw(time.Time{})
	identify := guard.GuardWith(f, access.Principal{Name: "ann", Tokens: []access.Token{token}})
	f.Add("Bearer "+text, "", "")
	f.Add("bearer "+text, "local/0", "1")
	f.Add("Bearer  "+text+" ", "node/n1", "0")
	f.Add("Basic YTpi", "ann", "")
	f.Fuzz(func(t *testing.T, authorization, principal, hops string) {
		name, err := identify(http.Header{"Authorization": {authorization}, wire.HeaderPrincipal: {principal}, wire.HeaderHops: {hops}})
		switch {
		case authorization == "Bearer "+text && (err != nil || name != "ann"):
			t.Errorf("the token is answered with %q, %v", name, err)
		case authorization != "Bearer "+text && !errors.Is(err, access.ErrUnknown):
			t.Errorf("%q gets in as %q, %v", authorization, name, err)
		}
	})
}
