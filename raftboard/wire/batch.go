package wire

// Load is what a batch, or a request in it, amounts to.
type Load struct{ Commands, Bytes int }

// Plus adds two loads.
func (l Load) Plus(more Load) Load { return Load{l.Commands + more.Commands, l.Bytes + more.Bytes} }

// BatchRule bounds batches and says when one is sent. The client packs calls by
// it, and the leader packs log entries.
//
// A call costs both ends, the log and three disks as much as dozens of commands.
// So a batch goes beside one that is in flight only if it carries much, or if
// both carry so few commands that their callers gain more than it costs. There
// is no timer: what waits goes when something in flight comes back.
type BatchRule struct {
	Max      Load // of a batch; one request alone may be larger
	Much     Load // a batch with as many commands, or as many bytes, carries much
	Few      int  // commands
	InFlight int  // batches at the same time, at most
}

// Full reports whether a batch has no room for the next request.
func (r BatchRule) Full(batch, next Load) bool {
	sum := batch.Plus(next)
	return batch.Commands > 0 && (sum.Commands > r.Max.Commands || sum.Bytes > r.Max.Bytes)
}

// SendNow reports whether a batch is sent now, while so many batches with so
// many commands in all are in flight. Full: the next request did not fit.
func (r BatchRule) SendNow(batch Load, full bool, inFlight, commands int) bool {
	switch {
	case batch.Commands == 0 || inFlight >= r.InFlight:
		return false
	case inFlight == 0 || full || batch.Commands >= r.Much.Commands || batch.Bytes >= r.Much.Bytes:
		return true
	}
	return batch.Commands <= r.Few && commands <= r.Few
}
