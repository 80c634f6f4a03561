package test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	// longestSentence is the maximum number of words of a sentence.
	longestSentence = 30
	// longestPage is the maximum number of lines of a page, except references.
	longestPage = 250
	readingFile = "testdata/reading.txt"
)

// references are pages that are complete rather than short.
var references = []string{"docs/protocol.md", "docs/configuration.md", "docs/errors.md", "docs/decisions.md", "CHANGELOG.md"}

// habits are phrases that make an English sentence read like a translation.
var habits = map[string]*regexp.Regexp{
	"a pronoun instead of a noun":         regexp.MustCompile(`(?i)\b(that of|those (that|of|which|who)|one that|the ones? (that|which|of)|what (it|they) (is|are|has|have|does|do))\b`),
	"a definition by \"is what\"":         regexp.MustCompile(`(?i)\b(is|are) what\b|\bwhat (is|was) (decided|done|there|left|meant|wanted|said)\b`),
	"a person's verb for a program":       regexp.MustCompile(`(?i)\b(is told|are told|tells|says so|say so|is asked|are asked|has a say|lets go of|looks after|gives back)\b`),
	"who or whoever for a program":        regexp.MustCompile(`(?i)\bwhoever\b|\b(node|leader|client|worker|conductor|owner|program|session|handler|caller)s? who\b`),
	"an everyday word for a term":         regexp.MustCompile(`(?i)\b(for ever|for good|at the same time|goes on|go on|tells apart|must be there|if not given)\b`),
	"an odd word":                         regexp.MustCompile(`(?i)\b(all the same|mostly|lately|likewise|stands? in|how it stands|its story|besides)\b|\ban? \w+ of (its|their|your) own\b`),
	"a rule with \"may\" that is \"can\"": regexp.MustCompile(`(?i)\bmay (fail|die|come|happen|take|be (lost|late|older|left|there))\b`),
}

// sentencesOf returns the sentences of a page: paragraphs, bullets and cells of tables,
// without code blocks, headings and links' addresses.
func sentencesOf(page string) []string {
	var sentences []string
	paragraph := ""
	end := func() {
		for _, sentence := range regexp.MustCompile(`[.!?:;]["')]*\s+`).Split(paragraph, -1) {
			if sentence = strings.TrimSpace(sentence); sentence != "" {
				sentences = append(sentences, sentence)
			}
		}
		paragraph = ""
	}
	code := false
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "```") {
			code = !code
			line = ""
		}
		switch {
		case code, line == "", strings.HasPrefix(line, "#"), strings.HasPrefix(line, "<!--"), strings.HasPrefix(line, "!["):
			end()
		case strings.HasPrefix(line, "|"):
			end()
			for cell := range strings.SplitSeq(strings.Trim(line, "|"), "|") {
				paragraph = cell
				end()
			}
		case regexp.MustCompile(`^([-*]|\d+\.) `).MatchString(line):
			end()
			paragraph = line
		default:
			paragraph += " " + line
		}
	}
	end()
	return sentences
}

var (
	linkAddress = regexp.MustCompile(`\]\([^)]*\)`)
	namedTests  = regexp.MustCompile("`[^`]*` `Test\\w+`")
	codeSpan    = regexp.MustCompile("`[^`]*`")
)

// faultsOf returns what makes a page hard to read, one line for each sentence and reason.
func faultsOf(page string) []string {
	var faults []string
	for _, sentence := range sentencesOf(page) {
		text := linkAddress.ReplaceAllString(namedTests.ReplaceAllString(sentence, ""), "]")
		text = codeSpan.ReplaceAllString(text, "X")
		if words := len(strings.Fields(text)); words > longestSentence {
			faults = append(faults, fmt.Sprintf("%d words: %s", words, sentence))
		}
		for _, habit := range slices.Sorted(maps.Keys(habits)) {
			if found := habits[habit].FindString(text); found != "" {
				faults = append(faults, fmt.Sprintf("%s, %q: %s", habit, found, sentence))
			}
		}
	}
	return faults
}

// TestReading checks that no page becomes harder to read. testdata/reading.txt has the number
// of faults that each page may still have: it only shrinks. -rewrite lowers it.
func TestReading(t *testing.T) {
	allowed := map[string]int{}
	text, err := os.ReadFile(readingFile)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		page, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		if allowed[page], err = strconv.Atoi(number); err != nil {
			t.Fatalf("%s: %q: %v", readingFile, line, err)
		}
	}
	var now strings.Builder
	pages := documents(t)
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		if strings.HasPrefix(name, "test/") || strings.HasPrefix(name, "bench/") {
			continue // ledgers and the notebook are for developers
		}
		faults := faultsOf(pages[name])
		if lines := strings.Count(pages[name], "\n"); lines > longestPage && !slices.Contains(references, name) {
			faults = append(faults, fmt.Sprintf("%d lines: make it two pages", lines))
		}
		if keeps := min(len(faults), allowed[name]); keeps > 0 {
			fmt.Fprintf(&now, "%s %d\n", name, keeps)
		}
		switch {
		case len(faults) > allowed[name] && !*rewrite:
			t.Errorf("%s has %d faults, and %d are allowed:\n%s", name, len(faults), allowed[name], strings.Join(faults, "\n"))
		case len(faults) < allowed[name] && !*rewrite:
			t.Errorf("%s has %d faults, and %d are allowed: run go test ./test -run TestReading -rewrite", name, len(faults), allowed[name])
		}
	}
	if *rewrite {
		if err := os.WriteFile(readingFile, []byte(now.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReadingCanFail checks that TestReading finds a long sentence and each habit.
func TestReadingCanFail(t *testing.T) {
	bad := map[string]int{
		"The node starts.":                                 0,
		"```\nwhoever mostly goes on for ever\n```":        0,
		strings.Repeat("word ", longestSentence) + "more.": 1,
		"It is replaced by that of the leader.":            1,
		"What is left is what was decided.":                1,
		"The caller is told the reason.":                   1,
		"| a | Whoever calls next |":                       1,
		"The flow goes on.":                                1,
		"A step of its own":                                1,
		"A node may fail.":                                 1,
	}
	for page, want := range bad {
		if faults := faultsOf(page); len(faults) != want {
			t.Errorf("%q has %d faults, %q, and %d are wanted", page, len(faults), faults, want)
		}
	}
}
