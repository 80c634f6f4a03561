package dashboard_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// newServer serves a handler in plain text, and returns its address.
func newServer(t *testing.T, handler http.Handler) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}
