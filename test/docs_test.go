package test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/commands"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/flow/handler"
	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/logbook"
)

var rewrite = flag.Bool("rewrite", false, "write the generated parts of the documents anew")

// anything replaces, in a shown answer, values that differ from run to run.
const anything = "…"

// block is one fenced block of a document.
type block struct {
	file     string
	line     int // line number of its first line of text
	language string
	quotes   string // the file named in a comment right above it; empty: none
	text     string
}

func (b block) String() string { return fmt.Sprintf("%s:%d", b.file, b.line) }

// documents are the README, its neighbours, the ledgers, the benchmark notebook and all
// pages of docs/, by path from the top.
func documents(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, path := range append(paths, "../test/ledgers/taskflow.md", "../test/ledgers/queues.md", "../bench/NOTEBOOK.md", "../README.md", "../CONTRIBUTING.md", "../CHANGELOG.md") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		found[strings.TrimPrefix(path, "../")] = string(text)
	}
	return found
}

var quoteMark = regexp.MustCompile(`^<!-- (\S+) -->$`)

// blocksOf finds the fenced blocks of a document.
func blocksOf(file, text string) []block {
	var blocks []block
	var current *block
	before := ""
	for i, line := range strings.Split(text, "\n") {
		language, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && current == nil:
			current = &block{file: file, line: i + 2, language: language}
			if mark := quoteMark.FindStringSubmatch(before); mark != nil {
				current.quotes = mark[1]
			}
		case fence:
			blocks = append(blocks, *current)
			current = nil
		case current != nil:
			current.text += line + "\n"
		}
		before = line
	}
	return blocks
}

func get(t *testing.T, url string) (string, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, text)
	}
	return string(text), err
}

// example is a call that the documents show, and the answer that they show
// with it.
type example struct{ call, answer block }

// TestProtocolExamples runs every call of docs/protocol.md, in order and in one shell, against
// a real server, and compares the answers with the shown ones.
func TestProtocolExamples(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"sh", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("the calls of docs/protocol.md need %s, which this machine does not have", tool)
		}
	}
	examples := protocolExamples(t)
	const mark = "=== end of example ==="
	var script strings.Builder
	for _, e := range examples {
		fmt.Fprintf(&script, "%s\necho\necho '%s'\n", e.call.text, mark)
	}
	shell := exec.CommandContext(within(t), "sh", "-eu")
	shell.Env = append(os.Environ(), "SERVER="+startDev(t))
	shell.Stdin = strings.NewReader(script.String())
	var said bytes.Buffer
	shell.Stderr = &said
	output, err := shell.Output()
	answers := strings.Split(string(output), mark+"\n")
	if err != nil {
		t.Fatalf("example %d, %s, fails: %v\n%s%s", len(answers), examples[min(len(answers), len(examples))-1].call, err, output, &said)
	}
	for i, e := range examples {
		if fault := e.differs(answers[i]); fault != nil {
			t.Errorf("%s: %v\n%s", e.answer, fault, answers[i])
		}
	}
}

// protocolExamples pairs each block of shell with the answer that follows it.
// A block without an answer is one whose answer does not matter.
func protocolExamples(t *testing.T) []example {
	t.Helper()
	var examples []example
	for _, b := range blocksOf("docs/protocol.md", documents(t)["docs/protocol.md"]) {
		switch b.language {
		case "sh":
			examples = append(examples, example{call: b})
		case "json", "text":
			if len(examples) == 0 || examples[len(examples)-1].answer.text != "" {
				t.Fatalf("%s is an answer to no call", b)
			}
			examples[len(examples)-1].answer = b
		}
	}
	const fewest = 20
	if len(examples) < fewest {
		t.Fatalf("found only %d examples", len(examples))
	}
	return examples
}

// differs describes how an answer differs from the shown one.
func (e example) differs(answer string) error {
	switch e.answer.language {
	case "json":
		var want, got any
		if err := json.Unmarshal([]byte(e.answer.text), &want); err != nil {
			return fmt.Errorf("what is shown is not JSON: %w", err)
		}
		if err := json.Unmarshal([]byte(answer), &got); err != nil {
			return fmt.Errorf("the answer is not JSON: %w", err)
		}
		return differ("answer", want, got)
	case "text":
		shown := regexp.QuoteMeta(strings.TrimSpace(e.answer.text))
		pattern := "^" + strings.ReplaceAll(shown, anything, "(?s:.*)") + "$"
		if !regexp.MustCompile(pattern).MatchString(strings.TrimSpace(answer)) {
			return errors.New("the answer is another")
		}
	}
	return nil
}

