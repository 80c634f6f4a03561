package spec

import (
	"fmt"
	"strings"
)

// tomlIndex is where the keys of a TOML text stand. The TOML library tells
// the line of a syntax error only, and a fault of meaning is as hard to find.
// The index is for messages alone: it follows TOML's headers, keys, strings
// and brackets, and where a text is not TOML it may be wrong without harm.
type tomlIndex struct {
	lines   map[string]int // by paths such as steps[0].retry
	deepest int            // nesting of brackets, or parts of a dotted key

	text   string
	at     int
	line   int
	table  string         // the path of the table whose keys are being read
	tables map[string]int // how many tables each array of tables has so far
}

func indexTOML(text string) *tomlIndex {
	x := &tomlIndex{lines: map[string]int{}, text: text, line: 1, tables: map[string]int{}}
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
	x.line += strings.Count(x.text[x.at:x.at+n], "\n")
	x.at += n
}

func (x *tomlIndex) skipLine() {
	for x.at < len(x.text) && x.text[x.at] != '\n' {
		x.at++
	}
}

// header reads [table] or [[table]].
func (x *tomlIndex) header() {
	line, array := x.line, strings.HasPrefix(x.text[x.at:], "[[")
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
	x.note(x.table, line)
}

// pair reads key = value.
func (x *tomlIndex) pair() {
	line := x.line
	path := x.table
	for _, part := range x.key("=") {
		path = joined(path, part)
		x.note(path, line)
	}
	x.value()
}

// note keeps the first line of a path: a dotted key names its table each time.
func (x *tomlIndex) note(path string, line int) {
	if _, known := x.lines[path]; !known {
		x.lines[path] = line
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

// value skips a value: to the end of the line, or of the bracket that it opens.
func (x *tomlIndex) value() {
	depth := 0
	for x.at < len(x.text) {
		switch c := x.text[x.at]; c {
		case '"', '\'':
			x.quoted()
			continue
		case '#':
			x.skipLine()
			continue
		case '[', '{':
			depth++
			x.deepest = max(x.deepest, depth)
		case ']', '}':
			depth--
		case '\n':
			if depth <= 0 {
				return
			}
		}
		x.advance(1)
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
