package config

import (
	"fmt"
	"strings"
)

// lines knows on which line of a TOML document each key stands. The elements
// of an array of tables are numbered: cluster.members[0].raft.
type lines map[string]int

// of finds the line of a key, or else that of the table it stands in.
func (l lines) of(key string) int {
	for key != "" {
		if line, known := l[key]; known {
			return line
		}
		cut := strings.LastIndexAny(key, ".[")
		key = key[:max(cut, 0)]
	}
	return 0
}

// scanLines finds the keys of a document that has been parsed already, so it
// trusts the syntax. The TOML library keeps the places of keys to itself.
func scanLines(text string) lines {
	s := scanner{text: text, line: 1, found: make(lines), counts: make(map[string]int)}
	for s.skipBlank(); s.at < len(s.text); s.skipBlank() {
		if s.text[s.at] == '[' {
			s.header()
		} else {
			s.assignment()
		}
	}
	return s.found
}

// scanner walks over a document, statement by statement.
type scanner struct {
	text   string
	at     int
	line   int
	prefix string // the table that the present statement belongs to
	found  lines
	counts map[string]int // elements seen of each array of tables
}

// skipBlank passes white space, newlines and comments.
func (s *scanner) skipBlank() {
	for s.at < len(s.text) {
		switch s.text[s.at] {
		case ' ', '\t', '\r':
			s.at++
		case '\n':
			s.at++
			s.line++
		case '#':
			s.toLineEnd()
		default:
			return
		}
	}
}

func (s *scanner) toLineEnd() {
	for s.at < len(s.text) && s.text[s.at] != '\n' {
		s.at++
	}
}

// header reads [table] or [[array of tables]].
func (s *scanner) header() {
	line := s.line
	many := strings.HasPrefix(s.text[s.at:], "[[")
	for s.at < len(s.text) && s.text[s.at] == '[' {
		s.at++
	}
	key := s.key(']')
	if many {
		s.note(key, line) // the array is where its first element is
		element := fmt.Sprintf("%s[%d]", key, s.counts[key])
		s.counts[key]++
		key = element
	}
	s.note(key, line)
	s.prefix = key + "."
	s.toLineEnd()
}

// assignment reads key = value.
func (s *scanner) assignment() {
	line := s.line
	key := s.key('=')
	s.note(s.prefix+key, line)
	s.at++ // the '='
	s.value()
}

func (s *scanner) note(key string, line int) {
	if _, known := s.found[key]; !known {
		s.found[key] = line
	}
}

// key reads a dotted key up to the character that ends it, without its quotes
// and white space.
func (s *scanner) key(end byte) string {
	var key strings.Builder
	for s.at < len(s.text) && s.text[s.at] != end {
		switch c := s.text[s.at]; c {
		case '"', '\'':
			key.WriteString(s.quoted())
			continue
		case ' ', '\t':
		default:
			key.WriteByte(c)
		}
		s.at++
	}
	return key.String()
}

// value passes one value: to the end of the line, or further where brackets or
// strings are open at the end of it.
func (s *scanner) value() {
	depth := 0
	for s.at < len(s.text) {
		switch s.text[s.at] {
		case '"', '\'':
			s.quoted()
			continue
		case '[', '{':
			depth++
		case ']', '}':
			depth--
		case '#':
			s.toLineEnd()
			continue
		case '\n':
			if depth == 0 {
				return
			}
			s.line++
		}
		s.at++
	}
}

// quoted passes a string of any of the four kinds and returns what is between
// its quotes.
func (s *scanner) quoted() string {
	quote := s.text[s.at : s.at+1]
	escapes := quote == `"`
	if triple := strings.Repeat(quote, 3); strings.HasPrefix(s.text[s.at:], triple) {
		quote = triple
	}
	s.at += len(quote)
	start := s.at
	for s.at < len(s.text) && !strings.HasPrefix(s.text[s.at:], quote) {
		if s.text[s.at] == '\\' && escapes {
			s.at++
		}
		if s.at < len(s.text) && s.text[s.at] == '\n' {
			s.line++
		}
		s.at++
	}
	inside := s.text[start:min(s.at, len(s.text))]
	s.at = min(s.at+len(quote), len(s.text))
	// A triple-quoted string may end in up to five quotes, two of them its own.
	for len(quote) == 3 && s.at < len(s.text) && s.text[s.at] == quote[0] {
		s.at++
	}
	return inside
}
