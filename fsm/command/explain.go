package command

import (
	"slices"

	"github.com/conductord/conductord/jobs"
)

func knownCause(c jobs.Cause) bool { return slices.Contains(jobs.Causes, c) }

func knownRemedyVerb(v jobs.RemedyVerb) bool { return slices.Contains(jobs.RemedyVerbs, v) }
