package command_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/internal/filled"
	"github.com/conductord/conductord/logbook"
)

// TestRecordsSayWhatWasDone: the audit record of a command has its target and its parameters. No
// name and no reason can be mistaken for a field.
func TestRecordsSayWhatWasDone(t *testing.T) {
	steps := &v1.Value{Json: []byte(`"a value"`)}
	many := &v1.SavePrincipalCommand{Name: "ann"}
	for i := range 64 {
		many.Grants = append(many.Grants, &v1.Grant{Role: "viewer", Boards: fmt.Sprintf("board-%d-%s", i, strings.Repeat("b", 200))})
	}
	many.Grants[63] = &v1.Grant{Role: "administrator", Boards: "*"}
	for _, row := range []struct {
		message        proto.Message
		target, change string
	}{
		{&v1.SavePrincipalCommand{Name: "ann", HideValues: true, Approves: []string{"dba"}, Grants: []*v1.Grant{{Role: "administrator", Boards: "*"}, {Role: "viewer", Boards: "orders/*"}}},
			"name=ann", "grants=[administrator:*,viewer:orders/*] hide_values=true approves=[dba]"},
		{&v1.SavePrincipalCommand{Name: "ann"}, "name=ann", "grants=[] approves=[]"},
		{many, "name=ann", ",administrator:*] …"},
		{&v1.SavePrincipalCommand{Name: "ann", Grants: []*v1.Grant{{Role: "viewer", Boards: "a,administrator:*"}}}, "name=ann", `grants=[viewer:"a,administrator:*"] approves=[]`},
		{&v1.AddAccessTokenCommand{Principal: "ann", Id: "id-1", Hash: []byte("hash"), Expires: timestamppb.New(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))}, "principal=ann", "id=id-1 expires=2030-01-02T03:04:05Z"},
		{&v1.RevokeAccessTokenCommand{Principal: "ann", Id: "id-1"}, "principal=ann", "id=id-1"},
		{&v1.SaveQuotaCommand{Principal: "ann", Limits: &v1.Amounts{Jobs: 10, PostingsPerSecond: 5}}, "principal=ann", "limits={jobs=10 postings_per_second=5}"},
		{&v1.SaveQuotaCommand{Boards: "orders/*", Limits: &v1.Amounts{}}, "boards=orders/*", "limits={}"},
		{&v1.LimitBoardCommand{Board: "orders", Limits: &v1.BoardLimits{Bytes: 1}}, "board=orders", "limits={bytes=1}"},
		{&v1.AgeBoardCommand{Board: "orders", Step: durationpb.New(90e9)}, "board=orders", "step=1m30s"},
		{&v1.BoardCommand{Board: "orders", By: "ann", Reason: `stock"s out` + "\n"}, "board=orders", `reason="stock\"s out\x0a"`},
		{&v1.JobCommand{Job: "id-2", Reason: "x role=administrator", Revert: true, Steps: "finish"}, "job=id-2", `reason="x role=administrator" revert=true steps=finish`},
		{&v1.JobCommand{Job: "id-2", Reason: strings.Repeat("r", 4096)}, "job=id-2", "reason=" + strings.Repeat("r", 512) + "…"},
		{&v1.BoardCommand{Board: `orders name=ann grants=[administrator:*]`}, `board="orders name=ann grants=[administrator:*]"`, ""},
		{&v1.BoardCommand{Board: "büro\u00a0name=x"}, `board="büro\u{a0}name=x"`, ""},
		{&v1.BoardCommand{Board: "a/\u202ex"}, `board="a/\u{202e}x"`, ""},
		{&v1.BoardCommand{Board: "a\u2066b\u2069c\ufeffd\u0085e\U000e0041"}, `board="a\u{2066}b\u{2069}c\u{feff}d\x85e\u{e0041}"`, ""},
		{&v1.JobCommand{Job: "a\u3000name=root"}, `job="a\u{3000}name=root"`, ""},
		{&v1.BoardCommand{Board: `a\u{202e}x`}, `board="a\\u{202e}x"`, ""},
		{&v1.Change{Job: "id-2", Priority: proto.Int32(-3), Board: "slow", NoDeadline: true}, "board=slow job=id-2", "priority=-3 no_deadline=true"},
		{&v1.Intervention{Id: "id-3", Flow: "id-4", Kind: "complete", Step: "pay", Result: steps, Reason: "paid by hand"}, "flow=id-4 step=pay kind=complete", `id=id-3 reason="paid by hand"`},
		{&v1.SaveScheduleCommand{Schedule: &v1.Schedule{Board: "orders", Name: "nightly", Rule: "0 3 * * *", Posting: &v1.Posting{Name: "n", Kind: "k", Details: steps, Store: []*v1.NamedValue{{Name: "a", Value: steps}}, Tags: []string{"x", "y z"}}}},
			"board=orders name=nightly", `schedule={board=orders name=nightly rule="0 3 * * *" posting={name=n kind=k tags=[x,"y z"] labels=[]}}`},
		{&v1.DrainCommand{Conductor: "c", Finish: true}, "conductor=c", "finish=true"},
		{&v1.SetVoteRequest{Name: "n4"}, "name=n4", "vote=false"},
		{&v1.SetVoteRequest{Name: "n4", Vote: true, Replaces: "n1"}, "name=n4", "vote=true replaces=n1"},
		{&v1.AddMemberRequest{Name: "n4", RaftAddress: "10.0.0.4:7071", Replaces: "n1"}, "name=n4", "raft_address=10.0.0.4:7071 replaces=n1"},
	} {
		target, change := command.Target(row.message), command.ChangeOf(row.message)
		if target != row.target || change != row.change && !(row.message == proto.Message(many) && strings.HasSuffix(change, row.change)) {
			t.Errorf("%T: %s | %s, want %s | %s", row.message, target, change, row.target, row.change)
		}
		if strings.Contains(change, "a value") || strings.Contains(change, "hash") {
			t.Errorf("%T: the audit record contains a value: %s", row.message, change)
		}
	}
}

