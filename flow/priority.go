package flow

// MaxPriority bounds priorities, above and below 0. A flow should need only a few, and the
// engine has a queue for each that occurs.
const MaxPriority = 1_000

// Priority orders the steps of a flow that could start at the same time: the highest number
// first, then in the order in which they became ready. Default: 0. It holds for execute and
// revert alike, and matters only while fewer steps may run than could. It does not make one
// step wait for another; links and values do.
func Priority(priority int) StepOption { return stepOption(func(s *Step) { s.priority = priority }) }

// Priority is the number given by the option of that name.
func (s *Step) Priority() int { return s.priority }

func (s *Step) checkPriority() {
	if s.priority < -MaxPriority || s.priority > MaxPriority {
		s.fault("its priority must be between %d and %d, not %d", -MaxPriority, MaxPriority, s.priority)
	}
}
