package flow_test

import (
	"os"
	"reflect"
	"regexp"
	"testing"

	"github.com/conductord/conductord/flow"
)

// TestBackoffIsDocumented checks that the comment of the alias lists the fields, which go doc does not
// show.
func TestBackoffIsDocumented(t *testing.T) {
	source, err := os.ReadFile("task.go")
	if err != nil {
		t.Fatal(err)
	}
	for field := range reflect.TypeFor[flow.Backoff]().Fields() {
		if line := `(?m)^//\t` + field.Name + ` +` + regexp.QuoteMeta(field.Type.String()) + ` +// `; !regexp.MustCompile(line).Match(source) {
			t.Errorf("no line for %s %s", field.Name, field.Type)
		}
	}
}
