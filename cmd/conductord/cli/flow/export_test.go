package flow

import (
	"bytes"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/logbook"
)

// Attempts is what flow show --attempts lists.
func Attempts(detail *logbook.FlowDetail) string {
	var out bytes.Buffer
	p := &cli.Program{Out: &out}
	if err := writeAttempts(p, detail); err != nil {
		return err.Error()
	}
	return out.String()
}
