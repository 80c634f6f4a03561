package fsm_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// layers is the inner order of the package, from the bottom up: a file uses only its own layer
// and lower ones.
var layers = []struct {
	name  string
	files string
}{
	{"transaction: tables, keys, caches, and what one batch changes", "fault keys view caches txn job_record flow_record ledger memory entry_use event_buffer counters rate session_claims quota_cache"},
	{"nouns: what is stored of each, its indexes and how it is read", "job job_index job_list job_error claim_order reservation ageing job_key event definition flow atom book garbage board presence access audit quota drain schedule signal sending wait publication approval reminder checkpoint read_step"},
	{"commands: what each may do, decided first and written afterwards", "post claim change move transfer ending iteration retry_policy stop_request deadline intervene rename retry session expiry timers retention schedule_verbs backfill situation may_claim version"},
	{"machine: applies entries, answers reads, writes snapshots", "fsm apply verbs read read_step id_prefix snapshot digest sums database"},
}

// TestLayers: no function uses a layer above its own. Methods of Machine belong to the top layer in
// every file: each reads one noun.
func TestLayers(t *testing.T) {
	layerOf := make(map[string]int)
	for i, layer := range layers {
		for _, name := range strings.Fields(layer.files) {
			layerOf[name+".go"] = i
		}
	}
	files := token.NewFileSet()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
	var parsed []*ast.File
	for _, name := range names {
		if _, listed := layerOf[name]; !listed {
			t.Errorf("%s is in no layer; add it to the list above", name)
		}
		file, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, file)
	}
	if len(names) != len(layerOf) {
		t.Errorf("%d files are listed, and %d are there", len(layerOf), len(names))
	}
	uses := make(map[*ast.Ident]types.Object)
	config := types.Config{Importer: noImports{}, Error: func(error) {}} // imported names have no layer
	checked, _ := config.Check("fsm", files, parsed, &types.Info{Uses: uses})
	arrows := 0
	for _, file := range parsed {
		for _, declared := range file.Decls {
			from := files.Position(declared.Pos()).Filename
			if method, ok := declared.(*ast.FuncDecl); ok && isOfMachine(method) {
				continue
			}
			ast.Inspect(declared, func(node ast.Node) bool {
				name, ok := node.(*ast.Ident)
				if !ok || uses[name] == nil || uses[name].Pkg() != checked {
					return true
				}
				to := files.Position(uses[name].Pos()).Filename
				if arrows++; layerOf[to] > layerOf[from] {
					t.Errorf("%s: %s is declared in %s, a higher layer", files.Position(name.Pos()), name.Name, to)
				}
				return true
			})
		}
	}
	if arrows < 5_000 {
		t.Errorf("only %d uses were found: the check has not seen the package", arrows)
	}
}

func isOfMachine(method *ast.FuncDecl) bool {
	if method.Recv == nil {
		return false
	}
	pointer, ok := method.Recv.List[0].Type.(*ast.StarExpr)
	if !ok {
		return false
	}
	name, ok := pointer.X.(*ast.Ident)
	return ok && name.Name == "Machine"
}

type noImports struct{}

func (noImports) Import(string) (*types.Package, error) { return nil, errors.New("not needed") }
