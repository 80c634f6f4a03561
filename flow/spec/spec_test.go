package spec_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/handler"
	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/logbook"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// TestFaults compares all messages about faulty documents with their golden texts.
func TestFaults(t *testing.T) {
	for _, path := range documents(t, "testdata/faults") {
		t.Run(filepath.Base(path), func(t *testing.T) {
			_, err := spec.Parse(read(t, path), filepath.Base(path))
			if !errors.Is(err, logbook.ErrInvalid) {
				t.Fatalf("error %v, want %v", err, logbook.ErrInvalid)
			}
			if _, ok := errors.AsType[*spec.FaultError](err); !ok {
				t.Errorf("%T is no FaultError", err)
			}
			golden(t, path+".golden", err.Error()+"\n")
		})
	}
}

// TestCompileFaults is the same for what only shows when the flow is put together.
func TestCompileFaults(t *testing.T) {
	for _, path := range documents(t, "testdata/compile") {
		_, err := parse(t, path).Compile()
		if err == nil {
			t.Fatalf("%s compiles", path)
		}
		golden(t, path+".golden", err.Error()+"\n")
	}
}

// TestCanonicalForm: TOML and JSON of one meaning have one form, which reads
// back as itself.
func TestCanonicalForm(t *testing.T) {
	for _, path := range documents(t, "testdata/good") {
		t.Run(filepath.Base(path), func(t *testing.T) {
			text := parse(t, path).JSON()
			golden(t, strings.TrimSuffix(path, filepath.Ext(path))+".golden", indented(t, text))
			again, err := spec.Parse(text, "again.json")
			if err != nil {
				t.Fatal(err)
			}
			if string(again.JSON()) != string(text) {
				t.Errorf("%s\nreads back as\n%s", text, again.JSON())
			}
		})
	}
}

// TestFormats: the extension of the name decides the format; without one, the first character
// does.
func TestFormats(t *testing.T) {
	const asTOML, asJSON = "name = 'x'\n[[steps]]\nname = 'a'\n", ` {"name": "x", "steps": [{"name": "a"}]}`
	rows := []struct {
		name, text string
		good       bool
	}{
		{"x.toml", asTOML, true},
		{"x.json", asJSON, true},
		{"x.JSON", asJSON, true},
		{"-", asTOML, true},
		{"-", asJSON, true},
		{"x.toml", asJSON, false},
		{"x.json", asTOML, false},
		{"-", "", false},
	}
	for _, row := range rows {
		if _, err := spec.Parse([]byte(row.text), row.name); (err == nil) != row.good {
			t.Errorf("%s %q: %v", row.name, row.text, err)
		}
	}
}

func TestLimits(t *testing.T) {
	long := strings.Repeat("n", logbook.MaxLimits.Name)
	step := func(name string) string {
		return `{"name":"x","steps":[{"handler":"h","name":"` + name + `"}]}`
	}
	short := func(n int) string { // a document of n steps in as few bytes as can be
		var steps strings.Builder
		for i := range n {
			fmt.Fprintf(&steps, `,{"name":"%d"}`, i)
		}
		return `{"name":"x","steps":[` + steps.String()[1:] + `]}`
	}
	nested := func(levels int) string { // a step inside a number of nested flows
		text := `{"name":"s"}`
		for i := range levels {
			text = fmt.Sprintf(`{"name":"f%d","steps":[%s]}`, i, text)
		}
		return `{"name":"x","steps":[` + text + `]}`
	}
	rows := []struct {
		what, text string
		want       error
	}{
		{"deepest flows", nested(30), nil},
		{"too deep flows", nested(30 + 1), logbook.ErrInvalid},
		{"many steps", short(5_000), nil},
		{"too many steps", short(logbook.MaxLimits.Steps + 1), logbook.ErrLimit},
		{"longest name", step(long), nil},
		{"too long a name", step(long + "n"), logbook.ErrInvalid},
		{"a control character", step(`a\u001b`), logbook.ErrInvalid},
		{"largest document", step("n") + strings.Repeat(" ", logbook.MaxLimits.Value-len(step("n"))), nil},
		{"too large a document", step("n") + strings.Repeat(" ", logbook.MaxLimits.Value-len(step("n"))+1), logbook.ErrLimit},
		{"too many attempts", `{"name":"x","steps":[{"name":"n","retry":{"attempts":101}}]}`, logbook.ErrInvalid},
		{"most attempts", `{"name":"x","steps":[{"name":"n","retry":{"attempts":100}}]}`, nil},
		{"half an attempt", `{"name":"x","steps":[{"name":"n","retry":{"attempts":1.5}}]}`, logbook.ErrInvalid},
		{"huge number", `{"name":"x","steps":[{"name":"n","retry":{"attempts":1e999}}]}`, logbook.ErrInvalid},
		{"not UTF-8", step("\xff"), logbook.ErrInvalid},
	}
	for _, row := range rows {
		if _, err := spec.Parse([]byte(row.text), "limits.json"); !errors.Is(err, row.want) {
			t.Errorf("%s: %v, want %v", row.what, err, row.want)
		}
	}
}

