// Package field lists the kinds of faults that users of other systems have reported in public,
// and the test that holds each kind here.
//
// To add a report: find the kind of fault in it, and try the whole kind. If it fails here, write
// the test first. Then add a row: the kind in a few words, the project and number of the report,
// and the test. A report of a known kind is one more reference in its row. No text is copied.
package field

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// report is a kind of fault.
type report struct {
	kind  string
	at    []string // where it was reported: project and number
	pkg   string   // of the test, from the top of the module
	tests []string
}

var reports = []report{
	{
		"a job that is retried while another one has its unique key", []string{"oban-bg/oban#1259", "oban-bg/oban-py#19", "sidekiq/sidekiq#6448"},
		"fsm", []string{"TestNoJobComesBackToATakenKey"},
	},
}

// reference is a project and the number of an issue, a pull request or a discussion.
var reference = regexp.MustCompile(`^[a-zA-Z0-9][\w.-]*/[\w.-]+#[1-9][0-9]*$`)

// TestReportsAreHeld: each kind of fault has references and a test that exists.
func TestReportsAreHeld(t *testing.T) {
	known := map[string]bool{}
	for _, r := range reports {
		if r.kind == "" || len(r.at) == 0 || len(r.tests) == 0 {
			t.Errorf("%q needs a kind, a reference and a test", r.kind)
		}
		for _, at := range r.at {
			if !reference.MatchString(at) {
				t.Errorf("%s: %q is not of the form owner/project#number", r.kind, at)
			}
			if known[at] {
				t.Errorf("%s: %s is in another row", r.kind, at)
			}
			known[at] = true
		}
		found := testsOf(t, r.pkg)
		for _, test := range r.tests {
			if !slices.Contains(found, test) {
				t.Errorf("%s: package %s has no %s", r.kind, r.pkg, test)
			}
		}
	}
}

// testsOf are the names of the functions in the test files of a package.
func testsOf(t *testing.T, pkg string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(pkg), "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range parsed.Decls {
			if function, is := declaration.(*ast.FuncDecl); is && function.Recv == nil {
				names = append(names, function.Name.Name)
			}
		}
	}
	return names
}
