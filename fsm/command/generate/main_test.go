package main

import (
	"os"
	"reflect"
	"strings"
	"testing"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
)

// The conversions in the repository match the table and the types.
func TestConversionsAreGenerated(t *testing.T) {
	t.Parallel()
	want, err := generate(pairs)
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile("../conversions.go")
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != string(want) {
		t.Error("conversions.go is old: go run ./fsm/command/generate > fsm/command/conversions.go")
	}
}

// A field that exists on only one side is refused by name.
func TestFieldsWithoutPartnerAreRefused(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		domain, message reflect.Type
		skip            []string
		want            string
	}{
		{of[jobs.Opening](), of[v1.Opening](), nil, ""},
		{of[jobs.Session](), of[v1.Opening](), nil, "x: field OpenedAt has no partner in the message"},
		{of[jobs.Opening](), of[v1.Session](), nil, "x: field OpenedAt of the message has no partner"},
		{of[jobs.Opening](), of[v1.Opening](), []string{"TTL"}, "x: field Ttl of the message has no partner"},
		{of[jobs.Opening](), of[v1.Opening](), []string{"TTL", ".Ttl"}, ""},
	} {
		_, err := generate([]pair{{name: "x", domain: row.domain, message: row.message, noun: "x", skip: row.skip}})
		if row.want == "" && err == nil {
			continue
		}
		if err == nil || row.want == "" || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s and %s without %q: %v, not %q", row.domain, row.message, row.skip, err, row.want)
		}
	}
}