// TestTooManySteps: the refusal names field, limit and size.
func TestTooManySteps(t *testing.T) {
	text := "name = 'x'\n" + strings.Repeat("[[steps]]\nname='a'\n", logbook.MaxLimits.Steps+1)
	_, err := spec.Parse([]byte(text), "many.toml")
	var limit *logbook.LimitError
	if !errors.As(err, &limit) || limit.Field != "many.toml" || limit.Limit != 10_000 || limit.Size != 10_001 || limit.Unit != "steps" {
		t.Errorf("got %v", err)
	}
}

// TestManyFaults: a document that is wrong everywhere has a readable answer.
func TestManyFaults(t *testing.T) {
	var text strings.Builder
	text.WriteString("name = 'x'\n")
	for range 500 {
		text.WriteString("[[steps]]\ncolour = 'red'\n")
	}
	_, err := spec.Parse([]byte(text.String()), "many.toml")
	faults, ok := errors.AsType[*spec.FaultError](err)
	if !ok || len(faults.Faults) != spec.MaxFaults || faults.More == 0 {
		t.Fatalf("%v", err)
	}
	if lines := strings.Count(err.Error(), "\n") + 1; lines != spec.MaxFaults+1 {
		t.Errorf("%d lines, want %d", lines, spec.MaxFaults+1)
	}
}

// TestLongNames: the cost of reading a document grows linearly with its size.
func TestLongNames(t *testing.T) {
	long := `{"` + strings.Repeat("n", 100_000) + `":{`
	var keys strings.Builder
	for i := range 10_000 {
		keys.WriteString(`"` + strconv.Itoa(i) + `":1,`)
	}
	long += keys.String() + `"last":1}}`
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := spec.Parse([]byte(long), "long.json"); err == nil {
		t.Fatal("unknown keys are accepted")
	}
	runtime.ReadMemStats(&after)
	const bound = 64 << 20
	if used := after.TotalAlloc - before.TotalAlloc; used > bound {
		t.Errorf("%d bytes were allocated, want at most %d", used, bound)
	}
}

func TestFill(t *testing.T) {
	document := parse(t, "testdata/good/all.toml")
	_, err := document.Fill(nil)
	if !errors.Is(err, logbook.ErrInvalid) || !strings.Contains(err.Error(), "guest") {
		t.Errorf("without its input: %v", err)
	}
	store, err := document.Fill(logbook.Values{"guest": json.RawMessage(`"Ada"`), "greeting": json.RawMessage(`"Hi"`)})
	if err != nil {
		t.Fatal(err)
	}
	if string(store["guest"]) != `"Ada"` || string(store["greeting"]) != `"Hi"` || string(store["floors"]) != `[1,2]` {
		t.Errorf("%s", store)
	}
	if string(document.Store["greeting"]) != `"Welcome"` {
		t.Errorf("the document has changed: %s", document.Store)
	}
}

// TestBuild checks that every key of a document arrives in the flow.
func TestBuild(t *testing.T) {
	document := parse(t, "testdata/good/all.toml")
	if _, err := document.Compile(); err != nil {
		t.Fatal(err)
	}
	built, err := document.Build(nil)
	if err != nil {
		t.Fatal(err)
	}
	if built.Name() != "greet" || built.Pattern() != flow.PatternGraph || len(built.Children()) != 3 {
		t.Errorf("%v", built)
	}
	find := built.Children()[0].(*flow.Step)
	_, reverts := find.Reverter()
	if find.Name() != "find-room" || !reverts || find.Timeout().String() != "30s" || find.AtMostOnce() {
		t.Errorf("%+v", find)
	}
	policy := flow.Backoff{Attempts: 3, Delay: 1e9, BackoffPercent: 200, MaxDelay: 60e9}
	if find.Retry() != policy {
		t.Errorf("retry %+v, want %+v", find.Retry(), policy)
	}
	if got, want := find.Provides(), []flow.Provision{{Symbol: "room"}}; !slices.Equal(got, want) {
		t.Errorf("provides %v, want %v", got, want)
	}
	group := built.Children()[1].(*flow.Flow)
	if group.Pattern() != flow.PatternUnordered || len(group.Children()) != 2 {
		t.Errorf("%v", group)
	}
	hello := built.Children()[2].(*flow.Step)
	want := []flow.Argument{
		{Name: "where", Symbol: "room"}, {Name: "who", Symbol: "guest"}, {Name: "words", Symbol: "greeting"},
		{Name: "tongue", Symbol: "language", Optional: true},
	}
	if got := hello.Requires(); !slices.Equal(got, want) {
		t.Errorf("requires %v, want %v", got, want)
	}
	if _, reverts := hello.Reverter(); reverts || !hello.AtMostOnce() || !hello.PointOfNoReturn() || hello.Version() != "2" {
		t.Errorf("%+v", hello)
	}
	if got, want := hello.Provides(), []flow.Provision{{Symbol: "said", Field: "said"}, {Symbol: "at", Field: "at"}}; !slices.Equal(got, want) {
		t.Errorf("provides %v, want %v", got, want)
	}
}

