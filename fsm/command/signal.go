package command

import (
	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// SignalCommandToProto converts a signal and its job. The cluster sets the time.
func SignalCommandToProto(c *jobs.SignalCommand) *v1.SignalCommand {
	s := &c.Signal
	return &v1.SignalCommand{Job: idText(c.Job.UUID), Board: c.Board, Key: c.Key, Name: s.Name, Id: s.ID, Data: ValueToProto(s.Data), Reject: s.Reject, By: s.By}
}

// SignalCommandFromProto converts a signal and its job.
func SignalCommandFromProto(m *v1.SignalCommand) (jobs.SignalCommand, error) {
	var r reader
	job := jobs.JobID{UUID: r.id("signal job", m.GetJob())}
	return jobs.SignalCommand{Job: job, Board: m.GetBoard(), Key: m.GetKey(), Signal: logbook.Signal{
		Name: m.GetName(), ID: m.GetId(), Data: ValueFromProto(m.GetData()), Reject: m.GetReject(), By: m.GetBy(),
	}}, r.err
}

// SignalReceiptToProto converts the answer to a signal; nil without an answer.
func SignalReceiptToProto(receipt jobs.SignalReceipt) *v1.SignalResult {
	if receipt == (jobs.SignalReceipt{}) {
		return nil
	}
	return &v1.SignalResult{Answer: string(receipt.Answer), First: string(receipt.First), Job: idText(receipt.Job.UUID)}
}

// SignalReceiptFromProto converts the answer to a signal.
func SignalReceiptFromProto(m *v1.SignalResult) (jobs.SignalReceipt, error) {
	var r reader
	job := jobs.JobID{UUID: r.id("signal job", m.GetJob())}
	return jobs.SignalReceipt{Answer: jobs.SignalAnswer(m.GetAnswer()), First: jobs.SignalAnswer(m.GetFirst()), Job: job}, r.err
}
