package test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const (
	longestFunction  = 70
	longestFile      = 700
	longestTestFile  = 1000
	largestInterface = 8  // own methods: larger interfaces are composed
	mostMethods      = 60 // of one type
	mostFields       = 25 // of one struct
	sizesFile        = "testdata/sizes.txt"
)

// A size is a measure of the code that exceeds its limit. Its name has no directory, so
// moved code keeps it.
type size struct {
	of    string // "func x.go:name", "file x.go", "interface x.go:Name", "fields x.go:Name", "methods folder.Name"
	path  string
	is    int
	limit int
}

// sizesOf returns the parts of a Go file that exceed a limit. Generated code has no limits.
func sizesOf(name string, source []byte) ([]size, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil || ast.IsGenerated(file) {
		return nil, err
	}
	var found []size
	check := func(kind, of string, is, limit int) {
		if is > limit {
			found = append(found, size{kind + " " + path.Base(name) + of, name, is, limit})
		}
	}
	limit := longestFile
	if strings.HasSuffix(name, "_test.go") {
		limit = longestTestFile
	}
	check("file", "", strings.Count(string(source), "\n"), limit)
	ast.Inspect(file, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.FuncDecl:
			check("func", ":"+n.Name.Name, lines(files, n)+1-tables(files, n), longestFunction)
		case *ast.TypeSpec:
			switch t := n.Type.(type) {
			case *ast.InterfaceType:
				own := 0
				for _, field := range t.Methods.List {
					own += len(field.Names)
				}
				check("interface", ":"+n.Name.Name, own, largestInterface)
			case *ast.StructType:
				fields := 0
				for _, field := range t.Fields.List {
					fields += max(len(field.Names), 1) // an embedded field has no name
				}
				if limit == longestFile { // no test
					check("fields", ":"+n.Name.Name, fields, mostFields)
				}
			}
		}
		return true
	})
	return found, nil
}

func lines(files *token.FileSet, node ast.Node) int {
	return files.Position(node.End()).Line - files.Position(node.Pos()).Line
}

// tables returns the number of lines of a function that are rows of lists and maps: they are data.
func tables(files *token.FileSet, function ast.Node) int {
	sum := 0
	ast.Inspect(function, func(node ast.Node) bool {
		literal, ok := node.(*ast.CompositeLit)
		if !ok {
			return true
		}
		switch literal.Type.(type) {
		case *ast.ArrayType, *ast.MapType:
			sum += lines(files, literal)
			return false
		}
		return true
	})
	return sum
}

// countMethods adds the methods in a Go file to the counts of their types. Tests, and generated
// code, do not count.
func countMethods(counts map[string]int, name string, source []byte) {
	file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil || ast.IsGenerated(file) || strings.HasSuffix(name, "_test.go") {
		return // sizesOf reports the error
	}
	for _, declared := range file.Decls {
		method, ok := declared.(*ast.FuncDecl)
		if !ok || method.Recv == nil {
			continue
		}
		receiver := method.Recv.List[0].Type
		if pointer, ok := receiver.(*ast.StarExpr); ok {
			receiver = pointer.X
		}
		switch generic := receiver.(type) {
		case *ast.IndexExpr:
			receiver = generic.X
		case *ast.IndexListExpr:
			receiver = generic.X
		}
		if of, ok := receiver.(*ast.Ident); ok {
			counts[path.Dir(name)+"."+of.Name]++
		}
	}
}

// methods returns the types with too many methods. Like other sizes, they are named without the
// folders above their own.
func methods(counts map[string]int) (found []size) {
	for of, is := range counts {
		if is > mostMethods {
			found = append(found, size{"methods " + path.Base(of), strings.TrimSuffix(of, path.Ext(of)), is, mostMethods})
		}
	}
	return found
}

// sizes returns what exceeds a limit in the whole repository.
func sizes(t *testing.T) []size {
	t.Helper()
	var names []string
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if entry != nil && entry.IsDir() && (entry.Name() == "node_modules" || entry.Name() == ".git") {
			return filepath.SkipDir
		}
		if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, ".pb.go") {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var all []size
	counts := map[string]int{}
	var mutex sync.Mutex
	var group sync.WaitGroup
	for part := range slices.Chunk(names, 100) {
		group.Go(func() {
			for _, name := range part {
				source, err := os.ReadFile(name)
				name := filepath.ToSlash(strings.TrimPrefix(name, ".."+string(filepath.Separator)))
				found, fault := sizesOf(name, source)
				mutex.Lock()
				countMethods(counts, name, source)
				if err != nil || fault != nil {
					t.Error(err, fault)
				}
				all = append(all, found...)
				mutex.Unlock()
			}
		})
	}
	group.Wait()
	return append(all, methods(counts)...)
}

