package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/conductord/conductord/raftboard/wire"
	"github.com/conductord/conductord/valuekeys"
)

// Clean shows what a terminal would obey instead of showing: control
// characters, marks of writing direction and other invisible ones, and bytes
// that are not UTF-8. Names and messages come from anybody. For a value that
// is encrypted it names the key.
func Clean(text string) string {
	var shown strings.Builder
	text = valuekeys.Shown(text)
	for i, r := range text {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], "\uFFFD"):
			fmt.Fprintf(&shown, `\x%02x`, text[i])
		case hidden(r):
			shown.WriteString(escapeRune(r))
		default:
			shown.WriteRune(r)
		}
	}
	return shown.String()
}

func hidden(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)
}

func escapeRune(r rune) string {
	switch {
	case r == '\n':
		return `\n`
	case r == '\t':
		return `\t`
	case r > 0xFFFF:
		return fmt.Sprintf(`\U%08x`, r)
	}
	return fmt.Sprintf(`\u%04x`, r)
}

// cleanLines does the same to text of several lines, which stay lines.
func cleanLines(text string) []string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i, line := range lines {
		lines[i] = Clean(strings.ReplaceAll(line, "\t", "    "))
	}
	return lines
}

// document makes the JSON of a result: of an API message as the API writes it,
// of anything else as Go does.
func document(value any) ([]byte, error) {
	if message, ok := value.(proto.Message); ok {
		text, err := wire.JSONCodec{}.Marshal(message)
		fields := message.ProtoReflect()
		first := fields.Descriptor().Fields().ByNumber(1)
		if err != nil || first == nil || !first.IsList() || fields.Has(first) {
			return text, err
		}
		rest := strings.TrimPrefix(string(text), "{")
		if rest != "}" {
			rest = "," + rest
		}
		return fmt.Appendf(nil, `{"%s":[]%s`, first.Name(), rest), nil // scripts go through a list without items
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return bytes.TrimSpace(text.Bytes()), err
}

// part is an API message within a document of the command line's own.
type part struct{ proto.Message }

func (m part) MarshalJSON() ([]byte, error) { return wire.JSONCodec{}.Marshal(m.Message) }

// WriteJSON writes the one document of a command.
func (p *Program) WriteJSON(value any) error {
	var text bytes.Buffer
	line, err := document(value)
	if err == nil {
		err = json.Indent(&text, line, "", "  ")
	}
	return p.writeDocument(text.Bytes(), err)
}

// writeJSONLine writes one document of many, on a line of its own.
func (p *Program) writeJSONLine(value any) error {
	line, err := document(value)
	return p.writeDocument(line, err)
}

func (p *Program) writeDocument(text []byte, err error) error {
	if err != nil {
		return fmt.Errorf("cannot write the result: %w", err)
	}
	_, err = p.Out.Write(append(cleanJSON(text), '\n'))
	return err
}

// Show writes a result: its document with -o json, and otherwise a line.
func (p *Program) Show(value any, format string, args ...any) error {
	if p.JSON() {
		return p.WriteJSON(value)
	}
	return p.WriteLines([]string{fmt.Sprintf(format, args...)})
}

// cleanJSON escapes invisible characters, which the encoder leaves alone. In a
// JSON document they can only stand in strings, and the escape means the same.
func cleanJSON(document []byte) []byte {
	if !bytes.ContainsFunc(document, func(r rune) bool { return r != '\n' && hidden(r) }) {
		return document
	}
	var shown bytes.Buffer
	for _, r := range string(document) {
		switch {
		case r == '\n' || !hidden(r):
			shown.WriteRune(r)
		case r > 0xFFFF:
			const surrogates, half = 0x10000, 10
			r -= surrogates
			fmt.Fprintf(&shown, `\u%04x\u%04x`, 0xD800+(r>>half), 0xDC00+(r&(1<<half-1)))
		default:
			fmt.Fprintf(&shown, `\u%04x`, r)
		}
	}
	return shown.Bytes()
}

// CleanLog returns a writer for a log, of lines of text or of JSON. Loggers escape control
// characters. They pass on bytes that are not UTF-8, and in JSON marks of writing direction.
func CleanLog(to io.Writer, asJSON bool) io.Writer { return &cleanLog{to: to, asJSON: asJSON} }

type cleanLog struct {
	to     io.Writer
	asJSON bool
}

// Write implements io.Writer. It gets whole records.
func (l *cleanLog) Write(record []byte) (int, error) {
	shown := record
	if l.asJSON {
		shown = cleanJSON(record)
	} else if !utf8.Valid(record) {
		lines := strings.Split(string(record), "\n")
		for i, line := range lines {
			lines[i] = Clean(line)
		}
		shown = []byte(strings.Join(lines, "\n"))
	}
	if _, err := l.to.Write(shown); err != nil {
		return 0, err
	}
	return len(record), nil
}

// field is one line of a thing that is shown alone.
type field struct{ name, text string }

// writeFields writes a single thing: a name and a text on each line. Those
// without text are left out; further lines of a text are indented.
func (p *Program) writeFields(fields []field) error {
	width := 0
	for _, f := range fields {
		width = max(width, len(f.name))
	}
	var lines []string
	for _, f := range fields {
		if f.text == "" {
			continue
		}
		for i, line := range cleanLines(f.text) {
			name := f.name + ":"
			if i > 0 {
				name = ""
			}
			lines = append(lines, fmt.Sprintf("%-*s  %s", width+1, name, line))
		}
	}
	return p.WriteLines(lines)
}

// WriteLines writes lines, each of them clean.
func (p *Program) WriteLines(lines []string) error {
	var text strings.Builder
	for _, line := range lines {
		text.WriteString(strings.TrimRight(Clean(line), " ") + "\n")
	}
	_, err := p.Out.Write([]byte(text.String()))
	return err
}

// durationText shows a duration with as many digits as a person reads.
func durationText(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// OrDash fills a cell that would be empty.
func OrDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
