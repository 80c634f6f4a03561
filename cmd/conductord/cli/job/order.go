package job

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/jobs"
)

// listOrder are the flags that say in which order jobs are listed.
type listOrder struct {
	by      string // posted or claim
	reverse bool
}

func (o *listOrder) flag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.reverse, "reverse", false, "list oldest first")
}

func (o *listOrder) read() (jobs.Order, error) {
	switch {
	case o.by != "posted" && o.by != "claim":
		return "", cli.UsageError(fmt.Errorf("--order must be posted or claim, not %.64q", o.by))
	case o.by == "claim" && o.reverse:
		return "", cli.UsageError(errors.New("--order claim cannot be reversed; omit --reverse"))
	case o.by == "claim":
		return jobs.OrderClaim, nil
	case o.reverse:
		return jobs.OrderPosted, nil
	}
	return jobs.OrderNewest, nil
}
