// Package docs contains the pages of error codes and of the protocol, so that the binary can show
// them without other files.
package docs

import (
	_ "embed" // errors.md
	"strings"
)

//go:embed errors.md
var errorPage string

// ErrorSections are the sections of errors.md in its order: a code, and the text below its heading.
func ErrorSections() (sections [][2]string) {
	for _, section := range strings.Split(errorPage, "\n## ")[1:] {
		code, text, _ := strings.Cut(section, "\n")
		sections = append(sections, [2]string{code, strings.TrimSpace(text)})
	}
	return sections
}

// ErrorSection is the section of a code; empty: none.
func ErrorSection(code string) string {
	for _, section := range ErrorSections() {
		if section[0] == code {
			return section[1]
		}
	}
	return ""
}
