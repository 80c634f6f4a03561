package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/conductord/conductord/internal/meant"
	"github.com/conductord/conductord/internal/tomlpos"
)

// maxFile limits a configuration file. A larger file is not a configuration.
const maxFile = 1 << 20

// Load loads a configuration from a file, environment variables and flags, over the defaults. env has
// the form of os.Environ. flags maps the names of the given flags, without dashes, to their values. An
// empty path means no file.
//
// Load treats empty variables as unset. A variable with nearly the name of a setting is a fault. Load ignores other
// variables, because programs and service links of Kubernetes set variables with the same prefix. The error is Faults,
// or another error for a file that cannot be read.
func Load(path string, env []string, flags map[string]string) (Config, error) {
	return loadRows(table(), path, env, flags)
}

func loadRows(rows []setting, path string, env []string, flags map[string]string) (Config, error) {
	l, err := load(rows, path, env, flags)
	if err != nil {
		return Config{}, err
	}
	return l.config, nil
}

// load is Load for some rows of the table. It also keeps the origins of the values.
func load(rows []setting, path string, env []string, flags map[string]string) (*loader, error) {
	l := &loader{rows: rows, config: Default(), origins: make(map[string]origin)}
	if path != "" {
		if err := l.loadFile(path); err != nil {
			return nil, err
		}
	}
	l.loadEnv(env)
	l.loadFlags(flags)
	l.checkRanges()
	checkTogether(&l.config, func(key, message string) {
		if slices.ContainsFunc(rows, func(row setting) bool { return row.key == settingOf(key) }) {
			l.blame(key, message)
		}
	})
	l.checkAccessControl()
	if len(l.faults) > 0 {
		// Sorted by line. Faults outside the file have line 0 and come last.
		slices.SortStableFunc(l.faults, func(a, b Fault) int { return cmp.Compare(uint(a.Line-1), uint(b.Line-1)) })
		return nil, l.faults
	}
	return l, nil
}

// Validate checks a Config that was made in code. The error is Faults without places.
func (c *Config) Validate() error {
	l := loader{rows: table(), config: *c}
	l.checkRanges()
	checkTogether(&l.config, l.blame)
	if len(l.faults) > 0 {
		return l.faults
	}
	return nil
}

// origin is the source of a setting's value.
type origin struct {
	place string
	line  int
	key   string // in the place's spelling
}

// loader collects values and faults.
type loader struct {
	rows    []setting // keys of this program
	config  Config
	file    string
	places  tomlpos.Index     // places of the keys in the file
	origins map[string]origin // by setting
	bad     []string          // settings with a fault; each is reported once
	faults  Faults
}

func (l *loader) loadFile(path string) error {
	text, err := readBounded(path)
	if err != nil {
		return fmt.Errorf("cannot read the configuration: %w", err)
	}
	l.file = path
	var document map[string]any
	if _, err := toml.Decode(text, &document); err != nil {
		var syntax toml.ParseError
		if errors.As(err, &syntax) {
			l.faults = append(l.faults, syntaxFault(path, text, syntax))
			return l.faults // a file that cannot be parsed has no other known faults
		}
		return fmt.Errorf("cannot read the configuration %s: %w", path, err)
	}
	l.places = *tomlpos.New(text)
	for _, row := range l.rows {
		if value, found := take(document, row.key); found {
			l.origins[row.key] = origin{path, l.places.Of(row.key).Line, row.key}
			l.setAny(row, value)
		}
	}
	l.refuseRest("", document)
	return nil
}

// syntaxFault returns the fault of a file that cannot be parsed. For a key or a section that occurs twice, it says how to
// mend the file: operators append the sections of examples to files that already have them.
func syntaxFault(path, text string, syntax toml.ParseError) Fault {
	fault := Fault{Place: path, Line: syntax.Position.Line, Message: syntax.Message}
	before, twice := strings.CutSuffix(syntax.Message, "' has already been defined.")
	key, named := strings.CutPrefix(before, "Key '")
	lines := strings.Split(text, "\n")
	if !twice || !named || fault.Line < 1 || fault.Line > len(lines) {
		return fault
	}
	fault.Key, fault.Message = key, "is defined twice; delete one of the two lines"
	if strings.HasPrefix(strings.TrimSpace(lines[fault.Line-1]), "[") {
		fault.Message = fmt.Sprintf("is defined twice; merge the two sections [%s] into one", key)
	}
	return fault
}

func readBounded(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return "", err
	}
	if len(text) > maxFile {
		return "", fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	}
	return string(text), nil
}

// take removes a dotted key from the document and returns its value.
func take(document map[string]any, key string) (any, bool) {
	table, rest, nested := strings.Cut(key, ".")
	value, found := document[table]
	if !nested {
		delete(document, table)
		return value, found
	}
	inner, isTable := value.(map[string]any)
	if !isTable {
		return nil, false
	}
	return take(inner, rest)
}

