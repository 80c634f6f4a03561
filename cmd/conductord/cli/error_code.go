package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/docs"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/internal/meant"
	"github.com/conductord/conductord/jobs"
)

// markdownLink is a link in docs/errors.md. A terminal shows only its text.
var markdownLink = regexp.MustCompile(`\[([^]]+)\]\([^)]+\)`)

func (p *Program) errorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "error [CODE]",
		Short: "Explain an error code: effect, causes and remedies",
		Long: "Explain an error code, without a server. Without CODE, list all codes. Find the code in the field \"code\" of -o\n" +
			"json. On a terminal, an error message names its code if it contains no other hint.",
		Args:      cobra.MaximumNArgs(1),
		ValidArgs: errorCodes(),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return p.explainCode(args[0])
			}
			var rows [][]string
			for _, section := range docs.ErrorSections() {
				meaning, _, _ := strings.Cut(section[1], ". ")
				meaning = markdownLink.ReplaceAllString(strings.Split(meaning, "\n")[0], "$1")
				rows = append(rows, []string{section[0], strings.TrimSuffix(meaning, ".")})
			}
			if p.JSON() {
				return p.WriteJSON(errorCodes())
			}
			return p.WriteTable([]string{"CODE", "MEANING"}, rows)
		},
	}
}

func (p *Program) explainCode(code string) error {
	text := docs.ErrorSection(code)
	if text == "" {
		return UsageError(fmt.Errorf("there is no code %.64q%s; `conductord error` lists the codes", code, meant.Hint(code, errorCodes())))
	}
	var lines []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "```") {
			lines = append(lines, markdownLink.ReplaceAllString(strings.TrimSuffix(line, "\n"), "$1"))
		}
	}
	if p.JSON() {
		return p.WriteJSON(map[string]string{"code": code, "text": strings.Join(lines, "\n")})
	}
	return p.WriteLines(append([]string{code, ""}, lines...))
}

func errorCodes() (codes []string) {
	for _, section := range docs.ErrorSections() {
		codes = append(codes, section[0])
	}
	return codes
}

// codeHint names the command that explains the code of an error; empty: the code adds nothing.
func codeHint(err error) string {
	code := errorMessage(err).GetCode()
	if code == command.CodeInternal || ExitCode(err) == ExitUsage && (errors.Is(err, errUsage) || !errors.Is(err, jobs.ErrInvalid)) {
		return ""
	}
	return fmt.Sprintf("`conductord error %s` explains this error", code)
}
