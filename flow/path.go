package flow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/conductord/conductord/logbook"
)

// MaxPath limits the bytes of a path. A longer one leads deeper than values can be.
const MaxPath = 10_000

// CheckPath refuses a path that Inner cannot follow. A path is a list of fields and, in lists, of
// indexes from 0, with dots between them: items.0.price. A field with a dot in its name has no
// path.
func CheckPath(path string) error {
	switch {
	case path == "":
		return errors.New("empty")
	case len(path) > MaxPath:
		return fmt.Errorf("%d bytes, and the limit is %d", len(path), MaxPath)
	case strings.HasPrefix(path, ".") || strings.HasSuffix(path, ".") || strings.Contains(path, ".."):
		return fmt.Errorf("%.80q has a dot without a field or an index on both sides", path)
	}
	return nil
}

// CutPath splits a reference, such as order.id, into the name of a value and the path of a value
// inside it. Names can contain dots: the longest known name wins. If the whole reference is a known
// name, the path is empty. If no name is known, CutPath returns the reference unchanged.
func CutPath(reference string, known func(name string) bool) (name, path string) {
	for at := len(reference); at > 0; at = strings.LastIndexByte(reference[:at], '.') {
		if !known(reference[:at]) {
			continue
		}
		if at == len(reference) {
			break
		}
		if path := reference[at+1:]; CheckPath(path) == nil {
			return reference[:at], path
		}
	}
	return reference, ""
}

// Inner returns the value at a path inside a JSON value. Without a path, it is the value
// itself. The error has the part of the path that exists, and its type. name is the name of
// the value in the error.
func Inner(name string, value json.RawMessage, path string) (json.RawMessage, error) {
	found := name
	for part := range strings.SplitSeq(path, ".") {
		if path == "" {
			break
		}
		inner, ok := member(value, part)
		if !ok {
			return nil, fmt.Errorf("there is no %.120q: %.120q is %s", name+"."+path, found, typeOf(value))
		}
		value, found = inner, found+"."+part
	}
	return value, nil
}

// member is a field of an object, or an element of a list.
func member(value json.RawMessage, part string) (inner json.RawMessage, ok bool) {
	switch first(value) {
	case '{':
		var fields logbook.Values
		if json.Unmarshal(value, &fields) != nil {
			return nil, false
		}
		inner, ok = fields[part]
		return inner, ok
	case '[':
		index, isIndex := indexOf(part)
		var list []json.RawMessage
		if !isIndex || json.Unmarshal(value, &list) != nil || index >= len(list) {
			return nil, false
		}
		return list[index], true
	}
	return nil, false
}

// indexOf parses an index in its one form: digits, without a leading zero.
func indexOf(part string) (index int, ok bool) {
	if part == "" || len(part) > 1 && part[0] == '0' || len(part) > 9 {
		return 0, false
	}
	for i := range len(part) {
		if part[i] < '0' || part[i] > '9' {
			return 0, false
		}
		index = index*10 + int(part[i]-'0')
	}
	return index, true
}

// first is the byte that determines the type of a JSON value.
func first(value json.RawMessage) byte {
	if value = bytes.TrimLeft(value, " \t\r\n"); len(value) == 0 {
		return 0
	}
	return value[0]
}

func typeOf(value json.RawMessage) string {
	switch first(value) {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case 't', 'f':
		return "true or false"
	case 'n':
		return "null"
	case 0:
		return "absent"
	}
	return "a number"
}
