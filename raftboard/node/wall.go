package node

import "time"

// wallTime reads the wall clock of this machine. Nothing else in a node reads it:
// it is only this node's vote about the cluster's time.
// Elsewhere time.Now measures only how long something takes.
func wallTime() time.Time { return time.Now() }
