package cluster

import (
	"context"

	"connectrpc.com/connect"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/raftboard/node/raftlog/transport"
	"github.com/conductord/conductord/raftboard/node/sums"
	"github.com/conductord/conductord/raftboard/wire"
)

// CheckedMachine is a state machine as the log sees it, with a node's answers about its checksums.
type CheckedMachine struct{ *sums.Checks }

// NewCheckedMachine makes a CheckedMachine with state m.
func NewCheckedMachine(m *fsm.Machine) CheckedMachine {
	return CheckedMachine{sums.New(m, "", nil)}
}

// TableSums reads the checksums of a node's tables at an entry.
func (c CheckedMachine) TableSums(ctx context.Context, index uint64) ([]*conductordv1.TableSum, error) {
	answer, err := (&verifyService{checks: c.Checks}).tableSums(ctx, connect.NewRequest(&conductordv1.TableSumsRequest{Index: index}))
	if err != nil {
		return nil, wire.ErrorFromConnect(err)
	}
	return answer.Msg.Sums, nil
}

// Check is an entry that computes the checksums of the state.
func Check() ([]byte, error) { return sums.Encode(&conductordv1.StateCheck{}) }

// Changes are changes of the members, one at a time.
type Changes struct{ members memberService }

// NewChanges makes Changes without a change in progress.
func NewChanges() *Changes { return &Changes{memberService{changing: make(chan struct{}, 1)}} }

// Hold blocks other changes.
func (c *Changes) Hold() (release func()) {
	c.members.changing <- struct{}{}
	return func() { <-c.members.changing }
}

// Make makes a change without any effect.
func (c *Changes) Make(ctx context.Context) error {
	return c.members.one(ctx, func() (func() error, error) { return nil, nil })
}

// CheckAddresses checks the addresses of a new or moved member.
func CheckAddresses(raft, api string) error {
	return checkAddresses(transport.Member{Raft: raft, API: api})
}
