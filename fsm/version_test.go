package fsm_test

import (
	"strings"
	"testing"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
)

// A state starts with version 1. If the cluster is raised to a version that a node's program does
// not know, that node stops.
func TestRaiseVersion(t *testing.T) {
	r := newRig(t)
	raise := func(version uint32) *v1.Command {
		return &v1.Command{Kind: &v1.Command_RaiseVersion{RaiseVersion: &v1.RaiseVersionCommand{Version: version}}}
	}
	r.ok(raise(command.Version))
	if version := r.Version(); version != command.Version {
		t.Errorf("the version is %d", version)
	}
	data, err := command.EncodeEntry(&v1.Entry{TimeUnixNano: 1, Commands: []*v1.Command{raise(command.Version + 1)}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Apply([]fsm.Entry{{Index: r.AppliedIndex() + 1, Term: 1, Data: data}})
	if err == nil || !strings.Contains(err.Error(), "install a newer program") {
		t.Errorf("a version that is not known: %v", err)
	}
}
