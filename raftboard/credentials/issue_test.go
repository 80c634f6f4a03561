package credentials_test

import (
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/raftboard/credentials"
)

// An impossible certificate is refused with the reason, and no file is created.
func TestIssueRefuses(t *testing.T) {
	authority, err := credentials.NewAuthority("a", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	good := credentials.Subject{Name: "n1", Cluster: "shop", Valid: time.Minute}
	change := func(do func(*credentials.Subject)) credentials.Subject {
		subject := good
		do(&subject)
		return subject
	}
	for _, row := range []struct {
		want      string
		authority credentials.Issued
		subject   credentials.Subject
	}{
		{"requires a name", authority, change(func(s *credentials.Subject) { s.Name = "" })},
		{"a validity period", authority, change(func(s *credentials.Subject) { s.Valid = 0 })},
		{"the authority expires", authority, change(func(s *credentials.Subject) { s.Valid = 2 * time.Hour })},
		{"these names are invalid in a certificate", authority, change(func(s *credentials.Subject) { s.Cluster = "shop.." })},
		{"no PEM certificate", credentials.Issued{Cert: []byte("x"), Key: authority.Key}, good},
		{"no PEM key", credentials.Issued{Cert: authority.Cert, Key: []byte("x")}, good},
	} {
		if _, err := credentials.Issue(row.authority, row.subject); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("got %v, want %q", err, row.want)
		}
	}
	if _, err := credentials.Issue(authority, good); err != nil {
		t.Error(err)
	}
}
