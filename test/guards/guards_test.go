package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestGuardsAreFound checks that every guard is at its listed place, that its test exists, and
// that docs/guarantee-tests.md has its row. Run the command to check that the test fails
// without the guard.
func TestGuardsAreFound(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	documented, err := os.ReadFile("docs/guarantee-tests.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range guards {
		if _, err := g.without(); err != nil {
			t.Errorf("guard %q: %v", g.name, err)
		}
		if !hasTest(t, g.pkg, g.test) {
			t.Errorf("guard %q: package %s has no %s", g.name, g.pkg, g.test)
		}
		if row := fmt.Sprintf("| %s | %s | `%s` | `%s` `%s` |", g.name, g.holds, g.file, g.pkg, g.test); !strings.Contains(string(documented), row) {
			t.Errorf("docs/guarantee-tests.md lacks the row\n%s", row)
		}
	}
}

func hasTest(t *testing.T, pkg, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	declaration := regexp.MustCompile(`(?m)^func ` + name + `\(`)
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if declaration.Match(source) {
			return true
		}
	}
	return false
}
