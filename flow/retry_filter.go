package flow

import "github.com/conductord/conductord/logbook"

// RetryOnly tries a step again, or starts another round of a retry, only after some failures. An
// entry is a kind of failure, or a number: an exit status, or another code of a failure. See
// logbook.RetryFilter.
func RetryOnly(entries ...string) Option {
	return option(func(s *Step) { s.filter.Only = s.addEntries(s.filter.Only, entries) })
}

// RetryNever forbids another attempt or round after some failures, even if RetryOnly lists them.
func RetryNever(entries ...string) Option {
	return option(func(s *Step) { s.filter.Never = s.addEntries(s.filter.Never, entries) })
}

// RetryPermanent lets a retry start another round after a permanent failure too. The value of the
// next round can make the difference. The controller of NewRetrier needs no such option.
func RetryPermanent() RetryOption { return retryOption(func(s *Step) { s.retryPermanent = true }) }

// addEntries refuses an empty list, because RetryOnly without entries would allow every failure.
func (s *Step) addEntries(list, entries []string) []string {
	if len(entries) == 0 {
		s.fault("its list of failures for retries is empty")
	}
	return append(list, entries...)
}

// allowsRound reports whether the options of a retry allow another round after a failure. A
// permanent failure ends the rounds, unless the retry has RetryPermanent or its own controller.
func (s *Step) allowsRound(failure *logbook.Failure) bool {
	permanent := failure != nil && failure.Permanent
	return (!permanent || s.retryPermanent || s.ownController) && s.filter.Allows(failure)
}

// RetryFilter is the list of failures after which the step, or the flow of the retry, is tried again.
func (s *Step) RetryFilter() logbook.RetryFilter { return s.filter }
