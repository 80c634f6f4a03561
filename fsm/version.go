package fsm

import (
	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
)

// raiseVersion raises the cluster version, which is never lowered. A node whose program does not know the version stops.
func (t *txn) raiseVersion(c *v1.RaiseVersionCommand) error {
	version := uint64(c.GetVersion())
	if version > command.Version {
		panic(unknownVersion(version))
	}
	if version > t.Version {
		t.Version = version
		t.writes++
	}
	return nil
}

// Version returns the cluster version.
func (m *Machine) Version() byte { return byte(m.status.Load().Version) }
