// Package longtest keeps long tests out of a plain `go test ./...`, which a newcomer runs.
//
// A long test repeats, measures, kills processes for a while, or covers a rarer case of a
// quick test. Each promise has at least one quick test. CONDUCTORD_TEST=all adds the long
// tests, as in CI. -run adds them too, because it names the tests to run.
package longtest

import (
	"flag"
	"os"
	"strconv"
	"testing"
)

// Variable is the environment variable that chooses the tests: "all" adds the long ones.
const Variable = "CONDUCTORD_TEST"

// All reports whether long tests run too.
func All() bool {
	run := flag.Lookup("test.run")
	return os.Getenv(Variable) == "all" || (run != nil && run.Value.String() != "")
}

// Skip skips a long test, or a long row of a test, unless all tests run.
func Skip(t testing.TB) {
	t.Helper()
	if !All() {
		t.Skip("long test: set " + Variable + "=all, or name it with -run")
	}
}

// Rounds is the number of repeats of a random walk or an attempt: few by default.
func Rounds(few, all int) int {
	if All() {
		return all
	}
	return few
}

// Checks lowers the number of random cases that each rapid.Check of a test takes, unless all
// tests run. The test must not be parallel: the number is a flag of the process.
func Checks(t testing.TB, few int) {
	t.Helper()
	checks := flag.Lookup("rapid.checks")
	if before := checks.Value.String(); !All() && before == checks.DefValue {
		_ = checks.Value.Set(strconv.Itoa(few))
		t.Cleanup(func() { _ = checks.Value.Set(before) })
	}
}

// AtOnce sets the number of parallel tests in a process, unless -parallel sets it. TestMain calls
// AtOnce in packages whose tests mostly wait.
func AtOnce(tests int) {
	flag.Parse()
	parallel := flag.Lookup("test.parallel")
	if parallel.Value.String() == parallel.DefValue {
		_ = parallel.Value.Set(strconv.Itoa(tests))
	}
}
