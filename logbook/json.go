package logbook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// EncodeJSON encodes a value as JSON, without escapes for <, > and &.
func EncodeJSON(value any) (json.RawMessage, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), nil
}

// DecodeJSON decodes a JSON value. Its numbers become json.Number, which keeps their text.
func DecodeJSON(text []byte) (value any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return nil, fmt.Errorf("not a JSON value: %w", err)
	}
	return value, nil
}

// readAs reads a text in one pass, without recursion. It returns a level over MaxJSONDepth if the text
// is nested too deeply, and otherwise describes the first part that JSON parsers read differently. The
// text need not be valid JSON.
func readAs(text []byte) (level int, unclear string) {
	var room [16][]byte
	keys := room[:0]                // keys of the open objects, outermost first
	var first [MaxJSONDepth + 1]int // for each level: index of its first key in keys
	for i := 0; i < len(text) && unclear == ""; i++ {
		switch c := text[i]; {
		case c == '"':
			end, escapes := endOfText(text, i)
			literal := text[i:end]
			if escapes && halfPair(literal) {
				unclear = fmt.Sprintf("half of a surrogate pair in %.64s", literal)
			}
			for end < len(text) && text[end] <= ' ' {
				end++
			}
			if i = end - 1; end < len(text) && text[end] == ':' {
				keys = append(keys, literal)
			}
		case c == '{' || c == '[':
			if level++; level > MaxJSONDepth {
				return level, ""
			}
			first[level] = len(keys)
		case (c == '}' || c == ']') && level > 0:
			unclear = twice(keys[first[level]:])
			keys = keys[:first[level]]
			level--
		case c == '-' || '0' <= c && c <= '9':
			end := i + 1
			for end < len(text) && strings.IndexByte("+-.0123456789eE", text[end]) >= 0 {
				end++
			}
			if number := text[i:end]; len(number) > 300 || bytes.ContainsAny(number, "eE") {
				if float, _ := strconv.ParseFloat(string(number), 64); math.IsInf(float, 0) {
					unclear = fmt.Sprintf("the number %.64s, which a 64-bit float cannot hold", number)
				}
			}
			i = end - 1
		}
	}
	return level, unclear
}

// endOfText returns the index after the quoted text that starts at start.
func endOfText(text []byte, start int) (end int, escapes bool) {
	if quote := bytes.IndexByte(text[start+1:], '"'); quote >= 0 && bytes.IndexByte(text[start+1:start+1+quote], '\\') < 0 {
		return start + quote + 2, false
	}
	for end = start + 1; end < len(text) && text[end] != '"'; end++ {
		if text[end] == '\\' {
			end++
		}
	}
	return min(end+1, len(text)), true
}

// twice describes a duplicate key; empty: none. It sorts the keys in place.
func twice(keys [][]byte) string {
	for i, key := range keys {
		if bytes.IndexByte(key, '\\') >= 0 {
			var plain string
			_ = json.Unmarshal(key, &plain)
			keys[i] = []byte(`"` + plain + `"`)
		}
	}
	slices.SortFunc(keys, bytes.Compare)
	for i := 1; i < len(keys); i++ {
		if bytes.Equal(keys[i-1], keys[i]) {
			return fmt.Sprintf("the key %.64s twice in one object", keys[i])
		}
	}
	return ""
}

// halfPair reports whether a text escapes one half of a surrogate pair without the other.
func halfPair(text []byte) bool {
	half := func(i int, from byte) bool { // \uDX.. with X from here to F
		return i+6 <= len(text) && text[i] == '\\' && text[i+1] == 'u' && text[i+2]|0x20 == 'd' && text[i+3]|0x20 >= from
	}
	for i := 0; i < len(text); i++ {
		switch {
		case half(i, 'c') || half(i, '8') && !half(i+6, 'c'):
			return true
		case half(i, '8'):
			i += 11
		case text[i] == '\\':
			i++
		}
	}
	return false
}
