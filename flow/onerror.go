package flow

import "slices"

// OnError adds steps that run when the flow fails, before any step of the flow is undone, and returns the flow. They
// run one after another, in the order given, once for each failure:
//
//   - The flow fails if a step in it fails permanently, and neither a retry in the flow nor IgnoreFailure continues it.
//     A started flow that has not ended also fails when the Timeout of the flow or the deadline of the job passes. A
//     cancel is not a failure.
//   - The steps wait for the running steps of the flow. They run before the flow reverts, and before it is held.
//   - If several nested flows fail, the steps of inner flows run first.
//   - They run after the last round of the flow's own retry, and not between rounds.
//
// The failure of such a step is ignored, as with IgnoreFailure, and the step is not undone. The cause is in Call.Cause.
// Values from the flow's steps must be optional, or have a default in the store: a step may not have run. Only later
// steps of OnError and Finally can use values of a step of OnError.
//
// A step of OnError cannot be a Reverter, a PointOfNoReturn, AtMostOnce or Repeatable.
func (f *Flow) OnError(steps ...*Step) *Flow {
	for _, step := range steps {
		if step != nil {
			step.onError, step.ignoresFailure = true, true
		}
	}
	f.onError = append(f.onError, steps...)
	return f
}

// ErrorSteps are the steps given to OnError.
func (f *Flow) ErrorSteps() []*Step { return slices.Clone(f.onError) }

// IsOnError reports whether the step was given to OnError.
func (s *Step) IsOnError() bool { return s.onError }

// IsLate reports whether the step was given to OnError or Finally.
func (s *Step) IsLate() bool { return s.onError || s.final }

// late are the steps of OnError and of Finally.
func (f *Flow) late() []*Step { return slices.Concat(f.onError, f.finals) }

// lateWord is the key of a late step in a document.
func (s *Step) lateWord() string {
	if s.onError {
		return "on_error"
	}
	return "finally"
}

// checkErrorSources reports a value of an on_error step that is required by a step other than a later on_error or
// final step. Other steps cannot have the value: the on_error step runs only when its flow fails.
func (r *resolver) checkErrorSources(step int, argument Argument, found []*provider) {
	p := r.compiler.plan
	for _, provider := range found {
		if provider.vertex >= p.Len() || !p.steps[provider.vertex].onError {
			continue
		}
		if final, ok := p.finalOf[step]; ok && provider.vertex >= p.finals[final].Body.First {
			continue
		}
		r.compiler.fault(ErrInvalid, "step %q takes %s of on_error step %q, which runs only when its flow fails; only later on_error and finally steps can take it",
			p.steps[step].name, described(argument), p.steps[provider.vertex].name)
	}
}
