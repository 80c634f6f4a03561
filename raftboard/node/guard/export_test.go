package guard

import (
	"context"
	"crypto/sha256"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/jobs/access"
)

// GuardWith returns the caller that a guard derives from the headers of a call without a
// certificate. The guard knows one principal.
func GuardWith(t testing.TB, known access.Principal) func(http.Header) (name string, err error) {
	t.Helper()
	machine, err := fsm.Open(fsm.Options{Path: filepath.Join(t.TempDir(), "state.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = machine.Close() })
	g := New(Options{Enforced: true, Cluster: "test", Node: "n1", Machine: machine, Now: time.Now, Metrics: prometheus.NewRegistry()})
	list := &principals{byName: map[string]*access.Principal{known.Name: &known}, byToken: map[[sha256.Size]byte]tokenOf{}}
	for _, token := range known.Tokens {
		list.byToken[token.Hash] = tokenOf{known.Name, token}
	}
	g.list.Store(list)
	return func(header http.Header) (string, error) {
		who, err := g.identify((&http.Request{Header: header}).WithContext(context.Background()))
		if err != nil {
			return "", err
		}
		return who.Name, nil
	}
}

// WithoutValues clears all values and texts of programs in a message.
func WithoutValues(message proto.Message) { withoutValues(message.ProtoReflect()) }
