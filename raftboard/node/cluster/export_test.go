package cluster

import (
	"context"

	"connectrpc.com/connect"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/raftboard/node/sums"
	"github.com/conductord/conductord/raftboard/wire"
)

// CheckedMachine is a state machine as the log sees it, with a node's answers about its sums.
type CheckedMachine struct{ *sums.Checks }

// NewCheckedMachine is one whose state is m.
func NewCheckedMachine(m *fsm.Machine) CheckedMachine {
	return CheckedMachine{sums.New(m, "", nil)}
}

// TableSums asks a node for the sums of its tables at an entry.
func (c CheckedMachine) TableSums(ctx context.Context, index uint64) ([]*conductordv1.TableSum, error) {
	answer, err := (&verifyService{checks: c.Checks}).tableSums(ctx, connect.NewRequest(&conductordv1.TableSumsRequest{Index: index}))
	if err != nil {
		return nil, wire.ErrorFromConnect(err)
	}
	return answer.Msg.Sums, nil
}

// Check is an entry that has the state summed up.
func Check() ([]byte, error) { return sums.Encode(&conductordv1.StateCheck{}) }

// Changes are changes of the members, one at a time.
type Changes struct{ members memberService }

// NewChanges makes changes with none in progress.
func NewChanges() *Changes { return &Changes{memberService{changing: make(chan struct{}, 1)}} }

// Hold keeps other changes waiting.
func (c *Changes) Hold() (release func()) {
	c.members.changing <- struct{}{}
	return func() { <-c.members.changing }
}

// Make makes a change that has nothing to do.
func (c *Changes) Make(ctx context.Context) error {
	return c.members.one(ctx, func() (func() error, error) { return nil, nil })
}
