package memory

import (
	"slices"

	"github.com/conductord/conductord/logbook"
)

// cloneHead copies a book without its flows.
func cloneHead(b *logbook.Book) logbook.Book {
	copied := *b
	copied.Meta = cloneValues(b.Meta)
	copied.Flows = nil
	return copied
}

// cloneFlow copies a flow without its atoms.
func cloneFlow(f *logbook.FlowDetail) logbook.FlowDetail {
	copied := *f
	copied.Factory.Args = slices.Clone(f.Factory.Args)
	copied.Store = cloneValues(f.Store)
	copied.Meta = cloneValues(f.Meta)
	copied.Targets = slices.Clone(f.Targets)
	copied.Cause = cloneFailure(f.Cause)
	copied.Definition = cloneDefinition(f.Definition)
	copied.Atoms = nil
	return copied
}

func cloneAtom(a *logbook.AtomDetail) logbook.AtomDetail {
	copied := *a
	copied.Progress = cloneProgress(a.Progress)
	copied.Attempts = cloneAttempts(a.Attempts)
	return copied
}

func cloneChange(c *logbook.AtomChange) logbook.AtomChange {
	copied := *c
	copied.Progress = cloneProgress(c.Progress)
	copied.Attempts = cloneAttempts(c.Attempts)
	return copied
}

func cloneDefinition(d *logbook.Definition) *logbook.Definition {
	if d == nil {
		return nil
	}
	return &logbook.Definition{Hash: d.Hash, Packed: slices.Clone(d.Packed)}
}

func cloneProgress(p *logbook.Progress) *logbook.Progress {
	if p == nil {
		return nil
	}
	copied := *p
	copied.Details = slices.Clone(p.Details)
	return &copied
}

func cloneAttempts(attempts []logbook.Attempt) []logbook.Attempt {
	copied := slices.Clone(attempts)
	for i := range copied {
		copied[i].Result = slices.Clone(copied[i].Result)
		copied[i].Failure = cloneFailure(copied[i].Failure)
		copied[i].Failures = cloneFailures(copied[i].Failures)
	}
	return copied
}

func cloneFailure(f *logbook.Failure) *logbook.Failure {
	if f == nil {
		return nil
	}
	copied := *f
	copied.Causes = cloneFailures(f.Causes)
	return &copied
}

func cloneFailures(failures []logbook.Failure) []logbook.Failure {
	copied := slices.Clone(failures)
	for i := range copied {
		copied[i] = *cloneFailure(&copied[i])
	}
	return copied
}

func cloneValues(values logbook.Values) logbook.Values {
	if values == nil {
		return nil
	}
	copied := make(logbook.Values, len(values))
	for name, value := range values {
		copied[name] = slices.Clone(value)
	}
	return copied
}
