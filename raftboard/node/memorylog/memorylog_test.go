package memorylog_test

import (
	"testing"

	"github.com/conductord/conductord/raftboard/node/memorylog"
	"github.com/conductord/conductord/raftboard/node/replication"
	"github.com/conductord/conductord/raftboard/node/replication/replicationtest"
)

func TestMemoryLog(t *testing.T) {
	replicationtest.Exercise(t, func(_ *testing.T, machine replication.Machine) replicationtest.Node {
		log := memorylog.New("n1", machine)
		return replicationtest.Node{Log: log, Lead: log.Lead, StepDown: log.StepDown}
	})
}
