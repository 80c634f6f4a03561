package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/conductord/conductord/logbook"
)

// maxInput limits the input from a file or stdin: every cluster would refuse more.
const maxInput = 4 << 20

// OpenInput opens a file, or stdin for "-".
func (p *Program) OpenInput(path string) (io.ReadCloser, error) {
	if path == "-" {
		return io.NopCloser(p.In), nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, UsageError(err)
	}
	return file, nil
}

// ReadInput reads the text of a file, or of stdin for "-".
func (p *Program) ReadInput(path string) ([]byte, error) {
	source, err := p.OpenInput(path)
	if err != nil {
		return nil, err
	}
	defer source.Close()
	text, err := io.ReadAll(io.LimitReader(source, maxInput+1))
	if err != nil {
		return nil, UsageError(err)
	}
	if len(text) > maxInput {
		return nil, &logbook.LimitError{Field: path, Limit: maxInput, Size: int64(len(text)), Unit: "bytes or more"}
	}
	return text, nil
}

// ReadDetails reads --details: JSON, or @FILE with JSON.
func (p *Program) ReadDetails(given string) (json.RawMessage, error) {
	text := []byte(given)
	if path, isFile := strings.CutPrefix(given, "@"); isFile {
		read, err := p.ReadInput(path)
		if err != nil {
			return nil, fmt.Errorf("cannot read --details: %w", err)
		}
		text = read
	}
	if err := logbook.MaxLimits.CheckValue("--details", text); err != nil {
		return nil, err
	}
	return text, nil
}

// ParseSets reads --set k=v. A value that is valid JSON is parsed as JSON. Any other value is a
// string: --set n=3 is a number, --set city=Wien a string.
func ParseSets(sets []string) (logbook.Values, error) {
	values := make(logbook.Values, len(sets))
	for _, set := range sets {
		if !utf8.ValidString(set) {
			return nil, UsageError(fmt.Errorf("--set must be UTF-8, not %.128q", set))
		}
		name, text, found := strings.Cut(set, "=")
		if !found || name == "" {
			return nil, UsageError(fmt.Errorf("--set must be NAME=VALUE, not %.128q", set))
		}
		if _, twice := values[name]; twice {
			return nil, UsageError(fmt.Errorf("--set gives %q twice", name))
		}
		value := json.RawMessage(text)
		if !json.Valid(value) {
			quoted, err := json.Marshal(text)
			if err != nil {
				return nil, UsageError(err)
			}
			value = quoted
		}
		values[name] = value
	}
	if len(values) == 0 {
		return nil, nil
	}
	return values, logbook.MaxLimits.CheckValues("--set", values)
}
