package flow

import (
	"fmt"

	"github.com/conductord/conductord/logbook"
)

// Progress reports the progress of this execution or revert: done of total, where total 0 means
// unknown. The details are for display: a JSON value or a value that marshals to one, at most
// MaxDetails long. Nil keeps the details of this call's last report.
//
// Progress never blocks, and may be called concurrently and at any rate: the last report
// wins. It is recorded with the step at most once a second, and when the call ends. Nothing
// waits for the record, so a crash can lose the last report. In a call that a test makes by
// hand, Progress does nothing.
//
// logbook.ErrInvalid and logbook.ErrLimit mean that the report was refused: a negative number,
// done above total, or details that cannot be kept. A step may ignore these errors.
func (c *Call) Progress(done, total int64, details any) error {
	encoded, err := encodeDetails(details)
	switch {
	case err != nil:
		return fmt.Errorf("cannot report the progress of step %q: %w", c.Step, err)
	case done < 0 || total < 0 || total > 0 && done > total:
		return fmt.Errorf("cannot report the progress of step %q: %w", c.Step,
			&logbook.InvalidError{Field: "progress", Reason: fmt.Sprintf("%d of %d", done, total)})
	}
	if c.reporter == nil {
		return nil
	}
	if err := c.reporter.Report(c, logbook.Progress{Done: done, Total: total, Details: encoded}); err != nil {
		return fmt.Errorf("cannot report the progress of step %q: %w", c.Step, err)
	}
	return nil
}

// Reporter receives the progress of calls. The goroutines of steps call Report, so it must not
// block. It sets At; nil Details keep the last ones. The error logbook.ErrLimit means that the
// report was refused.
type Reporter interface {
	Report(call *Call, progress logbook.Progress) error
}

// ReportTo sets the Reporter of a call. It is for code that makes calls.
func (c *Call) ReportTo(reporter Reporter) { c.reporter = reporter }
