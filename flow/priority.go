package flow

// MaxPriority limits priorities, above and below 0. A flow should need only a few priorities: the
// engine has a queue for each priority that occurs.
const MaxPriority = 1_000

// Priority orders the steps of a flow that could start at the same time: the highest number
// first, then in the order in which they became ready. Default: 0. It applies to execute and
// revert, and matters only while more steps could run than the limits allow. It does not make one
// step wait for another; links and values do.
func Priority(priority int) StepOption { return stepOption(func(s *Step) { s.priority = priority }) }

// Priority is the value of the option Priority.
func (s *Step) Priority() int { return s.priority }

func (s *Step) checkPriority() {
	if s.priority < -MaxPriority || s.priority > MaxPriority {
		s.fault("its priority must be between %d and %d, not %d", -MaxPriority, MaxPriority, s.priority)
	}
}
