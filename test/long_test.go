package test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// promisesPage lists the tests of each promise.
const promisesPage = "docs/guarantee-tests.md"

// longTest matches a test that skips itself in a plain `go test ./...`, and longMark is its mark on
// the page.
var longTest = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\) \{\n\tlongtest\.Skip\(t\)`)

const longMark = " (long)"

// marked marks the long tests in the rows of the page with a claim and its tests. It returns the
// claims without a quick test.
func marked(page string, long map[string]bool) (text string, unheld []string) {
	lines := strings.Split(page, "\n")
	for i, line := range lines {
		cells := strings.Split(line, " | ")
		if !strings.HasPrefix(line, "| ") || len(cells) != 2 {
			continue
		}
		quick, all := 0, namedTest.FindAllStringSubmatch(line, -1)
		lines[i] = namedTest.ReplaceAllStringFunc(strings.ReplaceAll(line, longMark, ""), func(name string) string {
			if match := namedTest.FindStringSubmatch(name); long[match[1]+" "+match[2]] {
				return name + longMark
			}
			quick++
			return name
		})
		if quick == 0 && len(all) > 0 {
			unheld = append(unheld, cells[0])
		}
	}
	return strings.Join(lines, "\n"), unheld
}

// TestPromisesHaveQuickTests checks that a plain `go test ./...` runs a test of each claim, and
// that the page marks the long ones. -rewrite marks them.
func TestPromisesHaveQuickTests(t *testing.T) {
	long := map[string]bool{}
	for _, pattern := range []string{"../*/*_test.go", "../*/*/*_test.go", "../*/*/*/*_test.go", "../*/*/*/*/*_test.go"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			source, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			folder := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), "../")
			for _, match := range longTest.FindAllStringSubmatch(string(source), -1) {
				long[folder+" "+match[1]] = true
			}
		}
	}
	if len(long) == 0 {
		t.Fatal("no long test was found")
	}
	page := documents(t)[promisesPage]
	text, unheld := marked(page, long)
	for _, claim := range unheld {
		t.Errorf("%s: only long tests hold the claim %q: make one of them quick", promisesPage, strings.TrimPrefix(claim, "| "))
	}
	if text == page {
		return
	}
	if !*rewrite {
		t.Fatalf("%s: the marks%s differ from the marks of the tests: run this test with -rewrite", promisesPage, longMark)
	}
	if err := os.WriteFile(filepath.Join("..", promisesPage), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestMarksOfLongTests checks that marks are set and removed, and that a claim with only long tests
// is found.
func TestMarksOfLongTests(t *testing.T) {
	long := map[string]bool{"test TestSlow": true}
	const head = "| Claim | Tests |\n|---|---|\n"
	for _, row := range []struct{ page, want, unheld string }{
		{"| a | `test` `TestQuick`, `test` `TestSlow` |", "| a | `test` `TestQuick`, `test` `TestSlow` (long) |", ""},
		{"| a | `test` `TestQuick` (long), `test` `TestSlow` (long) |", "| a | `test` `TestQuick`, `test` `TestSlow` (long) |", ""},
		{"| a | `test` `TestSlow` (long) |", "| a | `test` `TestSlow` (long) |", "| a"},
		{"| a | b | `test` `TestSlow` |", "| a | b | `test` `TestSlow` |", ""},
	} {
		text, unheld := marked(head+row.page, long)
		if text != head+row.want || strings.Join(unheld, ",") != row.unheld {
			t.Errorf("%s: got %s, and %q is held by no quick test", row.page, strings.TrimPrefix(text, head), unheld)
		}
	}
}
