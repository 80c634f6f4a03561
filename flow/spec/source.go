package spec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/conductord/conductord/logbook"
)

// decode reads the bytes of a document into plain values (map[string]any,
// []any, string, bool, int64, float64, json.Number, time.Time), and notes the
// line of each key.
func decode(data []byte, f *faults) (map[string]any, error) {
	if len(data) > logbook.MaxLimits.Value {
		return nil, &logbook.LimitError{
			Field: f.source, Limit: int64(logbook.MaxLimits.Value), Size: int64(len(data)), Unit: "bytes",
		}
	}
	var values map[string]any
	if isJSON(data, f.source) {
		values = decodeJSON(data, f)
	} else {
		values = decodeTOML(data, f)
	}
	return values, f.err()
}

// isJSON goes by the extension, and without one by the first character: a
// TOML document cannot begin with a brace.
func isJSON(data []byte, name string) bool {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".json":
		return true
	case ".toml":
		return false
	}
	return bytes.HasPrefix(bytes.TrimSpace(data), []byte("{"))
}

func decodeTOML(data []byte, f *faults) map[string]any {
	index := indexTOML(string(data))
	f.lines = index.lines
	if index.deepest > logbook.MaxJSONDepth {
		f.found = append(f.found, Fault{Reason: fmt.Sprintf("nested too deeply; the limit is %d levels", logbook.MaxJSONDepth)})
		return nil
	}
	var values map[string]any
	if _, err := toml.Decode(string(data), &values); err != nil {
		fault := Fault{Reason: err.Error()}
		var parse toml.ParseError
		if errors.As(err, &parse) {
			fault = Fault{Line: parse.Position.Line, Reason: parse.Message}
			if parse.Message == "" {
				fault.Reason = strings.TrimPrefix(err.Error(), "toml: ")
			}
		}
		f.found = append(f.found, fault)
		return nil
	}
	return plain(values).(map[string]any)
}

// plain makes the arrays of tables into lists like any other.
func plain(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			value[key] = plain(inner)
		}
	case []any:
		for i, inner := range value {
			value[i] = plain(inner)
		}
	case []map[string]any:
		list := make([]any, len(value))
		for i, inner := range value {
			list[i] = plain(inner)
		}
		return list
	}
	return value
}

func decodeJSON(data []byte, f *faults) map[string]any {
	walk := &jsonWalk{data: data, faults: f, decoder: json.NewDecoder(bytes.NewReader(data)), line: 1}
	f.lines = map[string]int{}
	if err := logbook.MaxLimits.CheckValue("document", data); err != nil {
		f.found = append(f.found, Fault{Line: walk.faultLine(), Reason: reasonOf(err)})
		return nil
	}
	walk.decoder.UseNumber()
	values, ok := walk.value("").(map[string]any)
	if !ok {
		f.found = append(f.found, Fault{Line: 1, Reason: "a document is an object: {…}"})
	}
	return values
}

// jsonWalk reads valid JSON token by token, because encoding/json hides two
// things: on which line a key stands, and that it stands there twice.
type jsonWalk struct {
	data    []byte
	faults  *faults
	decoder *json.Decoder

	line   int // of offset
	offset int
}

// value reads one value; the nesting has been checked.
func (w *jsonWalk) value(path string) any {
	switch token := w.next(); token {
	case json.Delim('{'):
		return w.object(path)
	case json.Delim('['):
		list := []any{}
		for i := 0; w.decoder.More(); i++ {
			list = append(list, w.value(fmt.Sprintf("%s[%d]", path, i)))
		}
		w.next()
		return list
	default:
		return token
	}
}

func (w *jsonWalk) object(path string) map[string]any {
	object := map[string]any{}
	for w.decoder.More() {
		key, _ := w.next().(string)
		inner := joined(path, key)
		line := w.at(int(w.decoder.InputOffset()))
		if inner != path {
			w.faults.lines[inner] = line
		}
		if _, twice := object[key]; twice {
			w.faults.add(inner, shortened(key), "stands twice in the same object")
		}
		object[key] = w.value(inner)
	}
	w.next()
	return object
}

func (w *jsonWalk) next() json.Token {
	token, _ := w.decoder.Token() // the text has been found valid
	return token
}

// at counts lines; offsets only grow.
func (w *jsonWalk) at(offset int) int {
	w.line += bytes.Count(w.data[w.offset:offset], []byte("\n"))
	w.offset = offset
	return w.line
}

// faultLine is the line on which the data stops being JSON; 0 if it does not.
func (w *jsonWalk) faultLine() int {
	var raw json.RawMessage
	var syntax *json.SyntaxError
	if err := json.Unmarshal(w.data, &raw); errors.As(err, &syntax) {
		return w.at(min(int(syntax.Offset), len(w.data)))
	}
	return 0
}

// reasonOf leaves the field out of an error whose place is told otherwise.
func reasonOf(err error) string {
	var invalid *logbook.InvalidError
	if errors.As(err, &invalid) {
		return invalid.Reason
	}
	var limit *logbook.LimitError
	if errors.As(err, &limit) {
		return fmt.Sprintf("too large: %d %s, and the limit is %d", limit.Size, limit.Unit, limit.Limit)
	}
	return err.Error()
}
