package test

import (
	"bufio"
	"context"
	"encoding/xml"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	picturePath = "docs/demo.svg"
	// The size of a line of the picture, and of a character in it, in pixels.
	lineHeight, charWidth = 18, 7.9
	fontSize              = 13
)

// TestDemoPicture checks that the README's picture shows a run of the demo in which nothing was
// lost, and that the demo can still print each line of the picture. With -rewrite, it runs the demo
// and draws its output, each line at its time.
func TestDemoPicture(t *testing.T) {
	if *rewrite {
		recordDemo(t)
	}
	data, err := os.ReadFile(filepath.Join("..", picturePath))
	if err != nil {
		t.Fatal(err)
	}
	var picture struct {
		Lines []string `xml:"text"`
	}
	if err := xml.Unmarshal(data, &picture); err != nil {
		t.Fatal(err)
	}
	shown := strings.Join(picture.Lines, "\n")
	for _, want := range []string{`\$ go run ./cmd/conductord demo`, `killed node\d, the leader`, `node\d is back`, `posted +60`, `succeeded +54`, `reverted +6`, `recorded results changed +0`, `lost +0`} {
		if !regexp.MustCompile(want).MatchString(shown) {
			t.Errorf("the picture does not show %q:\n%s", want, shown)
		}
	}
	messages := demoMessages(t)
	for _, line := range picture.Lines[1:] { // the first line is the command
		text := strings.TrimPrefix(line, "conductord: ")
		if !slices.ContainsFunc(messages, func(m *regexp.Regexp) bool { return m.MatchString(text) }) {
			t.Errorf("the demo does not print %q: run go test ./test -run TestDemoPicture -rewrite", line)
		}
	}
}

// demoMessages returns the messages of the demo's source code as patterns.
func demoMessages(t *testing.T) []*regexp.Regexp {
	t.Helper()
	files, err := filepath.Glob("../cmd/conductord/demo/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var (
		messages []*regexp.Regexp
		format   = regexp.MustCompile(`(?:Note|Sprintf)\("([^"]*)"`)
		verb     = regexp.MustCompile(`%\d*[dsv]`)
	)
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range format.FindAllStringSubmatch(string(source), -1) {
			if strings.TrimSpace(verb.ReplaceAllString(found[1], "")) == "" {
				continue // such a format matches every line
			}
			messages = append(messages, regexp.MustCompile("^"+verb.ReplaceAllString(regexp.QuoteMeta(found[1]), ".+")+"$"))
		}
	}
	return messages
}

// recordDemo runs the demo, and draws it.
func recordDemo(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), demoTime)
	defer cancel()
	demo := exec.CommandContext(ctx, binary, "demo")
	out, err := demo.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	demo.Stderr = demo.Stdout
	began := time.Now()
	if err := demo.Start(); err != nil {
		t.Fatal(err)
	}
	type line struct {
		text string
		at   time.Duration
	}
	lines := []line{{"$ go run ./cmd/conductord demo", 0}}
	widest := 0
	for scanner := bufio.NewScanner(out); scanner.Scan(); {
		text := regexp.MustCompile(`/\S*conductord-demo-\d+`).ReplaceAllString(scanner.Text(), "/tmp/conductord-demo")
		lines = append(lines, line{text, time.Since(began)})
		widest = max(widest, len([]rune(text)))
	}
	if err := demo.Wait(); err != nil {
		t.Fatal(err)
	}
	var svg strings.Builder
	width, height := int(float64(widest+4)*charWidth), (len(lines)+2)*lineHeight
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" role="img" aria-label="conductord demo as it runs">`+"\n", width, height)
	fmt.Fprintf(&svg, "<style>text{font:%dpx ui-monospace,Menlo,Consolas,monospace;fill:#d8dee9;white-space:pre;animation:appear 1ms both}@keyframes appear{from{opacity:0}}</style>\n", fontSize)
	fmt.Fprintf(&svg, `<rect width="100%%" height="100%%" rx="6" fill="#1e2430"/>`+"\n")
	for i, l := range lines {
		fmt.Fprintf(&svg, `<text x="%d" y="%d" xml:space="preserve" style="animation-delay:%.1fs">%s</text>`+"\n", lineHeight, (i+2)*lineHeight, l.at.Seconds(), html.EscapeString(l.text))
	}
	svg.WriteString("</svg>\n")
	if err := os.WriteFile(filepath.Join("..", picturePath), []byte(svg.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
