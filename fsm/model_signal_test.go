package fsm_test

import (
	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
)

// hears applies a signal, or a decision about an approval.
func (m *model) hears(c *v1.Command) (string, error) {
	switch kind := c.Kind.(type) {
	case *v1.Command_Decide:
		return "", m.decide(kind.Decide)
	case *v1.Command_Override:
		return "", m.decide(kind.Override)
	}
	return m.signal(c.GetSignal())
}

// signal gives a signal to a job. In the walks no step waits, so the job keeps it.
func (m *model) signal(c *v1.SignalCommand) (string, error) {
	j := m.jobs[c.Job]
	switch {
	case j == nil:
		return "", jobs.ErrNotFound
	case j.signals[c.Id]:
		return string(jobs.SignalRepeated), nil
	case j.State.Finished():
		return "", jobs.ErrJobOver
	}
	if j.signals == nil {
		j.signals = map[string]bool{}
	}
	j.signals[c.Id] = true
	j.UnreadSignals++
	return string(jobs.SignalKept), nil
}

// decide refuses every decision: in the walks no step waits for an approval.
func (m *model) decide(c *v1.DecideCommand) error {
	if m.jobs[c.Job] == nil {
		return jobs.ErrNotFound
	}
	return jobs.ErrConflict
}
