package fsm_test

import (
	"cmp"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
)

// The model's ageing records for each board when which step length applied. A job's effective
// priority is its priority plus the steps since it first became claimable.

// ageingSpan is a time with one length of steps. It ends where the next one starts.
type ageingSpan struct {
	from time.Time
	step time.Duration // 0: no ageing
}

func (m *model) ageBoard(c *v1.AgeBoardCommand) error {
	head, err := m.head(c.Board)
	if step := c.Step.AsDuration(); err == nil && step != m.ageing(head.Name).Step {
		board := m.stored(head.Name)
		board.spans = append(board.spans, ageingSpan{m.now, step})
	}
	return err
}

// spans returns the spans of a board, which may not exist.
func (m *model) spans(name string) []ageingSpan {
	if board := m.boards[name]; board != nil {
		return board.spans
	}
	return nil
}

// raised counts the steps on a board until a time.
func (m *model) raised(name string, until time.Time) (steps int64) {
	spans := m.spans(name)
	for i, span := range spans {
		end := until
		if i+1 < len(spans) {
			end = spans[i+1].from
		}
		if span.step > 0 && end.After(span.from) {
			steps += int64(end.Sub(span.from) / span.step)
		}
	}
	return steps
}

// ageing is the ageing status of a board.
func (m *model) ageing(name string) jobs.BoardAgeing {
	spans := m.spans(name)
	if len(spans) == 0 {
		return jobs.BoardAgeing{}
	}
	last := spans[len(spans)-1]
	return jobs.BoardAgeing{Step: last.step, Since: last.from, Steps: m.raised(name, last.from)}
}

// age notes the jobs that the current command made claimable for the first time. A job that was
// claimed before its board had ageing has waited from the start.
func (m *model) age() {
	for _, j := range m.jobs {
		if j.State != jobs.StateClaimable || j.lag != nil || len(m.spans(j.Board)) == 0 {
			continue
		}
		if j.lag = new(int64); j.Claims == 0 {
			*j.lag = m.raised(j.Board, m.now)
		}
	}
}

// ageAnew restarts the waiting time of a reopened job.
func (m *model) ageAnew(j *modelJob) {
	if len(m.spans(j.Board)) > 0 {
		j.lag = new(int64)
		*j.lag = m.raised(j.Board, m.now)
	}
}

// counts is the effective priority of a job.
func (m *model) counts(j *modelJob) int64 {
	counts := int64(j.Priority) + m.raised(j.Board, m.now)
	if j.lag != nil {
		counts -= *j.lag
	}
	return counts
}

// inLine is the claim order.
func (m *model) inLine(a, b *modelJob) int {
	return cmp.Or(-cmp.Compare(m.counts(a), m.counts(b)), -cmp.Compare(a.Front, b.Front), cmp.Compare(a.Sequence, b.Sequence))
}
