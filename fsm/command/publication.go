package command

import (
	"cmp"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// PublicationToProto converts a publication. The cluster sets the time.
func PublicationToProto(p *jobs.Publication) *v1.PublishCommand {
	s := &p.Signal
	return &v1.PublishCommand{
		Board: p.Board, Topic: p.Topic, Key: p.Key, To: string(p.To), Keep: DurationToProto(p.Keep),
		Id: s.ID, Data: ValueToProto(s.Data), Reject: s.Reject, By: s.By,
	}
}

// PublicationFromProto converts a publication, with the defaults of its board and of its selection.
func PublicationFromProto(m *v1.PublishCommand) (jobs.Publication, error) {
	keep, err := DurationFromProto("publication keep", m.GetKeep())
	return jobs.Publication{
		Board: cmp.Or(m.GetBoard(), jobs.DefaultBoard), Topic: m.GetTopic(), Key: m.GetKey(), To: cmp.Or(jobs.PublishTo(m.GetTo()), jobs.PublishToOne), Keep: keep,
		Signal: logbook.Signal{Name: m.GetTopic(), ID: m.GetId(), Data: ValueFromProto(m.GetData()), Reject: m.GetReject(), By: m.GetBy()},
	}, err
}

// PublishReceiptToProto converts the answer to a publication.
func PublishReceiptToProto(receipt jobs.PublishReceipt) *v1.PublishResult {
	return &v1.PublishResult{Answer: string(receipt.Answer), First: string(receipt.First), Waits: receipt.Waits}
}

// PublishReceiptFromProto converts the answer to a publication.
func PublishReceiptFromProto(m *v1.PublishResult) (jobs.PublishReceipt, error) {
	return jobs.PublishReceipt{Answer: jobs.SignalAnswer(m.GetAnswer()), First: jobs.SignalAnswer(m.GetFirst()), Waits: m.GetWaits()}, nil
}
