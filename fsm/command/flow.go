package command

import (
	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/logbook"
)

func factoryToProto(f logbook.Factory) *v1.Factory {
	if f.Name == "" && len(f.Args) == 0 {
		return nil
	}
	return &v1.Factory{Name: f.Name, Args: ValueToProto(f.Args)}
}

func factoryFromProto(message *v1.Factory) logbook.Factory {
	return logbook.Factory{Name: message.GetName(), Args: ValueFromProto(message.GetArgs())}
}

// knownFlowState looks a state up in the table of transitions, which is the only list of states:
// every known state has a transition to itself.
func knownFlowState(s logbook.FlowState) bool { return s.Move(s) == nil }
