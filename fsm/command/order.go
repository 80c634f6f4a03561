package command

import (
	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// OrderToProto converts an order to the command that it becomes; nil stays nil.
func OrderToProto(o *jobs.Order) *v1.OrderCommand {
	if o == nil {
		return nil
	}
	return &v1.OrderCommand{Job: idText(o.Job.UUID), By: o.By, Reason: text(o.Reason), Revert: o.Revert}
}

// OrderFromProto converts an order. Nil is the zero order.
func OrderFromProto(message *v1.OrderCommand) (jobs.Order, error) {
	var r reader
	o := jobs.Order{
		Job: jobs.JobID{UUID: r.id("order job", message.GetJob())},
		By:  message.GetBy(), Reason: message.GetReason(), Revert: message.GetRevert(),
	}
	if r.err != nil {
		return jobs.Order{}, r.err
	}
	return o, nil
}

// StandingOrderToProto converts the order that a job is under; nil stays nil.
func StandingOrderToProto(o *jobs.StandingOrder) *v1.Order {
	if o == nil {
		return nil
	}
	return &v1.Order{Kind: string(o.Kind), Revert: o.Revert, By: o.By, Reason: text(o.Reason), At: TimeToProto(o.At)}
}

// StandingOrderFromProto converts the order that a job is under; nil stays nil.
func StandingOrderFromProto(message *v1.Order) (*jobs.StandingOrder, error) {
	if message == nil {
		return nil, nil
	}
	var r reader
	o := &jobs.StandingOrder{
		Kind:   word(&r, "order kind", message.GetKind(), knownOrderKind),
		Revert: message.GetRevert(), By: message.GetBy(), Reason: message.GetReason(),
		At: r.time("order at", message.GetAt()),
	}
	if r.err != nil {
		return nil, r.err
	}
	return o, nil
}

func knownOrderKind(k jobs.OrderKind) bool {
	return k == jobs.OrderSuspend || k == jobs.OrderResume || k == jobs.OrderCancel || k == jobs.OrderChange ||
		k == jobs.OrderIntervene || k == jobs.OrderRestore || k == jobs.OrderPurge
}

// checkPlainOrder checks an order that undoes nothing.
func checkPlainOrder(limits logbook.Limits, c *v1.OrderCommand) error {
	if c.GetRevert() {
		return &logbook.InvalidError{Field: "order revert", Reason: "set; only a cancellation has it"}
	}
	return checkOrder(limits, c)
}
