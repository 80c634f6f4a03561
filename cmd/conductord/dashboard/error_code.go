package dashboard

import (
	"context"
	"fmt"
	"strings"

	"github.com/conductord/conductord/docs"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
)

// failure is the data of the page of an error.
type failure struct {
	Text string
	Code string // code that a page explains; empty: the dashboard's own error
}

func failureOf(err error) failure {
	f := failure{Text: cut(err.Error(), maxLog), Code: command.ErrorToProto(err).GetCode()}
	if f.Code == command.CodeInternal {
		f.Code = ""
	}
	return f
}

// codePart is a paragraph, the items of a list, or the commands of an example.
type codePart struct {
	Text, Commands string
	Items          []string
}

// loadCode shows the section of docs/errors.md about a code.
func loadCode(_ context.Context, v *visit) (view, error) {
	code := v.part("code")
	text := docs.ErrorSection(code)
	if text == "" {
		return view{}, fmt.Errorf("%w: there is no error code %.64q", jobs.ErrNotFound, code)
	}
	var parts []codePart
	for _, block := range strings.Split(text, "\n\n") {
		switch {
		case strings.HasPrefix(block, "```"):
			_, rest, _ := strings.Cut(block, "\n")
			parts = append(parts, codePart{Commands: strings.TrimSuffix(rest, "\n```")})
		case strings.HasPrefix(block, "- "):
			parts = append(parts, codePart{Items: strings.Split(block[len("- "):], "\n- ")})
		default:
			parts = append(parts, codePart{Text: block})
		}
	}
	return view{Title: "Error " + code, Command: "conductord error " + code, Data: parts}, nil
}
