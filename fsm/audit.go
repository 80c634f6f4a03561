package fsm

import (
	"bytes"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
)

// maxRecordsExamined bounds the records that are read for one page.
const maxRecordsExamined = 10_000

// audit adds a record of a principal's command, with its refusal if there is one.
func (t *txn) audit(c *v1.Command, refused error) {
	verb := command.VerbOf(c)
	if t.by == "" || !command.Audited(c) {
		return
	}
	record := access.Record{
		At: t.now, Principal: t.by, From: c.GetFrom(), Verb: verb.Name, Target: command.Target(verb.Message(c)),
		Change: command.ChangeOf(verb.Message(c)), Error: command.ErrorToProto(refused).GetCode(),
	}
	if act := c.GetRecordAct(); act != nil {
		record.Verb, record.Target, record.Change = act.GetVerb(), act.GetTarget(), act.GetChange()
	}
	t.records++
	key := positionKey(jobs.Position{Index: t.Index, Item: t.records})
	value := t.memory.encode(nil, command.RecordToProto(&record))
	t.put(tableAudit, key, value)
	t.KeptRecords++
	t.RecordBytes += uint64(len(value))
	t.auditedAt = t.now
}

// recordAct changes nothing: audit records it like every command of a principal.
func (t *txn) recordAct(*v1.AuditRecord) error { return nil }

// trimAudit drops the oldest records over the bounds. It runs once per batch. It measures age at the latest
// record and not at the end of the batch, so the kept records do not depend on the batches.
func (t *txn) trimAudit() {
	oldest := t.auditedAt.Add(-access.MaxRecordAge)
	var drop [][]byte
	t.scan(tableAudit, nil, func(key, value []byte) bool {
		old := decode(value, &v1.AuditRecord{}, command.RecordFromProto).At.Before(oldest)
		if !old && t.KeptRecords <= access.MaxRecords && t.RecordBytes <= access.MaxRecordBytes {
			return false
		}
		t.KeptRecords--
		t.RecordBytes -= uint64(len(value))
		drop = append(drop, bytes.Clone(key))
		return true
	})
	for _, key := range drop {
		t.delete(tableAudit, key)
	}
}

// Audit reads a page of the audit log, the latest first.
func (m *Machine) Audit(q access.RecordQuery) (page jobs.Page[access.Record], err error) {
	limit := pageSize(q.Limit)
	end := bytes.Repeat([]byte{0xff}, positionSize)
	if q.After != "" {
		position, err := jobs.ParsePosition(q.After)
		if err != nil {
			return page, badCursor("audit query")
		}
		end = positionKey(position)
	}
	err = m.read(func(v *view) error {
		cursor := v.cursor(tableAudit)
		newest := cursor.Prev
		if key, _ := cursor.Seek(end); key == nil {
			newest = cursor.Last
		}
		examined := 0
		for key, value := newest(); key != nil; key, value = cursor.Prev() {
			if len(page.Items) == limit || examined == maxRecordsExamined {
				return nil
			}
			examined++
			record := decode(value, &v1.AuditRecord{}, command.RecordFromProto)
			record.Position = positionOfKey(key)
			if record.At.Before(q.From) {
				break
			}
			page.Next = record.Position.String()
			if q.Selects(&record) {
				page.Items = append(page.Items, record)
			}
		}
		page.Next = ""
		return nil
	})
	return page, err
}
