package spec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"

	"github.com/conductord/conductord/internal/tomlpos"
	"github.com/conductord/conductord/logbook"
)

// decode reads the bytes of a document into plain values (map[string]any, []any, string, bool,
// int64, float64, json.Number, time.Time), and notes the position of each key.
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

// isJSON decides by the extension, and without an extension by the first character: a
// TOML document cannot start with a brace.
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
	f.index = *tomlpos.New(string(data))
	if f.index.Deepest > logbook.MaxJSONDepth {
		f.found = append(f.found, Fault{Reason: fmt.Sprintf("nested too deeply; the limit is %d levels", logbook.MaxJSONDepth)})
		return nil
	}
	var values map[string]any
	if _, err := toml.Decode(string(data), &values); err != nil {
		fault := Fault{Reason: err.Error()}
		var parse toml.ParseError
		if errors.As(err, &parse) {
			fault = Fault{Line: parse.Position.Line, Column: parse.Position.Col, Reason: parse.Message}
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
	f.index.Positions = map[string]tomlpos.Position{}
	unfit := logbook.MaxLimits.CheckValue("document", data)
	if errors.Is(unfit, logbook.ErrLimit) || unfit != nil && !(json.Valid(data) && utf8.Valid(data)) {
		at := walk.faultPlace()
		f.found = append(f.found, Fault{Line: at.Line, Column: at.Column, Reason: reasonOf(unfit)})
		return nil
	}
	walk.decoder.UseNumber()
	values, ok := walk.value("").(map[string]any)
	if unfit != nil && len(f.found) == 0 { // the walk names the positions of duplicate keys
		f.found = append(f.found, Fault{Reason: reasonOf(unfit)})
	}
	if !ok {
		f.found = append(f.found, Fault{Line: 1, Reason: "a document is an object: {…}"})
	}
	return values
}

// jsonWalk reads valid JSON token by token, because encoding/json hides two things: the line of a
// key, and duplicate keys.
type jsonWalk struct {
	data    []byte
	faults  *faults
	decoder *json.Decoder

	line   int // of offset
	begin  int // of the line
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
			inner := fmt.Sprintf("%s[%d]", path, i)
			if at := w.upcoming(); w.data[w.offset] == '{' {
				w.faults.index.Positions[inner] = at
			}
			list = append(list, w.value(inner))
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
		at := w.upcoming()
		key, _ := w.next().(string)
		inner := tomlpos.Join(path, key)
		if inner != path {
			w.faults.index.Positions[inner] = at
		}
		if _, twice := object[key]; twice {
			w.faults.add(inner, shortened(key), "occurs twice in the same object")
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

// upcoming is the position of the next key or element.
func (w *jsonWalk) upcoming() tomlpos.Position {
	offset := int(w.decoder.InputOffset())
	for offset < len(w.data) && strings.IndexByte(" \t\r\n,", w.data[offset]) >= 0 {
		offset++
	}
	return w.at(offset)
}

// at counts lines; offsets only grow.
func (w *jsonWalk) at(offset int) tomlpos.Position {
	passed := w.data[w.offset:offset]
	w.line += bytes.Count(passed, []byte("\n"))
	if last := bytes.LastIndexByte(passed, '\n'); last >= 0 {
		w.begin = w.offset + last + 1
	}
	w.offset = offset
	return tomlpos.Position{Line: w.line, Column: offset - w.begin + 1}
}

// faultPlace is the position at which the data stops being JSON; none if it does not.
func (w *jsonWalk) faultPlace() tomlpos.Position {
	var raw json.RawMessage
	var syntax *json.SyntaxError
	if err := json.Unmarshal(w.data, &raw); errors.As(err, &syntax) {
		// The offset points after the unexpected byte.
		return w.at(max(0, min(int(syntax.Offset), len(w.data))-1))
	}
	return tomlpos.Position{}
}

// reasonOf removes the field from an error; the position of the error names the field already.
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