// TestEveryRecord fills the message of every command and of every administrator's call about the
// cluster. The file has the audit log's record of each: no value, no program text, and no secret.
func TestEveryRecord(t *testing.T) {
	const path = "testdata/records.txt"
	var records strings.Builder
	fill := func(of protoreflect.MessageType) proto.Message {
		return filled.Messages(of, func(field protoreflect.FieldDescriptor) string {
			switch name := field.FullName(); {
			case name == "conductord.v1.Failure.kind":
				return logbook.FailureOperator
			case name.Parent() == "conductord.v1.Value", strings.HasPrefix(string(name), "conductord.v1.Failure."), name.Name() == "hash":
				return "canary"
			}
			return "t" + fmt.Sprint(field.Number())
		})[0]
	}
	write := func(name string, message proto.Message) {
		target, change := command.Target(message), command.ChangeOf(message)
		fmt.Fprintf(&records, "%s: %s | %s\n", name, target, change)
		if strings.Contains(target+change, "canary") {
			t.Errorf("%s: the record has a value: %s | %s", name, target, change)
		}
	}
	for _, verb := range command.Verbs() {
		if message := fill(verb.Request().ProtoReflect().Type()); command.Audited(verb.Command(message)) {
			write(verb.Name, message)
		} else {
			fmt.Fprintf(&records, "%s: no record\n", verb.Name)
		}
	}
	for name, call := range filled.Calls(v1.File_conductord_v1_service_proto) {
		of, err := protoregistry.GlobalTypes.FindMessageByName(call.Input().FullName())
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(name, "ClusterService/") && command.PermissionOf(name) == command.Administer {
			write(name, fill(of))
		}
	}
	if *rewrite {
		if err := os.WriteFile(path, []byte(records.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if kept, err := os.ReadFile(path); err != nil || string(kept) != records.String() {
		t.Errorf("the records differ from %s (%v); -rewrite writes them anew:\n%s", path, err, records.String())
	}
}
