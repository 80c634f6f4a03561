package flow

import (
	"bytes"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/logbook"
)

// Attempts is the output of flow show --attempts.
func Attempts(detail *logbook.FlowDetail) string {
	var out bytes.Buffer
	p := &cli.Program{Out: &out}
	if err := writeAttempts(p, detail); err != nil {
		return err.Error()
	}
	return out.String()
}
