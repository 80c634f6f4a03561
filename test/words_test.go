package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// TestWords checks the end of docs/glossary.md: no file name and no declared name contains a
// retired word.
func TestWords(t *testing.T) {
	t.Parallel()
	retired := retiredWords(t)
	listed, err := exec.Command("git", "-C", "..", "ls-files", "*.go").Output()
	if err != nil {
		t.Skip("needs git, and a clone: ", err)
	}
	for name := range strings.FieldsSeq(string(listed)) {
		if strings.HasPrefix(name, "api/conductord/") {
			continue // generated
		}
		for _, word := range wordsOf(strings.TrimSuffix(filepath.Base(name), ".go")) {
			if instead, found := retired[word]; found {
				t.Errorf("%s: a file is named %q; say %s", name, word, instead)
			}
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, filepath.Join("..", name), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for identifier := range declaredNames(file) {
			for _, word := range wordsOf(identifier.Name) {
				if instead, found := retired[word]; found {
					t.Errorf("%s: %s says %q; say %s", files.Position(identifier.Pos()), identifier.Name, word, instead)
				}
			}
		}
	}
}

// TestWordsCanBeWrong shows that TestWords finds a word inside a name.
func TestWordsCanBeWrong(t *testing.T) {
	retired := retiredWords(t)
	for _, name := range []string{"riderOf", "newRider", "rider_test", "HTTPRider", "Rider"} {
		found := false
		for _, word := range wordsOf(name) {
			found = found || retired[word] != ""
		}
		if !found {
			t.Errorf("no retired word was found in %q", name)
		}
	}
}

// retiredWords reads the table at the end of the glossary: a word, and its replacement.
func retiredWords(t *testing.T) map[string]string {
	t.Helper()
	_, table, found := strings.Cut(documents(t)["docs/glossary.md"], "## Words that are not used")
	retired := map[string]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| (.+) \| .+ \| (.+) \|$`).FindAllStringSubmatch(table, -1) {
		for word := range strings.SplitSeq(row[2], ", ") {
			if row[1] != "say" {
				retired[word] = row[1]
			}
		}
	}
	if !found || len(retired) < 10 {
		t.Fatalf("docs/glossary.md retires %d words", len(retired))
	}
	return retired
}

// declaredNames are the names that a file declares: of functions, types, fields, constants and
// variables, including parameters and labels.
func declaredNames(file *ast.File) map[*ast.Ident]bool {
	names := map[*ast.Ident]bool{}
	add := func(identifiers ...*ast.Ident) {
		for _, identifier := range identifiers {
			names[identifier] = true
		}
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.FuncDecl:
			add(node.Name)
		case *ast.TypeSpec:
			add(node.Name)
		case *ast.ValueSpec:
			add(node.Names...)
		case *ast.Field:
			add(node.Names...)
		case *ast.AssignStmt:
			for _, left := range node.Lhs {
				if identifier, ok := left.(*ast.Ident); ok && node.Tok == token.DEFINE {
					add(identifier)
				}
			}
		}
		return true
	})
	return names
}

// wordsOf splits a name at capitals, digits and underscores, in lower case. A plural word is
// listed with and without its s.
func wordsOf(name string) []string {
	var words []string
	begin := 0
	letters := []rune(name)
	cut := func(end int) {
		if word := strings.ToLower(string(letters[begin:end])); word != "" {
			words = append(words, word)
			if singular := strings.TrimSuffix(word, "s"); singular != word {
				words = append(words, singular)
			}
		}
		begin = end
	}
	for i, letter := range letters {
		switch {
		case !unicode.IsLetter(letter):
			cut(i)
			begin = i + 1
		case unicode.IsUpper(letter) && i > 0 && (unicode.IsLower(letters[i-1]) || i+1 < len(letters) && unicode.IsLower(letters[i+1])):
			cut(i)
		}
	}
	cut(len(letters))
	return words
}
