package spec

import (
	"fmt"
	"strings"

	"github.com/conductord/conductord/logbook"
)

// tomlIndex is where the keys of a TOML text stand. The TOML library tells
// the place of a syntax error only, and a fault of meaning is as hard to find.
// The index is for messages alone: it follows TOML's headers, keys, strings
// and brackets, and where a text is not TOML it may be wrong without harm.
type tomlIndex struct {
	places  map[string]place // by paths such as steps[0].retry
	deepest int              // nesting of brackets, or parts of a dotted key

	text   string
	at     int
	line   int
	begin  int            // of the line
	table  string         // the path of the table whose keys are being read
	tables map[string]int // how many tables each array of tables has so far
}

func indexTOML(text string) *tomlIndex {
	x := &tomlIndex{places: map[string]place{}, text: text, line: 1, tables: map[string]int{}}
	for x.at < len(x.text) {
		switch c := x.text[x.at]; c {
		case '\n', ' ', '\t', '\r':
			x.advance(1)
		case '#':
			x.skipLine()
		case '[':
			x.header()
		default:
			x.pair()
		}
	}
	return x
}

// advance moves on by n bytes and counts lines.
func (x *tomlIndex) advance(n int) {
	n = min(n, len(x.text)-x.at)
	passed := x.text[x.at : x.at+n]
	x.line += strings.Count(passed, "\n")
	if last := strings.LastIndexByte(passed, '\n'); last >= 0 {
		x.begin = x.at + last + 1
	}
	x.at += n
}

// here is the place of what comes next.
func (x *tomlIndex) here() place { return place{line: x.line, column: x.at - x.begin + 1} }

func (x *tomlIndex) skipLine() {
	for x.at < len(x.text) && x.text[x.at] != '\n' {
		x.at++
	}
}

// header reads [table] or [[table]].
func (x *tomlIndex) header() {
	at, array := x.here(), strings.HasPrefix(x.text[x.at:], "[[")
	x.advance(1)
	if array {
		x.advance(1)
	}
	parts := x.key("]")
	x.skipLine()
	path := x.resolve(parts[:len(parts)-1])
	path = joined(path, parts[len(parts)-1])
	if array {
		x.tables[path]++
	}
	x.table = x.indexed(path)
	x.note(x.table, at)
}

// pair reads key = value.
func (x *tomlIndex) pair() { x.entry(x.table, 0) }

// entry reads key = value in a table, or in braces so deep.
func (x *tomlIndex) entry(path string, depth int) {
	at := x.here()
	for _, part := range x.key("=") {
		path = joined(path, part)
		x.note(path, at)
	}
	if x.at < len(x.text) && x.text[x.at] == '=' {
		x.advance(1)
		x.value(path, depth)
	}
}

// note keeps the first place of a path: a dotted key names its table each time.
func (x *tomlIndex) note(path string, at place) {
	if _, known := x.places[path]; !known {
		x.places[path] = at
	}
}

// key reads a dotted key up to a character that ends it, or the line.
func (x *tomlIndex) key(end string) []string {
	parts, part := []string{}, strings.Builder{}
	for x.at < len(x.text) && x.text[x.at] != '\n' && !strings.HasPrefix(x.text[x.at:], end) {
		switch c := x.text[x.at]; c {
		case '"', '\'':
			start := x.at
			x.quoted()
			part.WriteString(strings.Trim(x.text[start:x.at], string(c)))
			continue
		case '.':
			parts = append(parts, part.String())
			part.Reset()
		case ' ', '\t', '\r':
		default:
			part.WriteByte(c)
		}
		x.advance(1)
	}
	parts = append(parts, part.String())
	x.deepest = max(x.deepest, len(parts))
	return parts
}

// value reads a value: to its end, or to that of the bracket that it opens.
func (x *tomlIndex) value(path string, depth int) {
	x.deepest = max(x.deepest, depth)
	if depth > logbook.MaxJSONDepth {
		x.at = len(x.text) // the document is refused; nobody asks for places
	}
	x.blanks(" \t\r")
	if x.at == len(x.text) {
		return
	}
	switch c := x.text[x.at]; c {
	case '"', '\'':
		x.quoted()
	case '[':
		x.bracket("]", func(i int) { x.element(fmt.Sprintf("%s[%d]", path, i), depth+1) })
	case '{':
		x.bracket("}", func(int) { x.entry(path, depth+1) })
	default:
		for x.at < len(x.text) && !strings.ContainsRune(",]}#\n", rune(x.text[x.at])) {
			x.at++
		}
	}
}

// bracket reads what stands up to the closing bracket, part by part.
func (x *tomlIndex) bracket(end string, part func(i int)) {
	x.advance(1)
	for i := 0; x.at < len(x.text); i++ {
		x.blanks(" \t\r\n,")
		if strings.HasPrefix(x.text[x.at:], end) {
			x.advance(1)
			return
		}
		before := x.at
		if part(i); x.at == before {
			x.advance(1) // not TOML; the library says so
		}
	}
}

func (x *tomlIndex) element(path string, depth int) {
	if strings.HasPrefix(x.text[x.at:], "{") {
		x.note(path, x.here())
	}
	x.value(path, depth)
}

// blanks skips these characters, and comments where lines may end.
func (x *tomlIndex) blanks(these string) {
	comments := strings.Contains(these, "\n")
	for x.at < len(x.text) {
		switch c := x.text[x.at]; {
		case comments && c == '#':
			x.skipLine()
		case strings.IndexByte(these, c) >= 0:
			x.advance(1)
		default:
			return
		}
	}
}

// quoted skips a string of any of TOML's four kinds.
func (x *tomlIndex) quoted() {
	quote := x.text[x.at : x.at+1]
	escapes := quote == `"`
	if long := strings.Repeat(quote, 3); strings.HasPrefix(x.text[x.at:], long) {
		quote = long
	}
	x.advance(len(quote))
	for x.at < len(x.text) {
		switch {
		case escapes && x.text[x.at] == '\\':
			x.advance(2)
		case strings.HasPrefix(x.text[x.at:], quote):
			x.advance(len(quote))
			return
		case len(quote) == 1 && x.text[x.at] == '\n':
			return // not TOML; the library says so
		default:
			x.advance(1)
		}
	}
}

// resolve makes a path of header parts: in an array of tables the last one is meant.
func (x *tomlIndex) resolve(parts []string) string {
	path := ""
	for _, part := range parts {
		path = x.indexed(joined(path, part))
	}
	return path
}

func (x *tomlIndex) indexed(path string) string {
	if count := x.tables[path]; count > 0 {
		return fmt.Sprintf("%s[%d]", path, count-1)
	}
	return path
}

// maxPath bounds the paths whose lines are known. Without it a document of
// long names, one within the other, would cost its size squared in memory.
const maxPath = 400

// joined is the path of a part; beyond maxPath it is that of the whole.
func joined(path, part string) string {
	if path == "" && len(part) <= maxPath {
		return part
	}
	if len(path)+len(part) > maxPath {
		return path
	}
	return path + "." + part
}
