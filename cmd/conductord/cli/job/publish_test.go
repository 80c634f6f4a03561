package job_test

import (
	"testing"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
)

// TestSignalPublish publishes to nobody, keeps a publication, and repeats it.
func TestSignalPublish(t *testing.T) {
	cluster := clitest.Open(t)
	publish := func(arguments ...string) clitest.Said {
		return clitest.Run(t, cluster, append([]string{"signal", "publish", "payments"}, arguments...)...)
	}
	if got := publish("--key", "order-7"); got.Code != cli.ExitNotFound {
		t.Errorf("to nobody: %+v", got)
	}
	clitest.Expect(t, publish("--key", "order-7", "--id", "evt_17", "--keep", "24h", "--data", "7"), 0, "kept\n", "")
	clitest.Expect(t, publish("--key", "order-7", "--id", "evt_17"), 0, "repeated, first kept\n", "")
	for _, wrong := range [][]string{{}, {"--key", "k", "--data", "1", "--reject", "no"}} {
		if got := publish(wrong...); got.Code != cli.ExitUsage {
			t.Errorf("%v: %+v", wrong, got)
		}
	}
}