// differ compares values. "…" as a value matches any value, and as a member of an object any
// members that are not shown.
func differ(where string, want, got any) error {
	if want == anything {
		return nil
	}
	switch want := want.(type) {
	case map[string]any:
		got, ok := got.(map[string]any)
		if !ok {
			return fmt.Errorf("%s is no object", where)
		}
		_, open := want[anything]
		for _, key := range slices.Sorted(maps.Keys(got)) {
			if _, shown := want[key]; !shown && !open {
				return fmt.Errorf("%s has %q, which is not shown", where, key)
			}
		}
		for _, key := range slices.Sorted(maps.Keys(want)) {
			value, there := got[key]
			if key == anything {
				continue
			}
			if !there {
				return fmt.Errorf("%s has no %q", where, key)
			}
			if err := differ(where+"."+key, want[key], value); err != nil {
				return err
			}
		}
		return nil
	case []any:
		got, ok := got.([]any)
		if !ok || len(got) != len(want) {
			return fmt.Errorf("%s is no list of %d", where, len(want))
		}
		for i := range want {
			if err := differ(fmt.Sprintf("%s[%d]", where, i), want[i], got[i]); err != nil {
				return err
			}
		}
		return nil
	}
	if !reflect.DeepEqual(want, got) {
		return fmt.Errorf("%s is %v, and %v is shown", where, got, want)
	}
	return nil
}

// TestShownAnswersCanDiffer checks that the comparison above finds differences.
func TestShownAnswersCanDiffer(t *testing.T) {
	for _, row := range []struct {
		shown, answer string
		same          bool
	}{
		{`{"a": 1}`, `{"a":1}`, true},
		{`{"a": 1}`, `{"a":2}`, false},
		{`{"a": 1}`, `{"a":1,"b":2}`, false},
		{`{"a": 1, "…": "…"}`, `{"a":1,"b":2}`, true},
		{`{"a": 1, "b": "…"}`, `{"a":1}`, false},
		{`{"a": "…"}`, `{"a":{"b":[1]}}`, true},
		{`{"a": [1, "…"]}`, `{"a":[1,2]}`, true},
		{`{"a": [1]}`, `{"a":[1,2]}`, false},
		{`{}`, `garbage`, false},
	} {
		e := example{answer: block{language: "json", text: row.shown}}
		if err := e.differs(row.answer); (err == nil) != row.same {
			t.Errorf("shown %s, answered %s: %v", row.shown, row.answer, err)
		}
	}
	for answer, same := range map[string]bool{"ok\n": true, "oh": false, "ok 1": false} {
		if err := (example{answer: block{language: "text", text: "ok\n"}}).differs(answer); (err == nil) != same {
			t.Errorf("shown ok, answered %q: %v", answer, err)
		}
	}
}

// TestProtocolShowsEveryCall compares the calls that docs/protocol.md makes
// with those of the service's definition.
func TestProtocolShowsEveryCall(t *testing.T) {
	text, err := os.ReadFile("../api/conductord/v1/service.proto")
	if err != nil {
		t.Fatal(err)
	}
	var shown strings.Builder
	for _, e := range protocolExamples(t) {
		shown.WriteString(e.call.text)
	}
	service, calls := "", 0
	for _, match := range regexp.MustCompile(`(?m)^service (\w+)|^  rpc (\w+)\(`).FindAllStringSubmatch(string(text), -1) {
		if match[1] != "" {
			service = match[1]
			continue
		}
		calls++
		if name := service + "/" + match[2]; !strings.Contains(shown.String(), name) {
			t.Errorf("docs/protocol.md shows no call of %s", name)
		}
	}
	if calls == 0 {
		t.Fatal("the definition has no calls")
	}
}

