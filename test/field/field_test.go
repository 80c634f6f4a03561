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
	{
		"a secret that is a JSON document", []string{"actions/runner#2232", "actions/runner#1488"},
		"flow/engine", []string{"TestSecretsInValues", "TestDocumentsInValues"},
	},
	{
		"a secret that is quoted, or in an error message", []string{"microsoft/azure-pipelines-tasks#9633", "actions/runner#2265"},
		"flow/engine", []string{"TestNoPartOfASecret"},
	},
	{
		"the reader of the log ends", []string{"containerd/containerd#580", "influxdata/kapacitor#737", "cybozu-go/well#15", "systemd/systemd#6620"},
		"test", []string{"TestLastingCommands"},
	},
	{
		"the search for the next time does not end", []string{"kelektiv/node-cron#919", "harrisiirak/cron-parser#25", "agronholm/apscheduler#105"},
		"jobs/schedules", []string{"TestSearchesEnd"},
	},
	{
		"a midnight that does not exist", []string{"hashicorp/nomad#7289", "hashicorp/nomad#5410", "jmrozanec/cron-utils#324", "Hexagon/croner#132"},
		"jobs/schedules", []string{"TestRulesThroughClockChanges", "TestAllZones"},
	},
	{
		"a weekday that crontab(5) takes and a scheduler does not", []string{"garethgeorge/backrest#1104", "cronie-crond/cronie#200"},
		"jobs/schedules", []string{"TestRules"},
	},
	{
		"the name of a zone depends on the machine", []string{"argoproj/argo-workflows#15653", "bitnami/charts#11241"},
		"jobs/schedules", []string{"TestZonesAreThoseOfTheDatabase"},
	},
	{
		"a time in the past is taken for none", []string{"camunda/camunda#2108"},
		"cmd/conductord/cli", []string{"TestSpansMeanThePast"},
	},
	{
		"an error of user code is taken for an error of the server", []string{"temporalio/sdk-go#686", "temporalio/sdk-go#1156"},
		"flow/engine", []string{"TestReservedKindsCannotBeSaid", "TestHandlersCannotSayReservedKinds"},
	},
	{
		"a message that cannot be written stops the worker", []string{"celery/celery#92", "celery/celery#3858", "rq/rq#806"},
		"test", []string{"TestHostileValues"},
	},
	{
		"names that a browser changes", []string{"apache/airflow#42679"},
		"cmd/conductord/dashboard", []string{"TestPagesOfOddNames"},
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
