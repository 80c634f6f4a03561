package docs

import (
	_ "embed" // protocol.md
	"regexp"
	"slices"
	"strings"
	"sync"
)

//go:embed protocol.md
var protocolPage string

// Call is the description of an API call in protocol.md.
type Call struct {
	Permission string // empty: the permissions of the carried calls
	Text       string // in Markdown: the first paragraph of its section
	Request    string // in JSON, with "…" for a value from an earlier answer; empty: none is shown
}

var (
	permissionRow = regexp.MustCompile("(?m)^\\| `(\\w+/\\w+)` \\| (\\w+) \\|$")
	assignment    = regexp.MustCompile(`(?m)^([A-Z]+)=([0-9a-f-]{36})$`)
	shellWord     = regexp.MustCompile(`'[^']*'|\$\w+|"[^"]*"`)
	shownCall     = regexp.MustCompile(`"\$API\.(\w+/(\w+))"(?: -d ((?:` + shellWord.String() + `)+))?`)
)

// Calls are the calls of protocol.md by name, such as BoardService/Post.
var Calls = sync.OnceValue(func() map[string]Call {
	calls, values := map[string]Call{}, map[string]string{}
	for _, set := range assignment.FindAllStringSubmatch(protocolPage, -1) {
		values[set[1]] = set[2]
	}
	permissions := map[string]string{}
	for _, row := range permissionRow.FindAllStringSubmatch(protocolPage, -1) {
		permissions[row[1]] = row[2]
	}
	for _, section := range strings.Split(protocolPage, "\n### ")[1:] {
		heading, text, _ := strings.Cut(section, "\n")
		text, _, _ = strings.Cut(text, "\n## ")
		words, _, _ := strings.Cut(text, "```")
		words, _, _ = strings.Cut(strings.TrimSpace(words), "\n\n")
		for _, shown := range shownCall.FindAllStringSubmatch(text, -1) {
			name := shown[1]
			if _, known := calls[name]; !known && slices.Contains(strings.Split(heading, ", "), shown[2]) {
				calls[name] = Call{permissions[name], strings.ReplaceAll(words, "\n", " "), unquoted(shown[3], values)}
			}
		}
	}
	return calls
})

// unquoted is the text of a shell argument, with variables replaced by their values.
func unquoted(argument string, values map[string]string) string {
	var text strings.Builder
	for _, word := range shellWord.FindAllString(argument, -1) {
		switch {
		case word[0] == '\'':
			text.WriteString(word[1 : len(word)-1])
		case word[0] == '$':
			text.WriteString(values[word[1:]])
		case strings.HasSuffix(text.String(), `"`):
			text.WriteString("…")
		default:
			text.WriteString(`"…"`)
		}
	}
	return text.String()
}