// TestSizes enforces the limits of CONTRIBUTING.md: lines of functions and files, methods of
// interfaces and types, fields of structs. testdata/sizes.txt lists the remaining exceptions with their sizes, and may only
// shrink. -rewrite lowers it.
func TestSizes(t *testing.T) {
	t.Parallel()
	allowed := map[string]int{}
	text, err := os.ReadFile(sizesFile)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		cut := strings.LastIndex(line, " ")
		if allowed[line[:max(cut, 0)]], err = strconv.Atoi(strings.TrimSpace(line[cut+1:])); err != nil {
			t.Fatalf("%s: %q: %v", sizesFile, line, err)
		}
	}
	now := map[string]size{}
	for _, s := range sizes(t) {
		if s.is > now[s.of].is { // methods of several types can share a name
			now[s.of] = s
		}
	}
	var kept strings.Builder
	for _, of := range slices.Sorted(maps.Keys(now)) {
		s := now[of]
		if keeps := min(s.is, allowed[of]); keeps > 0 {
			fmt.Fprintf(&kept, "%s %d\n", of, keeps)
		}
		switch {
		case allowed[of] == 0:
			t.Errorf("%s: %s has %d lines, methods or fields, and at most %d are allowed", s.path, of, s.is, s.limit)
		case s.is > allowed[of]:
			t.Errorf("%s: %s has grown from %d to %d; the limit is %d", s.path, of, allowed[of], s.is, s.limit)
		}
	}
	if *rewrite {
		if err := os.WriteFile(sizesFile, []byte(kept.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	} else if kept.String() != string(text) {
		t.Errorf("%s is out of date: run go test ./test -run TestSizes -rewrite", sizesFile)
	}
}

// TestSizesCanBeWrong checks that each limit is found at limit + 1, and not at the limit.
func TestSizesCanBeWrong(t *testing.T) {
	t.Parallel()
	lines := func(n int) string { return strings.Repeat("\n", n) }
	fields := func(n int) string {
		var text strings.Builder
		for i := range n {
			fmt.Fprintf(&text, "f%d, g%d int; ", i, i)
		}
		return "package a; type S struct { " + text.String() + "error }"
	}
	methods := func(n int) string {
		var text strings.Builder
		for i := range n {
			fmt.Fprintf(&text, "M%d(); ", i)
		}
		return "package a; type I interface { " + text.String() + "error }"
	}
	for _, row := range []struct{ name, source, want string }{
		{"a.go", "package a" + lines(longestFile), ""},
		{"a.go", "package a" + lines(longestFile+1), "file a.go"},
		{"a_test.go", "package a" + lines(longestTestFile), ""},
		{"a_test.go", "package a" + lines(longestTestFile+1), "file a_test.go"},
		{"a.go", "package a; func f() {" + lines(longestFunction-1) + "}", ""},
		{"a.go", "package a; func f() {" + lines(longestFunction) + "}", "func a.go:f"},
		{"a.go", "package a; func f() {" + lines(longestFunction-2) + "_ = []int{" + lines(9) + "}\n}", ""},
		{"a/b.go", methods(largestInterface + 1), "interface b.go:I"},
		{"a.go", methods(largestInterface), ""},
		{"a.go", methods(largestInterface + 1), "interface a.go:I"},
		{"a.go", fields((mostFields - 1) / 2), ""},
		{"a.go", fields((mostFields + 1) / 2), "fields a.go:S"},
		{"a_test.go", fields((mostFields + 1) / 2), ""},
		{"a.go", "// Code generated by hand. DO NOT EDIT.\npackage a" + lines(longestFile+1), ""},
	} {
		found, err := sizesOf(row.name, []byte(row.source))
		got := ""
		for _, s := range found {
			got += s.of
		}
		if err != nil || got != row.want {
			t.Errorf("%s: %.40q: %q, %v, and %q is wanted", row.name, row.source, got, err, row.want)
		}
	}
}

// TestMethodsAreCounted checks that the methods of one type in several files count together, and
// that the limit is found at limit + 1.
func TestMethodsAreCounted(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		more int
		want []size
	}{{0, nil}, {1, []size{{"methods b.T", "a/b", mostMethods + 1, mostMethods}}}} {
		counts := map[string]int{}
		for i := range mostMethods + row.more {
			receiver := []string{"T", "*T", "t T[int]", "*T[int, string]"}[i%4]
			countMethods(counts, fmt.Sprintf("a/b/c%d.go", i%3), fmt.Appendf(nil, "package b; func (%s) m%d() {}; func f() {}", receiver, i))
			countMethods(counts, "a/b/c_test.go", fmt.Appendf(nil, "package b; func (T) t%d() {}", i))
			countMethods(counts, "a/other/c.go", fmt.Appendf(nil, "// Code generated by hand. DO NOT EDIT.\npackage b; func (T) g%d() {}", i))
		}
		if got := methods(counts); !slices.Equal(got, row.want) {
			t.Errorf("%d methods: %v, and %v is wanted", mostMethods+row.more, got, row.want)
		}
	}
}