// Commands of ours stand at the beginning of a line in a block of shell, and
// between backticks in running text.
var (
	shellCommand  = regexp.MustCompile(`(?m)^(?:conductord|go run \./cmd/conductord) ([^\n|<>&;#]+)`)
	inlineCommand = regexp.MustCompile("`conductord ([^`\n|<>&;]+)`")
)

// TestShownCommandsExist checks that the program knows the command and every flag of each
// shown command line.
func TestShownCommandsExist(t *testing.T) {
	t.Parallel()
	found := map[string]string{}
	for file, text := range documents(t) {
		matches := inlineCommand.FindAllStringSubmatch(text, -1)
		for _, b := range blocksOf(file, text) {
			if b.language == "sh" {
				matches = append(matches, shellCommand.FindAllStringSubmatch(b.text, -1)...)
			}
		}
		for _, match := range matches {
			found[strings.TrimSpace(match[1])] = file
		}
	}
	for _, file := range []string{"deploy/Containerfile", "deploy/conductord.service"} {
		text, err := os.ReadFile(filepath.Join("..", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range deployedCommand.FindAllStringSubmatch(string(text), -1) {
			found[strings.Join(strings.Fields(deployedQuotes.Replace(match[1])), " ")] = file
		}
	}
	const fewest = 20
	if len(found) < fewest {
		t.Fatalf("found only %d commands", len(found))
	}
	for _, line := range slices.Sorted(maps.Keys(found)) {
		if err := known(t, line); err != nil {
			t.Errorf("%s shows `conductord %s`: %v", found[line], line, err)
		}
	}
}

// deployedCommand is a command in a list of JSON strings, or of a unit.
var (
	deployedCommand = regexp.MustCompile(`(?m)(?:ExecStart=|")/usr/bin/conductord(?:",)?( [^\]\n]+)`)
	deployedQuotes  = strings.NewReplacer(`"`, " ", ",", " ")
)

var (
	quotedArgument = regexp.MustCompile(`'[^']*'|"[^"]*"`)
	usageLine      = regexp.MustCompile(`(?m)^  conductord((?: [a-z][a-z-]*)*)(.*)$`)
)

// known requests the help of a command line, which needs known flags, and compares the command
// in the help.
func known(t *testing.T, line string) error {
	t.Helper()
	args := strings.Fields(quotedArgument.ReplaceAllString(line, "x"))
	var output strings.Builder
	program := commands.Of(&cli.Program{Out: &output, Err: &output})
	if code := program.Run(t.Context(), append(args, "--help")); code != 0 {
		return fmt.Errorf("exit code %d\n%s", code, output.String())
	}
	usage := usageLine.FindStringSubmatch(output.String())
	if usage == nil {
		return fmt.Errorf("the help shows no usage:\n%s", output.String())
	}
	command := strings.Fields(usage[1])
	if len(args) < len(command) || !slices.Equal(args[:len(command)], command) {
		return fmt.Errorf("the program takes it for conductord %s", strings.Join(command, " "))
	}
	rest := args[len(command):]
	if len(rest) > 0 && !strings.HasPrefix(rest[0], "-") && !regexp.MustCompile(`^ \[?[A-Z]`).MatchString(usage[2]) ||
		strings.Contains(output.String(), "[command]\n") && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return fmt.Errorf("%q is no part of it", rest[0])
	}
	return nil
}

// TestShownCommandsCanBeWrong checks that the check above finds something.
func TestShownCommandsCanBeWrong(t *testing.T) {
	for line, good := range map[string]bool{
		"job get ID": true, "flow run FILE --wait --set 'a=1'": true, "dev": true,
		"jib get ID": false, "job got ID": false, "job get ID --colour": false, "dev now": false,
	} {
		if err := known(t, line); (err == nil) != good {
			t.Errorf("conductord %s: %v", line, err)
		}
	}
}

// TestThreeServersConfigs: the block of docs/start-and-stop.md for three servers writes
// configurations that are valid and fit together.
func TestThreeServersConfigs(t *testing.T) {
	t.Parallel()
	const path = "docs/start-and-stop.md"
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "examples", "handlers"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, b := range blocksOf(path, documents(t)[path]) {
		if b.language != "sh" || !strings.Contains(b.text, "config init") {
			continue
		}
		write := exec.CommandContext(t.Context(), "sh", "-eu", "-c", b.text)
		write.Dir, write.Env = dir, append(os.Environ(), "PATH="+filepath.Dir(binary)+string(os.PathListSeparator)+os.Getenv("PATH"))
		if output, err := write.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", b, err, output)
		}
		var members []config.Member
		for i := range 3 {
			path := filepath.Join(dir, fmt.Sprintf("node%d.toml", i+1))
			loaded, err := config.Load(path, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if i > 0 && !slices.Equal(loaded.Cluster.Members, members) {
				t.Errorf("%s lists other members than the first", path)
			}
			members = loaded.Cluster.Members
		}
		return
	}
	t.Error("no block writes configurations")
}

// TestShownFlows checks that the shown flow documents are valid. Parts of documents are quoted
// from examples, which have tests of their own.
func TestShownFlows(t *testing.T) {
	shown := 0
	for file, text := range documents(t) {
		for _, b := range blocksOf(file, text) {
			if b.language != "toml" || b.quotes != "" || !strings.Contains(b.text, "[[steps]]") {
				continue
			}
			shown++
			path := filepath.Join(t.TempDir(), "flow.toml")
			if err := os.WriteFile(path, []byte(b.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if output, err := exec.CommandContext(t.Context(), binary, "flow", "check", path).CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", b, err, output)
			}
		}
	}
	if shown == 0 {
		t.Error("no flow document is shown")
	}
}

// TestShownFlowsRun runs the complete flow documents of docs/flows.md, with handlers that
// return the provided values.
func TestShownFlowsRun(t *testing.T) {
	t.Parallel()
	ran := 0
	for _, b := range blocksOf("docs/flows.md", documents(t)["docs/flows.md"]) {
		if b.language != "toml" || b.quotes != "" || !strings.Contains(b.text, "[[steps]]") {
			continue
		}
		ran++
		document, err := spec.Parse([]byte(b.text), "shown.toml")
		if err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		given := logbook.Values{}
		for _, input := range document.Inputs {
			given[input] = json.RawMessage(`"given"`)
		}
		store, err := document.Fill(given)
		if err != nil {
			t.Fatal(err)
		}
		built, err := document.Build(givingHandlers(t, document))
		if err != nil {
			t.Fatal(err)
		}
		if result, err := engine.RunLocal(t.Context(), built, store); err != nil || result.State != logbook.FlowSuccess {
			t.Errorf("%s ends %s: %v", b, result.State, err)
		}
	}
	if ran == 0 {
		t.Error("no flow document is shown whole")
	}
}

// givingHandlers makes handlers for all steps of a document. Each returns an object with every
// field that any step provides.
func givingHandlers(t *testing.T, document *spec.Document) *handler.Set {
	t.Helper()
	fields := map[string]string{}
	var collect func(steps []spec.Step)
	collect = func(steps []spec.Step) {
		for i := range steps {
			for _, field := range steps[i].Provides.Fields {
				fields[field] = field
			}
			collect(steps[i].Steps)
		}
	}
	collect(document.Steps)
	result, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	for _, name := range document.Handlers() {
		script := fmt.Sprintf("#!/bin/sh\nread -r input\necho '%s'\n", result)
		if err := os.WriteFile(filepath.Join(directory, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	handlers, err := handler.Open(directory)
	if err != nil {
		t.Fatal(err)
	}
	return handlers
}

// TestQuotedCode checks that code that is quoted from a file is in that file.
func TestQuotedCode(t *testing.T) {
	quoted := 0
	for file, text := range documents(t) {
		for _, b := range blocksOf(file, text) {
			if b.quotes == "" {
				continue
			}
			quoted++
			source, err := os.ReadFile(filepath.Join("..", b.quotes))
			if err != nil {
				t.Error(err)
			} else if !strings.Contains(string(source), b.text) {
				t.Errorf("%s differs from the text in %s:\n%s", b, b.quotes, b.text)
			}
		}
	}
	const fewest = 3
	if quoted < fewest {
		t.Errorf("found only %d quotations", quoted)
	}
}

const (
	generatedFrom = "<!-- generated from here: go test ./test -run TestConfigurationIsDocumented -rewrite -->\n"
	generatedTo   = "<!-- to here -->\n"
)

// TestConfigurationIsDocumented compares docs/configuration.md with the table
// of all keys, or writes it.
func TestConfigurationIsDocumented(t *testing.T) {
	const path = "docs/configuration.md"
	text := documents(t)[path]
	before, rest, began := strings.Cut(text, generatedFrom)
	_, after, ended := strings.Cut(rest, generatedTo)
	if !began || !ended {
		t.Fatalf("%s does not say what is generated", path)
	}
	want := before + generatedFrom + settingsTable() + generatedTo + after
	switch {
	case text == want:
	case *rewrite:
		if err := os.WriteFile(filepath.Join("..", path), []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s is not what the table of keys says; run this test with -rewrite", path)
	}
}

// requiredKeys are the keys of a node that have no default and must have a value.
var requiredKeys = []string{"node", "data_dir", "cluster.id", "cluster.members"}

// describedDefault finds a default that is no value of the key. The table has it in its own column.
var describedDefault = regexp.MustCompile(`\. Default: ([^.]*)`)

// settingsTable is the table of all keys, in the order of the file's sections.
func settingsTable() string {
	var table strings.Builder
	section := "-"
	for _, s := range config.Settings() {
		name, _, nested := strings.Cut(s.Key, ".")
		if !nested {
			name = ""
		}
		if name != section {
			section = name
			title := "[" + name + "]"
			if name == "" {
				title = "At the top of the file"
			}
			fmt.Fprintf(&table, "\n### %s\n\n| Key | Type | Default | Description |\n|---|---|---|---|\n", title)
		}
		standard, text := "none", s.Doc
		described := describedDefault.FindStringSubmatch(s.Doc)
		switch {
		case slices.Contains(requiredKeys, s.Key):
			standard = "required"
		case s.Default != "":
			standard = "`" + s.Default + "`"
		case described != nil:
			standard, text = described[1], strings.Replace(s.Doc, described[0], "", 1)
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", s.Key, s.Type, standard, text)
	}
	return table.String() + "\n"
}

// TestMetricsAreDocumented compares the metrics of a real server with those
// that docs/metrics.md lists.
func TestMetricsAreDocumented(t *testing.T) {
	text, err := get(t, "http://"+startDev(t)+"/metrics")
	if err != nil {
		t.Fatal(err)
	}
	document := documents(t)["docs/metrics.md"]
	matches := regexp.MustCompile(`(?m)^# HELP (conductord_\w+)`).FindAllStringSubmatch(text, -1)
	if len(matches) == 0 {
		t.Fatal("the server has no metrics of its own process")
	}
	served := map[string]bool{}
	for _, match := range matches {
		served[match[1]] = true
		if !strings.Contains(document, "`"+match[1]+"`") {
			t.Errorf("docs/metrics.md does not list %s", match[1])
		}
	}
	for _, match := range regexp.MustCompile("(?m)^\\| `(conductord_\\w+)`").FindAllStringSubmatch(document, -1) {
		if !served[match[1]] {
			t.Errorf("docs/metrics.md lists %s, which a server does not tell", match[1])
		}
	}
}

// Documents name the tests that hold their promises in backticks, after the folder: a
// test, a script of the engine, or a row of a conformance suite.
var (
	namedTest = regexp.MustCompile("`([a-z/]+)` `(Test\\w+|[a-z]+\\.txt)`")
	namedRow  = regexp.MustCompile("`(jobs/jobstest|logbook/logbooktest)` `([^`]+)`")
	testFunc  = regexp.MustCompile(`(?m)^func (Test\w+)`)
	suiteRow  = regexp.MustCompile(`(?m)^\t\{"([^"]+)", \w+\},$`)
)

// TestNamedTestsExist checks that the tests named in the documents exist.
func TestNamedTestsExist(t *testing.T) {
	there := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		folder := filepath.ToSlash(strings.TrimPrefix(filepath.Dir(path), ".."+string(filepath.Separator)))
		declares := testFunc
		switch {
		case strings.HasSuffix(path, ".txt"):
			there[strings.TrimSuffix(folder, "/testdata")+" "+entry.Name()] = true
			return nil
		case folder == "jobs/jobstest" || folder == "logbook/logbooktest":
			declares = suiteRow
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		source, err := os.ReadFile(path)
		for _, match := range declares.FindAllStringSubmatch(string(source), -1) {
			there[folder+" "+match[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for file, text := range documents(t) {
		for _, match := range append(namedTest.FindAllStringSubmatch(text, -1), namedRow.FindAllStringSubmatch(text, -1)...) {
			named++
			if !there[match[1]+" "+match[2]] {
				t.Errorf("%s names %s in %s, which does not exist", file, match[2], match[1])
			}
		}
	}
	if named == 0 {
		t.Error("no tests are named")
	}
}

// anchorsOf returns the anchors that GitHub gives to the headings of a page.
func anchorsOf(page string) map[string]bool {
	anchors := map[string]bool{}
	for _, b := range blocksOf("", page) {
		page = strings.Replace(page, b.text, "", 1) // comments of shell are no headings
	}
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(page, -1) {
		text := regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`).ReplaceAllString(strings.ToLower(heading[1]), "$1")
		anchors[strings.ReplaceAll(regexp.MustCompile(`[^\pL\pN_ -]`).ReplaceAllString(text, ""), " ", "-")] = true
	}
	return anchors
}

// TestLinksLead checks that links between the documents lead to an existing page and heading.
func TestLinksLead(t *testing.T) {
	pages, anchors := documents(t), map[string]map[string]bool{}
	for file, text := range pages {
		anchors[file] = anchorsOf(text)
	}
	for file, text := range pages {
		for _, match := range regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]*))?\)`).FindAllStringSubmatch(text, -1) {
			if strings.Contains(match[1], "://") {
				continue
			}
			target := file
			if match[1] != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(file), match[1]))
			}
			if headings, known := anchors[target]; known && match[2] != "" && !headings[match[2]] {
				t.Errorf("%s links to %s#%s, and there is no such heading", file, target, match[2])
			}
			if match[1] == "" {
				continue
			}
			if _, err := os.Stat(filepath.Join("..", filepath.Dir(file), match[1])); err != nil {
				t.Errorf("%s links to %s: %v", file, match[1], err)
			}
		}
	}
}

// TestDependenciesHaveReasons compares the modules that our packages import
// with those for which docs/dependencies.md gives a reason.
func TestDependenciesHaveReasons(t *testing.T) {
	t.Parallel()
	module, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, path := range importedPaths(t) {
		longest := ""
		for _, match := range regexp.MustCompile(`(?m)^(?:require)?\s+(\S+) v\d`).FindAllStringSubmatch(string(module), -1) {
			if (path == match[1] || strings.HasPrefix(path, match[1]+"/")) && len(match[1]) > len(longest) {
				longest = match[1]
			}
		}
		if longest != "" {
			used[longest] = true
		}
	}
	reasons := map[string]bool{}
	for _, match := range regexp.MustCompile("(?m)^\\| `([^`]+)`").FindAllStringSubmatch(documents(t)["docs/dependencies.md"], -1) {
		reasons[match[1]] = true
		if !used[match[1]] {
			t.Errorf("docs/dependencies.md gives a reason for %s, which nothing imports", match[1])
		}
	}
	for _, path := range slices.Sorted(maps.Keys(used)) {
		if !reasons[path] {
			t.Errorf("docs/dependencies.md gives no reason for %s", path)
		}
	}
}

// importedPaths lists what our packages, their tests and our tools import.
func importedPaths(t *testing.T) []string {
	t.Helper()
	const each = `{{range .Imports}}{{.}}{{"\n"}}{{end}}{{range .TestImports}}{{.}}{{"\n"}}{{end}}{{range .XTestImports}}{{.}}{{"\n"}}{{end}}`
	var paths []string
	for _, args := range [][]string{{"list", "-f", each, modulePath + "/..."}, {"list", "tool"}} {
		output, err := exec.CommandContext(t.Context(), "go", args...).Output()
		if err != nil {
			t.Fatalf("cannot list what is imported: %v", err)
		}
		for path := range strings.FieldsSeq(string(output)) {
			if !ours(path) {
				paths = append(paths, path)
			}
		}
	}
	return paths
}
