package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/conductord/conductord/internal/duration"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/wire"
	"github.com/conductord/conductord/valuekeys"
)

// NumberText is a number for a cell of a table.
func NumberText(n uint64) string { return strconv.FormatUint(n, 10) }

// StatesText lists the jobs by state, in the order of a job's life.
func StatesText(counts map[jobs.State]uint64) string {
	var said []string
	for _, state := range jobs.States {
		if n := counts[state]; n > 0 {
			said = append(said, fmt.Sprintf("%d %s", n, state))
		}
	}
	return strings.Join(said, ", ")
}

// SpanText shows a duration; empty for zero.
func SpanText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return DurationText(d)
}

// Listed is a heading with the first of many names.
func Listed(what string, names []string) string { return what + ": " + Few(names) }

// Few lists the first of many names.
func Few(names []string) string {
	const most = 20
	shown := make([]string, 0, most+1)
	for _, name := range names[:min(len(names), most)] {
		shown = append(shown, Clean(name))
	}
	if more := len(names) - most; more > 0 {
		shown = append(shown, fmt.Sprintf("and %d more", more))
	}
	if len(shown) == 0 {
		shown = []string{"none"}
	}
	return strings.Join(shown, ", ")
}

// Texts converts values of a string type to strings.
func Texts[T ~string](values []T) []string {
	names := make([]string, 0, len(values))
	for _, value := range values {
		names = append(names, string(value))
	}
	return names
}

// CountText shows a count; empty for zero.
func CountText(count int) string {
	if count == 0 {
		return ""
	}
	return strconv.Itoa(count)
}

// ValuesText shows values by name, one per line.
func ValuesText(values logbook.Values) string {
	lines := make([]string, 0, len(values))
	for name, value := range values {
		lines = append(lines, Clean(name)+" = "+string(value))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// Clean makes characters visible that a terminal would interpret or hide: control characters,
// marks of writing direction, other invisible characters, and bytes that are not UTF-8.
// Anybody can write names and messages. For an encrypted value, Clean names the key.
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

// CleanLines cleans a text of several lines, and keeps the line breaks.
func CleanLines(text string) []string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i, line := range lines {
		lines[i] = Clean(strings.ReplaceAll(line, "\t", "    "))
	}
	return lines
}

// Document makes the JSON of a result: an API message in the form of the API, other values as by
// encoding/json.
func Document(value any) ([]byte, error) {
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
		return fmt.Appendf(nil, `{"%s":[]%s`, first.Name(), rest), nil // an empty list must be present for scripts
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return bytes.TrimSpace(text.Bytes()), err
}

// Part is an API message within one of the command line's own documents.
type Part struct{ proto.Message }

func (m Part) MarshalJSON() ([]byte, error) { return wire.JSONCodec{}.Marshal(m.Message) }

// WriteJSON writes the single document of a command.
func (p *Program) WriteJSON(value any) error {
	var text bytes.Buffer
	line, err := Document(value)
	if err == nil {
		err = json.Indent(&text, line, "", "  ")
	}
	return p.writeDocument(text.Bytes(), err)
}

// WriteJSONLine writes one of several documents, on its own line.
func (p *Program) WriteJSONLine(value any) error {
	line, err := Document(value)
	return p.writeDocument(line, err)
}

func (p *Program) writeDocument(text []byte, err error) error {
	if err != nil {
		return fmt.Errorf("cannot write the result: %w", err)
	}
	_, err = p.Out.Write(append(cleanJSON(text), '\n'))
	return err
}

// Show writes a result: its document with -o json, otherwise a line.
func (p *Program) Show(value any, format string, args ...any) error {
	if p.JSON() {
		return p.WriteJSON(value)
	}
	return p.WriteLines([]string{fmt.Sprintf(format, args...)})
}

// cleanJSON escapes invisible characters, which the encoder leaves unchanged. In a JSON
// document they can occur only in strings, where the escape means the same.
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

// CleanLog returns a writer that cleans a log with lines of text or JSON. Loggers escape
// control characters, but not invalid UTF-8 and, in JSON, not marks of writing direction.
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

// Field is one line of a single object: a name and a text.
type Field [2]string

// WriteFields writes a single object: a name and a text on each line. Names without a text are
// omitted; further lines of a text are indented.
func (p *Program) WriteFields(fields []Field) error {
	width := 0
	for _, f := range fields {
		width = max(width, len(f[0]))
	}
	var lines []string
	for _, f := range fields {
		if f[1] == "" {
			continue
		}
		for i, line := range CleanLines(f[1]) {
			name := f[0] + ":"
			if i > 0 {
				name = ""
			}
			lines = append(lines, fmt.Sprintf("%-*s  %s", width+1, name, line))
		}
	}
	return p.WriteLines(lines)
}

// WriteLines cleans and writes lines.
func (p *Program) WriteLines(lines []string) error {
	var text strings.Builder
	for _, line := range lines {
		text.WriteString(strings.TrimRight(Clean(line), " ") + "\n")
	}
	_, err := p.Out.Write([]byte(text.String()))
	return err
}

// DurationText shows a duration with a useful precision.
func DurationText(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return duration.Text(d.Round(time.Second))
}

// OrDash replaces an empty text by a dash.
func OrDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// CountOrDash is CountText, with a dash for an empty text.
func CountOrDash(count int) string { return OrDash(CountText(count)) }

// PageWidth is the width of a page outside a terminal.
const PageWidth = 80

// Shorten fits a result or a message into a line.
func Shorten(text string) string { return ShortenTo(text, PageWidth) }

// ShortenTo shortens a text to a maximum number of characters.
func ShortenTo(text string, most int) string {
	text, most = Clean(text), max(2, most)
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}
