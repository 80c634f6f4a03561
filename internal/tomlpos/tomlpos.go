// Package tomlpos finds the positions of the keys in a TOML document, for messages about its
// meaning: the decoder gives positions of syntax errors only.
//
// It uses go-toml's own parser, whose API its authors call unstable, so only this package uses
// it. If a text is not TOML, positions are known up to the first error.
package tomlpos

import (
	"fmt"
	"sort"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// Position is a place in a text, with line and column counted from 1; zero: unknown.
type Position struct{ Line, Column int }

// Index holds the positions of a document's tables and keys by their paths. The
// elements of arrays are numbered: steps[0].retry.
type Index struct {
	Positions map[string]Position
	// Deepest is the deepest nesting of arrays and inline tables, or the largest
	// number of parts of a dotted key.
	Deepest int

	lines  []int          // offsets at which lines start
	tables map[string]int // number of elements of each array of tables so far
}

// Of returns the position of a path, or of the nearest known path that contains it.
func (x *Index) Of(path string) Position {
	for path != "" {
		if at, known := x.Positions[path]; known {
			return at
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return Position{}
}

// New reads a document.
func New(text string) *Index {
	x := &Index{Positions: map[string]Position{}, lines: []int{0}, tables: map[string]int{}}
	for i := range len(text) {
		if text[i] == '\n' {
			x.lines = append(x.lines, i+1)
		}
	}
	var parser unstable.Parser
	parser.Reset([]byte(text))
	table := ""
	for parser.NextExpression() {
		switch node := parser.Expression(); node.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = x.header(text, node)
		case unstable.KeyValue:
			x.entry(table, node, 0)
		}
	}
	if parser.Error() != nil {
		x.Deepest = max(x.Deepest, brackets(text))
	}
	return x
}

// header records [table] or [[table]], and returns its path.
func (x *Index) header(text string, node *unstable.Node) string {
	path, parts, begin := "", 0, 0
	for key := node.Key(); key.Next(); parts++ {
		if parts == 0 {
			begin = strings.LastIndexAny(text[:key.Node().Raw.Offset], "\n") + 1
			begin += strings.IndexByte(text[begin:], '[')
		}
		path = Join(x.latest(path), string(key.Node().Data))
	}
	x.Deepest = max(x.Deepest, parts)
	if node.Kind == unstable.ArrayTable {
		x.note(path, begin)
		x.tables[path]++
	}
	path = x.latest(path)
	x.note(path, begin)
	return path
}

// latest is the path of a table. For an array of tables, it is the path of the last element.
func (x *Index) latest(path string) string {
	if count := x.tables[path]; count > 0 {
		return fmt.Sprintf("%s[%d]", path, count-1)
	}
	return path
}

// entry records key = value, with its nesting depth in brackets.
func (x *Index) entry(table string, node *unstable.Node, depth int) {
	path, parts, begin := table, 0, 0
	for key := node.Key(); key.Next(); parts++ {
		if parts == 0 {
			begin = int(key.Node().Raw.Offset)
		}
		path = Join(path, string(key.Node().Data))
		x.note(path, begin)
	}
	x.Deepest = max(x.Deepest, parts)
	x.value(path, node.Value(), depth)
}

// value records the content of an array or of an inline table.
func (x *Index) value(path string, node *unstable.Node, depth int) {
	x.Deepest = max(x.Deepest, depth)
	switch node.Kind {
	case unstable.Array:
		i := 0
		for element := node.Children(); element.Next(); {
			if element.Node().Kind == unstable.Comment {
				continue
			}
			inner := fmt.Sprintf("%s[%d]", path, i)
			if element.Node().Kind == unstable.InlineTable {
				x.note(inner, int(element.Node().Raw.Offset))
			}
			x.value(inner, element.Node(), depth+1)
			i++
		}
	case unstable.InlineTable:
		for entry := node.Children(); entry.Next(); {
			if entry.Node().Kind == unstable.KeyValue {
				x.entry(path, entry.Node(), depth+1)
			}
		}
	}
}

// note records the first position of a path, because a dotted key repeats its table.
func (x *Index) note(path string, offset int) {
	if _, known := x.Positions[path]; known {
		return
	}
	line := sort.SearchInts(x.lines, offset+1)
	x.Positions[path] = Position{Line: line, Column: offset - x.lines[line-1] + 1}
}

// maxPath bounds the length of paths with known positions. Without it, a document of long
// nested names would need memory quadratic in its size.
const maxPath = 400

// Join returns the path of a part; beyond maxPath, the path of the whole.
func Join(path, part string) string {
	switch {
	case len(path)+len(part) > maxPath:
		return path
	case path == "":
		return part
	}
	return path + "." + part
}

// brackets is the deepest nesting of brackets in a text that is not TOML, including brackets
// in its strings.
func brackets(text string) int {
	depth, deepest := 0, 0
	for i := range len(text) {
		switch text[i] {
		case '[', '{':
			depth++
			deepest = max(deepest, depth)
		case ']', '}':
			depth = max(depth-1, 0)
		}
	}
	return deepest
}
