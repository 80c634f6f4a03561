package flow

import (
	"fmt"

	"github.com/conductord/conductord/logbook"
)

// Progress says how far this execution or revert has come: so much is done, of
// so much in all (0: not known). The details are for people: a JSON value or
// what marshals to one, at most MaxDetails; nil leaves those that were said
// before in this call.
//
// It never blocks, and may be called concurrently and as often as one likes:
// what counts is what was said last. It is recorded with the step at most once
// a second, and when the call ends. Nobody waits for the record, so that a
// crash can forget the last of it. Where the call is made by hand, as in a
// test, nobody hears it.
//
// logbook.ErrInvalid and logbook.ErrLimit say that nothing was taken: a
// negative number, more done than there is, or details that cannot be kept. A
// step can well ignore that.
func (c *Call) Progress(done, total int64, details any) error {
	encoded, err := encodeDetails(details)
	switch {
	case err != nil:
		return fmt.Errorf("cannot tell the progress of step %q: %w", c.Step, err)
	case done < 0 || total < 0 || total > 0 && done > total:
		return fmt.Errorf("cannot tell the progress of step %q: %w", c.Step,
			&logbook.InvalidError{Field: "progress", Reason: fmt.Sprintf("%d of %d", done, total)})
	}
	if c.reporter == nil {
		return nil
	}
	if err := c.reporter.Report(c, logbook.Progress{Done: done, Total: total, Details: encoded}); err != nil {
		return fmt.Errorf("cannot tell the progress of step %q: %w", c.Step, err)
	}
	return nil
}

// Reporter takes what calls say of their progress. Report is called by the
// goroutines of steps, and must not block; Details are nil to leave them, and it
// sets At. An error, logbook.ErrLimit, says that nothing was taken.
type Reporter interface {
	Report(call *Call, progress logbook.Progress) error
}

// ReportTo says who takes the call's progress: for whoever makes calls.
func (c *Call) ReportTo(reporter Reporter) { c.reporter = reporter }
