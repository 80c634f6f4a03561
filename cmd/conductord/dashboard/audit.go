package dashboard

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/fsm/command"
)

// auditData is what the page of the audit log shows.
type auditData struct {
	Principal, Verb, Target, From, To string // the filter
	Records                           []*v1.AuditRecord
	More                              pager
}

// loadAudit lists what principals have done, the latest first.
func loadAudit(ctx context.Context, v *visit) (view, error) {
	data := auditData{Principal: v.query("principal"), Verb: v.query("verb"), Target: v.query("target"), From: v.query("from"), To: v.query("to")}
	request := &v1.ListAuditRequest{Principal: data.Principal, Verb: data.Verb, Target: data.Target, After: v.query("after"), Limit: pageRows, Stale: true}
	for _, bound := range []struct {
		name, text string
		set        **timestamppb.Timestamp
	}{{"from", data.From, &request.From}, {"to", data.To, &request.To}} {
		if bound.text != "" {
			stamp, err := parseDate(bound.name, bound.text)
			if err != nil {
				return view{}, err
			}
			*bound.set = command.TimeToProto(stamp)
		}
	}
	said := "conductord audit search"
	for _, flag := range [][2]string{{"principal", data.Principal}, {"verb", data.Verb}, {"target", data.Target}} {
		if flag[1] != "" {
			said += " --" + flag[0] + " " + cli.Quoted(flag[1])
		}
	}
	answer, err := ask(ctx, v.api.access.ListAudit, request)
	data.Records, data.More = answer.GetRecords(), v.more(answer.GetNext())
	return view{Title: "Audit", Command: said, Data: data}, err
}
