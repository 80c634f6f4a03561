package flow

// MaxPriority bounds priorities, above and below 0: an order of a few ranks is
// meant, and each that occurs has a queue of its own in the engine.
const MaxPriority = 1_000

// Priority says which of the steps of a flow that could start at the same time
// are started first: those of the highest number; of one number, those that
// could start first. 0 if not given. It holds for execute and revert alike,
// and matters only where fewer may run at once than could: it is no order
// between steps, which links and values are for.
func Priority(priority int) Option { return func(s *Step) { s.priority = priority } }

// Priority is the number given by the option of that name.
func (s *Step) Priority() int { return s.priority }

func (s *Step) checkPriority() {
	if s.priority < -MaxPriority || s.priority > MaxPriority {
		s.fault("its priority must be between %d and %d, not %d", -MaxPriority, MaxPriority, s.priority)
	}
}