// refuseRest reports every key that no setting has taken.
func (l *loader) refuseRest(prefix string, document map[string]any) {
	sections := make(map[string]bool)
	for _, row := range l.rows {
		if section, _, nested := strings.Cut(row.key, "."); nested {
			sections[section] = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(document)) {
		path := prefix + key
		inner, isTable := document[key].(map[string]any)
		switch {
		case isTable && prefix == "" && sections[key]:
			l.refuseRest(key+".", inner)
		case prefix == "" && sections[key]:
			l.addInFile(path, "must be a table: ["+key+"]")
		default:
			l.addInFile(path, l.similar(path, key))
		}
	}
}

// similar returns the message for an unknown key, with a suggestion. It suggests a key that ends in the same word, or a
// key with a similar spelling. The most common mistake is a key in the wrong table.
func (l *loader) similar(path, key string) string {
	const unknown = "there is no such key"
	if slices.ContainsFunc(table(), func(row setting) bool { return row.key == path || strings.HasPrefix(row.key, path+".") }) {
		return unknown + " here: it is one of nodes"
	}
	var known []string
	for _, row := range l.rows {
		if row.key == key || strings.HasSuffix(row.key, "."+key) {
			return unknown + "; is it " + row.key + "?"
		}
		section, _, _ := strings.Cut(row.key, ".")
		known = append(known, row.key, section)
	}
	return unknown + meant.Hint(path, known)
}

func (l *loader) addInFile(key, message string) {
	l.faults = append(l.faults, Fault{Place: l.file, Line: l.places.Of(key).Line, Key: key, Message: message})
}

func (l *loader) loadEnv(env []string) {
	values := make(map[string]string, len(env))
	for _, item := range env {
		name, value, _ := strings.Cut(item, "=")
		values[name] = value
	}
	known := make([]string, 0, len(l.rows))
	for _, row := range l.rows {
		known = append(known, strings.TrimPrefix(row.env(), envPrefix))
		if value := values[row.env()]; value != "" {
			l.setText(row, value, origin{place: "environment", key: row.env()})
		}
		delete(values, row.env())
	}
	for _, row := range table() { // settings of nodes are allowed in a part's variables
		delete(values, row.env())
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		short, ours := strings.CutPrefix(name, envPrefix)
		if !ours || slices.Contains(otherVariables[:], short) {
			continue
		}
		if best := meant.Word(short, known); best != "" {
			l.faults = append(l.faults, Fault{Place: "environment", Key: name, Message: "there is no such variable; did you mean " + envPrefix + best + "?"})
		}
	}
}

// otherVariables are names after envPrefix that are not settings. Client commands read some of
// them. Handlers get the others, and a node inherits those if a handler starts it.
var otherVariables = [...]string{"CA_FILE", "CERT_FILE", "KEY_FILE", "TOKEN", "TOKEN_FILE", "VALUE_KEYS", "PROFILE", "SERVER", "TOPOLOGY",
	"ACTION", "ASKED", "ATTEMPT", "FENCE", "FLOW", "HANDLER", "JOB", "KEY", "STEP", "TRIES", "TRY"}

func (l *loader) loadFlags(flags map[string]string) {
	known := make(map[string]bool, len(flags))
	for _, row := range l.rows {
		known[row.flag()] = true
		if value, given := flags[row.flag()]; given {
			l.setText(row, value, origin{place: "flags", key: "--" + row.flag()})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		if !known[name] {
			l.faults = append(l.faults, Fault{Place: "flags", Key: "--" + name, Message: "there is no such flag"})
		}
	}
}

// setText takes a value from a flag or a variable. The fault of an overridden value is still reported,
// because the file is wrong.
func (l *loader) setText(row setting, text string, from origin) {
	l.origins[row.key] = from
	if message := row.setText(&l.config, text); message != "" {
		l.blame(row.key, message)
	}
}

// setAny takes a value from the file.
func (l *loader) setAny(row setting, value any) {
	message := ""
	switch target := row.target(&l.config).(type) {
	case *string:
		message = assign(target, value, "a string")
		l.place(row, target)
	case *bool:
		message = assign(target, value, "true or false")
	case *int:
		var number int64
		if message = assign(&number, value, "a whole number"); message == "" {
			*target = int(number)
		}
	case *time.Duration:
		var text string
		if message = assign(&text, value, `a duration such as "500ms", "4s" or "24h"`); message == "" {
			message = setDuration(target, text)
		}
	case *[]string:
		message = assignStrings(target, value)
		for i := range *target {
			l.place(row, &(*target)[i])
		}
	case *[]Member:
		l.setMembersAny(target, value)
	case *PerBoard:
		l.setPerBoardAny(row.key, target, value)
	}
	if message != "" {
		l.blame(row.key, message)
	}
}

// place resolves a relative path in the file against the file's directory. So a directory with
// configuration, certificates and handlers can be copied anywhere.
func (l *loader) place(row setting, path *string) {
	if row.path && *path != "" && !filepath.IsAbs(*path) {
		*path = filepath.Join(filepath.Dir(l.file), *path)
	}
}

func assign[T any](target *T, value any, want string) string {
	typed, ok := value.(T)
	if !ok {
		return fmt.Sprintf("must be %s, not %s", want, describe(value))
	}
	*target = typed
	return ""
}

func assignStrings(target *[]string, value any) string {
	items, ok := value.([]any)
	if !ok {
		return "must be a list of strings, not " + describe(value)
	}
	texts := make([]string, 0, len(items))
	for _, item := range items {
		text, isString := item.(string)
		if !isString {
			return "must be a list of strings, but contains " + describe(item)
		}
		texts = append(texts, text)
	}
	*target = texts
	return ""
}

// setMembersAny reads [[cluster.members]]. The faults of each member have their own lines.
func (l *loader) setMembersAny(target *[]Member, value any) {
	tables, ok := tablesOf(value)
	if !ok {
		l.blame("cluster.members", "must be a list of tables: [[cluster.members]]")
		return
	}
	members := make([]Member, len(tables))
	for i, table := range tables {
		prefix := memberKey(i)
		fields := map[string]*string{"name": &members[i].Name, "raft": &members[i].Raft, "api": &members[i].API}
		for _, key := range slices.Sorted(maps.Keys(table)) {
			field, known := fields[key]
			if !known {
				l.addInFile(prefix+"."+key, "unknown key: the keys of a member are name, raft and api")
				continue
			}
			if message := assign(field, table[key], "a string"); message != "" {
				l.blame(prefix+"."+key, message)
			}
		}
	}
	*target = members
}

// setPerBoardAny reads a table with a name or a list of names for each key.
func (l *loader) setPerBoardAny(key string, target *PerBoard, value any) {
	table, isTable := value.(map[string]any)
	if !isTable {
		l.blame(key, `must be a table such as {"a/*" = "NAME"}, not `+describe(value))
		return
	}
	for _, boards := range slices.Sorted(maps.Keys(table)) {
		names := make([]string, 1)
		message := assign(&names[0], table[boards], "a string")
		if _, isList := table[boards].([]any); isList {
			message = assignStrings(&names, table[boards])
		}
		if message != "" {
			l.blame(key, fmt.Sprintf("%.128q %s", boards, message))
		}
		target.set(boards, names)
	}
}

func tablesOf(value any) ([]map[string]any, bool) {
	if tables, ok := value.([]map[string]any); ok {
		return tables, true
	}
	items, ok := value.([]any)
	tables := make([]map[string]any, 0, len(items))
	for _, item := range items {
		table, isTable := item.(map[string]any)
		ok = ok && isTable
		tables = append(tables, table)
	}
	return tables, ok
}

// describe names the type of a TOML value for messages.
func describe(value any) string {
	switch value := value.(type) {
	case string:
		return fmt.Sprintf("the string %.64q", value)
	case int64:
		return "the number " + strconv.FormatInt(value, 10)
	case float64:
		return "the number " + strconv.FormatFloat(value, 'g', -1, 64)
	case bool:
		return strconv.FormatBool(value)
	case time.Time:
		return "a date"
	case []any, []map[string]any:
		return "a list"
	}
	return "a table"
}

// blame records a fault of a setting, at the place that set its value.
func (l *loader) blame(key, message string) {
	if slices.Contains(l.bad, key) {
		return
	}
	l.bad = append(l.bad, key)
	if from, known := l.origins[settingOf(key)]; known {
		fault := Fault{Place: from.place, Line: from.line, Key: from.key, Message: message}
		if from.place == l.file {
			fault.Key, fault.Line = key, l.places.Of(key).Line
		} else if key != settingOf(key) {
			fault.Message = strings.TrimPrefix(key, "cluster.") + ": " + message
		}
		l.faults = append(l.faults, fault)
		return
	}
	l.faults = append(l.faults, Fault{Place: l.file, Key: key, Message: message})
}

// settingOf returns the table's key for a key such as cluster.members[2].raft.
func settingOf(key string) string {
	setting, _, _ := strings.Cut(key, "[")
	return setting
}

func (l *loader) checkRanges() {
	for _, row := range l.rows {
		if message := row.outOfRange(&l.config); message != "" {
			l.blame(row.key, message)
		}
	}
}

// checkAccessControl refuses an explicit access_control = true without TLS. Without TLS, the default true
// has no effect, but an operator who sets the key expects access control.
func (l *loader) checkAccessControl() {
	const key = "access_control"
	if _, given := l.origins[key]; given && l.config.AccessControl && l.config.TLS == (TLS{}) {
		l.blame(key, "requires tls.ca, tls.cert and tls.key: with plain text, every caller can do everything; set the three files (see conductord cert), or remove access_control")
	}
}
