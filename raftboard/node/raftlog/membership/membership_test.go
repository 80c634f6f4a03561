package membership_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/conductord/conductord/raftboard/node/raftlog/membership"
	"github.com/conductord/conductord/raftboard/node/raftlog/transport"
)

// A starting node does not know yet which members joined after the first election. It admits them,
// because a refusal would stop them. It refuses a known name with another disk.
func TestNodeThatStartsAdmitsWhomItHasMet(t *testing.T) {
	joined := transport.Hello{Name: "n3", Incarnation: "0123abcd", Instance: uuid.New()}
	unknown, wiped := joined, joined
	unknown.Incarnation, wiped.Instance = "4567cdef", uuid.New()
	if err := membership.AdmitAtStart(joined, joined); err != nil {
		t.Errorf("a known node: %v", err)
	}
	if err := membership.AdmitAtStart(joined, unknown); err != nil {
		t.Errorf("an unknown node: %v", err)
	}
	if err := membership.AdmitAtStart(joined, wiped); err == nil || !strings.Contains(err.Error(), "lost its disk") {
		t.Errorf("one with another disk: %v", err)
	}
}
