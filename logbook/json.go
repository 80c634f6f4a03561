package logbook

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// EncodeJSON encodes a value, and leaves <, > and & as they are.
func EncodeJSON(value any) (json.RawMessage, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), nil
}

// DecodeJSON decodes a value, and keeps its numbers as they are written.
func DecodeJSON(text []byte) (value any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return nil, fmt.Errorf("not a JSON value: %w", err)
	}
	return value, nil
}
