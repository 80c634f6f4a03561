package node_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/raftboard/node"
)

// issuer makes JSON web tokens, and keeps its public keys in a file.
type issuer struct {
	t    *testing.T
	path string
	keys map[string]*ecdsa.PrivateKey // by id
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{t: t, path: filepath.Join(t.TempDir(), "keys.json"), keys: map[string]*ecdsa.PrivateKey{}}
	i.add("first")
	return i
}

// add makes another key.
func (i *issuer) add(id string) {
	i.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		i.t.Fatal(err)
	}
	i.keys[id] = key
	var set jose.JSONWebKeySet
	for id, key := range i.keys {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: key.Public(), KeyID: id, Algorithm: string(jose.ES256), Use: "sig"})
	}
	text, err := json.Marshal(set)
	if err != nil {
		i.t.Fatal(err)
	}
	if err := os.WriteFile(i.path, text, 0o600); err != nil {
		i.t.Fatal(err)
	}
}

// token signs claims with a key.
func (i *issuer) token(algorithm jose.SignatureAlgorithm, key any, id string, claims map[string]any) string {
	i.t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, (&jose.SignerOptions{}).WithHeader("kid", id))
	if err != nil {
		i.t.Fatal(err)
	}
	text, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		i.t.Fatal(err)
	}
	return text
}

// Only tokens of the issuer authenticate the principal that they name. Its keys can be replaced
// while the node runs.
func TestJSONWebTokens(t *testing.T) {
	t.Parallel()
	made := newIssuer(t)
	const name, audience = "https://issuer.example", "conductord"
	c := newTenants(t, 1, func(o *node.Options) { o.Issuer = node.Issuer{Name: name, Audience: audience, Keys: made.path} })
	viewer := access.Principal{Name: "ann", Grants: []access.Grant{{Role: access.Viewer, Boards: "*"}}}
	if err := c.operator.SavePrincipal(t.Context(), viewer); err != nil {
		t.Fatal(err)
	}
	claims := func(change map[string]any) map[string]any {
		all := map[string]any{"iss": name, "aud": audience, "sub": "ann", "exp": time.Now().Add(time.Minute).Unix()}
		for key, value := range change {
			if all[key] = value; value == nil {
				delete(all, key)
			}
		}
		return all
	}
	first := made.keys["first"]
	signed := func(change map[string]any) string { return made.token(jose.ES256, first, "first", claims(change)) }
	stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(first.Public())
	if err != nil {
		t.Fatal(err)
	}
	none := "eyJhbGciOiJub25lIn0.eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlIiwic3ViIjoiYW5uIn0."
	for _, row := range []struct {
		name, token string
		want        int
	}{
		{"good", signed(nil), http.StatusOK},
		{"expired", signed(map[string]any{"exp": time.Now().Add(-time.Second).Unix()}), http.StatusUnauthorized},
		{"without an end", signed(map[string]any{"exp": nil}), http.StatusUnauthorized},
		{"of later", signed(map[string]any{"nbf": time.Now().Add(time.Hour).Unix()}), http.StatusUnauthorized},
		{"of another issuer", signed(map[string]any{"iss": "https://other.example"}), http.StatusUnauthorized},
		{"for another system", signed(map[string]any{"aud": "payroll"}), http.StatusUnauthorized},
		{"of no principal here", signed(map[string]any{"sub": "bob"}), http.StatusUnauthorized},
		{"of nobody", signed(map[string]any{"sub": nil}), http.StatusUnauthorized},
		{"of a node", signed(map[string]any{"sub": "node/n1"}), http.StatusUnauthorized},
		{"of an operator on the machine", signed(map[string]any{"sub": "local/0"}), http.StatusUnauthorized},
		{"not signed", none, http.StatusUnauthorized},
		{"signed with the public key as a secret", made.token(jose.HS256, public, "first", claims(nil)), http.StatusUnauthorized},
		{"signed by a stranger", made.token(jose.ES256, stranger, "first", claims(nil)), http.StatusUnauthorized},
		{"signed with a key that is not known", made.token(jose.ES256, stranger, "second", claims(nil)), http.StatusUnauthorized},
		{"no token at all", "x.y.z", http.StatusUnauthorized},
	} {
		if status, answer := c.call(0, row.token, "BoardService/ListBoards", `{}`); status != row.want {
			t.Errorf("%s: %d %s", row.name, status, answer)
		}
	}
	made.add("second")
	exchanged := made.token(jose.ES256, made.keys["second"], "second", claims(nil))
	eventually(t, "the new key counts", func() bool {
		status, _ := c.call(0, exchanged, "BoardService/ListBoards", `{}`)
		return status == http.StatusOK
	})
	short := c.as(signed(map[string]any{"exp": time.Now().Add(2 * time.Second).Unix()})) // its stream stays open
	eventually(t, "the token ends while its connection is open", func() bool {
		_, err := short.Job(t.Context(), jobs.NewJobID())
		if !errors.Is(err, jobs.ErrNotFound) && !errors.Is(err, jobs.ErrNotAllowed) {
			t.Error(err)
		}
		return errors.Is(err, jobs.ErrNotAllowed)
	})
}
