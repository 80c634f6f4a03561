package dashboard

import (
	"context"

	v1 "github.com/conductord/conductord/api/conductord/v1"
)

// auditData is the data of the page of the audit log.
type auditData struct {
	Principal, Verb, Target, From, To string // the filter
	Records                           []*v1.AuditRecord
	More                              pager
}

// loadAudit lists the audited actions of principals, the latest first.
func loadAudit(ctx context.Context, v *visit) (view, error) {
	data := auditData{Principal: v.query("principal"), Verb: v.query("verb"), Target: v.query("target"), From: v.query("from"), To: v.query("to")}
	request := &v1.ListAuditRequest{Principal: data.Principal, Verb: data.Verb, Target: data.Target, After: v.query("after"), Limit: v.rows(), Stale: true}
	var err error
	if request.From, request.To, err = v.between(); err != nil {
		return view{}, err
	}
	said := "conductord audit search" + flags("principal", data.Principal, "verb", data.Verb, "target", data.Target, "since", utc(data.From), "until", utc(data.To))
	answer, err := ask(ctx, v.api.access.ListAudit, request)
	data.Records, data.More = answer.GetRecords(), v.more(answer.GetNext())
	return view{Title: "Audit", Command: said, Data: data}, err
}
