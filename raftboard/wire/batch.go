package wire

// Load is the size of a batch, or of a request in it.
type Load struct{ Commands, Bytes int }

// Plus adds two loads.
func (l Load) Plus(more Load) Load { return Load{l.Commands + more.Commands, l.Bytes + more.Bytes} }

// BatchRule bounds batches, and decides when a batch is sent. The client uses it for calls, and the
// leader for log entries.
//
// A batch costs both ends, the log and three disks as much as dozens of commands. While another batch
// is in flight, a batch is therefore sent only if it carries much, or if both carry few commands. In
// the second case the callers' shorter wait is worth the cost. There is no timer: a waiting batch is
// sent when a batch in flight is answered.
type BatchRule struct {
	Max      Load // limit of a batch; a single request may be larger
	Much     Load // a batch with this many commands or bytes counts as large
	Few      int  // batches with up to this many commands in total count as small
	InFlight int  // maximum batches in flight
}

// Full reports whether a batch has no room for the next request.
func (r BatchRule) Full(batch, next Load) bool {
	sum := batch.Plus(next)
	return batch.Commands > 0 && (sum.Commands > r.Max.Commands || sum.Bytes > r.Max.Bytes)
}

// SendNow reports whether a batch is sent now. inFlight is the number of batches in flight, and
// commands the number of commands in them. full means that the next request did not fit.
func (r BatchRule) SendNow(batch Load, full bool, inFlight, commands int) bool {
	switch {
	case batch.Commands == 0 || inFlight >= r.InFlight:
		return false
	case inFlight == 0 || full || batch.Commands >= r.Much.Commands || batch.Bytes >= r.Much.Bytes:
		return true
	}
	return batch.Commands <= r.Few && commands <= r.Few
}