// TestWithoutHandlers: a flow that was built to be looked at does not run.
func TestWithoutHandlers(t *testing.T) {
	built, err := parse(t, "testdata/good/all.toml").Build(nil)
	if err != nil {
		t.Fatal(err)
	}
	step := built.Children()[0].(*flow.Step)
	reverter, _ := step.Reverter()
	_, executed := step.Task().Execute(t.Context(), &flow.Call{})
	for _, err := range []error{executed, reverter.Revert(t.Context(), &flow.Call{})} {
		var failure *logbook.Failure
		if !errors.As(err, &failure) || !failure.Permanent {
			t.Errorf("%v", err)
		}
	}
}

func TestFactory(t *testing.T) {
	directory := t.TempDir()
	for _, name := range []string{"find-room", "release-room", "air-it", "clean-it"} {
		if err := os.WriteFile(filepath.Join(directory, name), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	handlers, err := handler.Open(directory)
	if err != nil {
		t.Fatal(err)
	}
	document := parse(t, "testdata/good/all.toml")
	if want := []string{"air-it", "clean-it", "find-room", "release-room", "say-hello"}; !slices.Equal(document.Handlers(), want) {
		t.Errorf("handlers %q, want %q", document.Handlers(), want)
	}
	_, err = spec.Factory(handlers)(document.JSON())
	if !errors.Is(err, logbook.ErrNotFound) || !strings.Contains(err.Error(), `"say-hello"`) || !strings.Contains(err.Error(), directory) {
		t.Errorf("with a handler missing: %v", err)
	}
	if err := os.WriteFile(filepath.Join(directory, "say-hello"), []byte("#!/bin/sh\necho 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	built, err := spec.Factory(handlers)(document.JSON())
	if err != nil {
		t.Fatal(err)
	}
	call := &flow.Call{Action: logbook.ActionExecute}
	if result, err := built.Children()[2].(*flow.Step).Task().Execute(t.Context(), call); err != nil || string(result.(json.RawMessage)) != "1" {
		t.Errorf("result %v, error %v", result, err)
	}
	for _, args := range []string{"", "null", "{}", `"x"`, "name = 'x'"} {
		if _, err := spec.Factory(handlers)(json.RawMessage(args)); err == nil {
			t.Errorf("the factory accepts %q", args)
		}
	}
}

// FuzzParse: Parse returns for any bytes. An accepted document has a canonical form that
// parses to the same document and can be built. It compiles, or is refused with a named fault.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/*/*.toml", "testdata/*/*.json", "../../examples/*.toml"} {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			f.Fatalf("no seeds in %s: %v", pattern, err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(text, filepath.Ext(path) == ".json")
		}
	}
	f.Fuzz(func(t *testing.T, text []byte, isJSON bool) {
		document, err := spec.Parse(text, map[bool]string{true: "fuzz.json", false: "fuzz.toml"}[isJSON])
		if err != nil {
			if err.Error() == "" {
				t.Error("an error says nothing")
			}
			return
		}
		again, err := spec.Parse(document.JSON(), "again.json")
		if err != nil {
			t.Fatalf("the canonical form is refused: %v\n%s", err, document.JSON())
		}
		if string(again.JSON()) != string(document.JSON()) {
			t.Errorf("%s\nreads back as\n%s", document.JSON(), again.JSON())
		}
		if _, err := document.Build(nil); err != nil {
			t.Errorf("cannot build: %v", err)
		}
		if _, err := document.Compile(); err != nil {
			if faults, ok := errors.AsType[*spec.FaultError](err); !ok || len(faults.Unwrap()) == 0 {
				t.Errorf("refused without a name: %v", err)
			}
		}
	})
}

func documents(t *testing.T, directory string) []string {
	t.Helper()
	var paths []string
	for _, extension := range []string{"toml", "json"} {
		found, err := filepath.Glob(filepath.Join(directory, "*."+extension))
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, found...)
	}
	if len(paths) == 0 {
		t.Fatalf("no documents in %s", directory)
	}
	return paths
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func parse(t *testing.T, path string) *spec.Document {
	t.Helper()
	document, err := spec.Parse(read(t, path), filepath.Base(path))
	if err != nil {
		t.Fatal(err)
	}
	return document
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want := string(read(t, path)); got != want {
		t.Errorf("got\n%s\nwant (%s)\n%s", got, path, want)
	}
}

func indented(t *testing.T, text json.RawMessage) string {
	t.Helper()
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, text, "", "  "); err != nil {
		t.Fatal(err)
	}
	return pretty.String() + "\n"
}
