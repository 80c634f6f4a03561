package command_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/golden.txt anew")

const (
	jobA     = "0190c7e2-0000-7000-8000-000000000001"
	bookA    = "0190c7e2-0000-7000-8000-000000000002"
	flowA    = "0190c7e2-0000-7000-8000-000000000003"
	sessionA = "5bd43f3b-7a3e-4b55-9d3a-8a2d8f1c0004"
	nonceA   = "5bd43f3b-7a3e-4b55-9d3a-8a2d8f1c0005"
)

// entryTime is the time of every entry in testdata/golden.txt.
var entryTime = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)

func value(text string) *v1.Value { return &v1.Value{Json: []byte(text)} }

func sampleBook() *v1.Book {
	return &v1.Book{
		Id: bookA, Name: "trip to Zürich", Meta: []*v1.NamedValue{{Name: "at", Value: value(`7`)}, {Name: "by", Value: value(`"ann"`)}},
		Flows: []*v1.FlowDetail{{
			Id: flowA, Book: bookA, Name: "travel", Factory: &v1.Factory{Name: "travel", Args: value(`{"legs":2}`)},
			Store: []*v1.NamedValue{{Name: "from", Value: value(`"Basel"`)}}, State: "pending",
		}},
	}
}

func samplePosting() *v1.Posting {
	return &v1.Posting{
		Id: jobA, Board: "default", Name: "book a trip", Priority: -100, Book: sampleBook(), Flow: flowA,
		Details: value(`{"customer":17}`), Store: []*v1.NamedValue{{Name: "a", Value: value(`2`)}, {Name: "b", Value: value(`1`)}, {Name: "c", Value: value(`[]`)}},
		NotBefore: timestamppb.New(entryTime.Add(time.Minute)),
	}
}

func sampleFailure() *v1.Failure {
	return &v1.Failure{
		Kind: "handler.exit", Message: "no rooms", Step: "hotel", Code: 3, Permanent: true,
		Details: []*v1.NamedValue{{Name: "city", Value: value(`"Oslo"`)}, {Name: "wanted", Value: value(`2`)}},
		Causes:  []*v1.Failure{{Kind: "error", Message: "full", Stack: "main.go:1"}},
	}
}

func sampleUpdate() *v1.Update {
	token := &v1.Token{Generation: 1, Index: 42}
	return &v1.Update{
		Flow: flowA, Token: token, Sequence: 3, State: "reverting", Cause: sampleFailure(),
		Atoms: []*v1.AtomChange{
			{Name: "flight", Kind: "task", Version: "1.0", State: "success", Intention: "revert", Attempts: []*v1.Attempt{{
				Action: "execute", Number: 1, Token: token, Owner: "node1", StartedAt: timestamppb.New(entryTime),
				EndedAt: timestamppb.New(entryTime.Add(time.Second)), Result: value(`"LX1"`), Stderr: "ok\n",
				StderrTruncated: true,
			}}},
			{Name: "import", Checkpoints: []*v1.Checkpoint{{Name: "row", Value: value(`2000`), At: timestamppb.New(entryTime)}}},
			{Name: "hotel", State: "pending", RetryAt: timestamppb.New(entryTime.Add(time.Hour)), Attempts: []*v1.Attempt{{
				Action: "execute", Number: 1, Token: token, Failure: sampleFailure(),
			}}},
		},
	}
}

func sampleEnding() *v1.Ending {
	return &v1.Ending{Job: jobA, Token: &v1.Token{Generation: 1, Index: 42}, Update: sampleUpdate()}
}

// samples are one command of each kind, with most of its fields set.
func samples() []*v1.Command {
	consume, abandon, trash := sampleEnding(), sampleEnding(), sampleEnding()
	consume.Outcome = "reverted"
	abandon.Reason, abandon.Delay = "stopping", durationpb.New(2*time.Second)
	trash.Reason, trash.Failure = "cannot be built", sampleFailure()
	return []*v1.Command{
		{Kind: &v1.Command_Post{Post: &v1.PostCommand{Postings: []*v1.Posting{
			samplePosting(), {Id: sessionA, Name: "plain", Kind: "mail"},
		}}}},
		{Kind: &v1.Command_Post{Post: &v1.PostCommand{Postings: []*v1.Posting{{
			Id: jobA, Name: "plain", Kind: "mail", Hold: true, Key: "order 7", Front: true, Tags: []string{"b", "a"}, MaxCrashes: 2,
			Labels: []string{"gpu", "big"}, Deadline: timestamppb.New(entryTime.Add(time.Hour)),
		}}}}},
		{Kind: &v1.Command_Post{Post: &v1.PostCommand{Postings: []*v1.Posting{{
			Id: jobA, Name: "patient", Kind: "mail", Retry: &v1.RetryPolicy{
				Attempts: 5, Delay: durationpb.New(10 * time.Second), BackoffPercent: 200, MaxDelay: durationpb.New(time.Minute),
				JitterPercent: 20, PriorityStep: -10, Never: []string{"spoilt"}, Only: []string{"75", "timeout"}, OnFailure: "park",
			},
		}}}}},
		{Kind: &v1.Command_Claim{Claim: &v1.ClaimCommand{Session: sessionA, Job: jobA, Nonce: nonceA}}},
		{Kind: &v1.Command_ClaimNext{ClaimNext: &v1.ClaimNextCommand{
			Session: sessionA, Nonce: nonceA, Boards: []string{"default", "night"}, Kinds: []string{"travel"}, Max: 8, Labels: []string{"gpu"},
		}}},
		{Kind: &v1.Command_ClaimNext{ClaimNext: &v1.ClaimNextCommand{Session: sessionA, Nonce: nonceA, Max: 1, Expiry: durationpb.New(time.Minute)}}},
		{Kind: &v1.Command_ClaimNext{ClaimNext: &v1.ClaimNextCommand{Session: sessionA, Nonce: nonceA, Kinds: []string{"travel"}, Max: 8, Begins: true}}},
		{Kind: &v1.Command_Abandon{Abandon: &v1.Ending{Job: jobA, Token: &v1.Token{Generation: 1, Index: 42}, Recorded: true, Waits: true}}},
		{Kind: &v1.Command_ExtendClaim{ExtendClaim: &v1.ExtendClaimCommand{
			Job: jobA, Token: &v1.Token{Generation: 1, Index: 42}, Expiry: durationpb.New(time.Minute),
		}}},
		{Kind: &v1.Command_Consume{Consume: consume}},
		{Kind: &v1.Command_Abandon{Abandon: abandon}},
		{Kind: &v1.Command_Trash{Trash: trash}},
		{Kind: &v1.Command_OpenSession{OpenSession: &v1.Opening{
			Id: sessionA, Name: "node1", Host: "h1", Pid: 4711, Ttl: durationpb.New(4 * time.Second),
		}}},
		{Kind: &v1.Command_CloseSession{CloseSession: &v1.CloseSessionCommand{Session: sessionA}}},
		{Kind: &v1.Command_Register{Register: &v1.RegisterCommand{Session: sessionA, Entity: &v1.Entity{
			Kind: "conductor", Name: "node1", Boards: []string{"default"}, JobKinds: []string{"travel"}, MaxJobs: 4, Labels: []string{"gpu"},
			Host: "h1", Pid: 4711, Metadata: []*v1.NamedValue{{Name: "zone", Value: value(`"a"`)}},
		}}}},
		{Kind: &v1.Command_SaveBook{SaveBook: sampleBook()}},
		{Kind: &v1.Command_UpdateFlow{UpdateFlow: sampleUpdate()}},
		{Kind: &v1.Command_DestroyBook{DestroyBook: &v1.DestroyBookCommand{Book: bookA}}},
		{Kind: &v1.Command_Suspend{Suspend: &v1.JobCommand{Job: jobA, By: "ann@h1", Reason: "let me look"}}},
		{Kind: &v1.Command_Resume{Resume: &v1.JobCommand{Job: jobA, By: "ann@h1", Reason: "go on"}}},
		{Kind: &v1.Command_Cancel{Cancel: &v1.JobCommand{Job: jobA, By: "ann@h1", Reason: "not needed", Revert: true}}},
		{Kind: &v1.Command_Transfer{Transfer: &v1.JobCommand{Job: jobA, By: "ann@h1", Reason: "new disk", To: "node2", Within: durationpb.New(time.Minute)}}},
		{Kind: &v1.Command_Unreserve{Unreserve: &v1.JobCommand{Job: jobA, By: "ann@h1", Reason: "node2 is slow"}}},
		{Kind: &v1.Command_Signal{Signal: &v1.SignalCommand{Job: jobA, Name: "paid", Id: "evt_17", Data: &v1.Value{Json: []byte(`{"amount":100}`)}, By: "ann@h1"}}},
		{Kind: &v1.Command_Publish{Publish: &v1.PublishCommand{Board: "mail", Topic: "payments", Key: "17", Id: "evt_17", To: "one", Keep: durationpb.New(time.Hour), Data: &v1.Value{Json: []byte(`{"amount":100}`)}, By: "ann@h1"}}},
		{Kind: &v1.Command_Decide{Decide: &v1.DecideCommand{Job: jobA, Step: "ask", Kind: "approve", Id: "d1", By: "ann@h1", Answers: &v1.Value{Json: []byte(`{"ticket":"CHG-1"}`)}, Wait: 7}}},
		{Kind: &v1.Command_Override{Override: &v1.DecideCommand{Job: jobA, Step: "ask", Kind: "reject", Id: "d2", By: "ann@h1", Reason: "outage"}}},
		{Kind: &v1.Command_RetryNow{RetryNow: &v1.JobCommand{Job: jobA, By: "ann@h1", Reason: "the disk is free", Step: "pay"}}},
		{Kind: &v1.Command_Change{Change: &v1.Change{
			Job: jobA, Priority: proto.Int32(100), NotBefore: timestamppb.New(entryTime.Add(time.Minute)), Release: true,
			By: "ann@h1", Reason: "they wait",
		}}},
		{Kind: &v1.Command_Change{Change: &v1.Change{Id: nonceA, Job: jobA, Deadline: timestamppb.New(entryTime.Add(time.Hour))}}},
		{Kind: &v1.Command_Intervene{Intervene: &v1.Intervention{
			Id: nonceA, Flow: flowA, Kind: "complete", Step: "hotel", Result: value(`{"room":7}`), By: "ann@h1",
			Reason: "booked by phone", Hold: true,
		}}},
		{Kind: &v1.Command_Retry{Retry: &v1.JobCommand{Job: jobA, By: "ann@h1", Reason: "the disk has room again"}}},
		{Kind: &v1.Command_Purge{Purge: &v1.JobCommand{Job: jobA, By: "ann@h1", Reason: "never to be done"}}},
		{Kind: &v1.Command_CreateBoard{CreateBoard: &v1.BoardCommand{Board: "night"}}},
		{Kind: &v1.Command_LimitBoard{LimitBoard: &v1.LimitBoardCommand{
			Board: "night", Limits: &v1.BoardLimits{Jobs: 1_000, Bytes: 1 << 20, PostingsPerSecond: 50},
		}}},
		{Kind: &v1.Command_PauseBoard{PauseBoard: &v1.BoardCommand{Board: "night", By: "ann@h1", Reason: "the disk is full"}}},
		{Kind: &v1.Command_ResumeBoard{ResumeBoard: &v1.BoardCommand{Board: "night", By: "ann@h1", Reason: "a new disk"}}},
		{Kind: &v1.Command_DeleteBoard{DeleteBoard: &v1.BoardCommand{Board: "night"}}},
		{Kind: &v1.Command_AgeBoard{AgeBoard: &v1.AgeBoardCommand{Board: "night", Step: durationpb.New(time.Minute)}}},
		{Kind: &v1.Command_DrainConductor{DrainConductor: &v1.DrainCommand{
			Conductor: "node1", By: "ann@h1", Reason: "a new kernel", Finish: true, Absent: true,
		}}},
		{Kind: &v1.Command_UndrainConductor{UndrainConductor: &v1.DrainCommand{Conductor: "node1", By: "ann@h1", Reason: "it runs"}}},
		{Kind: &v1.Command_DeleteSchedule{DeleteSchedule: &v1.DeleteScheduleCommand{Board: "night", Name: "backup"}}},
		{Kind: &v1.Command_PauseSchedule{PauseSchedule: &v1.PauseScheduleCommand{
			Board: "night", Name: "backup", By: "ann@h1", Reason: "the disk is full",
		}}},
		{Kind: &v1.Command_SavePrincipal{SavePrincipal: &v1.SavePrincipalCommand{
			Name: "orders", Grants: []*v1.Grant{{Role: "poster", Boards: "orders/*"}, {Role: "viewer", Boards: "*"}}, HideValues: true, Revision: proto.Uint64(42),
		}}, Principal: "node/node1"},
		{Kind: &v1.Command_DeletePrincipal{DeletePrincipal: &v1.DeletePrincipalCommand{Name: "orders"}}, Principal: "ann"},
		{Kind: &v1.Command_AddAccessToken{AddAccessToken: &v1.AddAccessTokenCommand{
			Principal: "orders", Id: "5bd43f3b-7a3e-4b55-9d3a-8a2d8f1c0004", Hash: bytes.Repeat([]byte{7}, 32), Expires: timestamppb.New(entryTime.Add(time.Hour)),
		}}, Principal: "ann"},
		{Kind: &v1.Command_RevokeAccessToken{RevokeAccessToken: &v1.RevokeAccessTokenCommand{
			Principal: "orders", Id: "5bd43f3b-7a3e-4b55-9d3a-8a2d8f1c0004",
		}}, Principal: "ann"},
		{Kind: &v1.Command_NoteTokenUses{NoteTokenUses: &v1.NoteTokenUsesCommand{Uses: []*v1.TokenUse{
			{Principal: "orders", Id: "5bd43f3b-7a3e-4b55-9d3a-8a2d8f1c0004"},
		}}}, Principal: "node/node1"},
		{Kind: &v1.Command_SaveQuota{SaveQuota: &v1.SaveQuotaCommand{
			Principal: "orders", Limits: &v1.Amounts{Jobs: 1_000, Bytes: 1 << 20, PostingsPerSecond: 50, Sessions: 10, Watches: 20},
		}}, Principal: "ann"},
		{Kind: &v1.Command_DeleteQuota{DeleteQuota: &v1.DeleteQuotaCommand{Boards: "orders/*"}}, Principal: "ann"},
		{Kind: &v1.Command_RecordAct{RecordAct: &v1.AuditRecord{Verb: "ClusterService/RemoveMember", Target: "name=node2"}}, Principal: "ann", From: "10.0.0.7"},
		{Kind: &v1.Command_RaiseVersion{RaiseVersion: &v1.RaiseVersionCommand{Version: 1}}},
		{Kind: &v1.Command_BeginLeadership{BeginLeadership: &v1.BeginLeadershipCommand{Node: "node1"}}},
		{Kind: &v1.Command_ExpireSession{ExpireSession: &v1.ExpireSessionCommand{
			Session: sessionA, TimerEpoch: 40, CoolDown: durationpb.New(500 * time.Millisecond), MaxCrashes: 5,
		}}},
		{Kind: &v1.Command_ExpireClaim{ExpireClaim: &v1.ExpireClaimCommand{
			Job: jobA, Token: &v1.Token{Generation: 1, Index: 42}, Extensions: 3, TimerEpoch: 40,
			CoolDown: durationpb.New(500 * time.Millisecond), MaxCrashes: 5,
		}}},
		{Kind: &v1.Command_WakeDue{WakeDue: &v1.WakeDueCommand{TimerEpoch: 40, Max: 100}}},
		{Kind: &v1.Command_Sweep{Sweep: &v1.SweepCommand{
			TimerEpoch: 40, MaxAge: durationpb.New(24 * time.Hour), Keep: 10_000, Max: 100,
		}}},
		{Kind: &v1.Command_SaveSchedule{SaveSchedule: &v1.SaveScheduleCommand{
			Schedule: sampleSchedule(), Revision: 17, From: timestamppb.New(entryTime), Next: timestamppb.New(entryTime.Add(time.Hour)),
			Skipped: sampleSkip(),
		}}},
		{Kind: &v1.Command_ResumeSchedule{ResumeSchedule: &v1.ResumeScheduleCommand{
			Board: "night", Name: "backup", Revision: 17, Skipped: sampleSkip(), Next: timestamppb.New(entryTime.Add(time.Hour)),
		}}},
		{Kind: &v1.Command_FireSchedule{FireSchedule: &v1.FireScheduleCommand{
			TimerEpoch: 40, Schedule: nonceA, Revision: 17, Next: timestamppb.New(entryTime.Add(time.Hour)),
			Decisions: []*v1.SlotDecision{sampleSkip(), {
				Slot: timestamppb.New(entryTime), Through: timestamppb.New(entryTime), Count: 1,
			}},
		}}},
		{Kind: &v1.Command_RunSchedule{RunSchedule: &v1.RunScheduleCommand{Board: "night", Name: "backup", Nonce: nonceA, By: "ann@h1"}}},
		{Kind: &v1.Command_BackfillSchedule{BackfillSchedule: &v1.BackfillScheduleCommand{
			Board: "night", Name: "backup", Revision: 17, By: "ann@h1", Nonce: nonceA,
			Slots: []*timestamppb.Timestamp{timestamppb.New(entryTime), timestamppb.New(entryTime.Add(time.Hour))},
		}}},
	}
}

func sampleSchedule() *v1.Schedule {
	return &v1.Schedule{
		Id: nonceA, Board: "night", Name: "backup", Rule: "30 2 * * *", Zone: "Europe/Berlin", Overlap: "queue",
		Posting: &v1.Posting{Kind: "backup", Priority: 5, Store: []*v1.NamedValue{{Name: "disk", Value: value(`"a"`)}}},
		Missed:  "window", MissedWindow: durationpb.New(time.Hour),
		Start: timestamppb.New(entryTime), End: timestamppb.New(entryTime.Add(24 * time.Hour)),
	}
}

func sampleSkip() *v1.SlotDecision {
	return &v1.SlotDecision{
		Slot: timestamppb.New(entryTime.Add(-time.Hour)), Through: timestamppb.New(entryTime.Add(-time.Minute)), Count: 60, Skip: "missed",
	}
}

func entryOf(commands ...*v1.Command) *v1.Entry {
	return &v1.Entry{TimeUnixNano: entryTime.UnixNano(), Commands: commands}
}

func encode(t testing.TB, entry *v1.Entry) []byte {
	t.Helper()
	data, err := command.EncodeEntry(entry)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// readable is the entry's JSON without the spaces that protojson varies.
func readable(t *testing.T, entry *v1.Entry) string {
	t.Helper()
	data, err := protojson.Marshal(entry)
	if err != nil {
		t.Fatal(err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, data); err != nil {
		t.Fatal(err)
	}
	return compact.String()
}

// TestGoldenLines pins the encoding: a change of it requires a new Version. A line has the
// command's name, its entry as JSON, " → " and the entry's bytes in hex.
func TestGoldenLines(t *testing.T) {
	path := filepath.Join("testdata", "golden.txt")
	var lines strings.Builder
	for _, c := range samples() {
		entry := entryOf(c)
		line := command.Name(c) + " " + readable(t, entry) + " → " + hex.EncodeToString(encode(t, entry))
		checkGoldenLine(t, line)
		lines.WriteString(line + "\n")
	}
	if *rewrite {
		if err := os.WriteFile(path, []byte(lines.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	known := strings.Split(string(content), "\n")
	for i, line := range strings.Split(lines.String(), "\n") {
		if i >= len(known) || known[i] != line {
			t.Fatalf("line %d of %s would be another; if that is meant, run the test with -rewrite:\n%s", i+1, path, line)
		}
	}
	if len(known) != len(strings.Split(lines.String(), "\n")) {
		t.Errorf("%s has lines that no sample gives", path)
	}
}

func checkGoldenLine(t *testing.T, line string) {
	t.Helper()
	name, rest, _ := strings.Cut(line, " ")
	text, digits, _ := strings.Cut(rest, " → ")
	data, err := hex.DecodeString(digits)
	if err != nil {
		t.Errorf("line %q: %v", line, err)
		return
	}
	got, err := command.DecodeEntry(data)
	if err != nil {
		t.Errorf("the %s cannot be decoded: %v", name, err)
		return
	}
	want := &v1.Entry{}
	if err := protojson.Unmarshal([]byte(text), want); err != nil {
		t.Errorf("line %q: %v", line, err)
		return
	}
	if !proto.Equal(got, want) || len(got.Commands) != 1 || command.Name(got.Commands[0]) != name {
		t.Errorf("the %s is decoded as\n%v, want\n%v", name, got, want)
	}
}

// TestEveryCommandHasASample checks that each command has a golden line, a check, and a place among
// the leader's or the clients' commands.
func TestEveryCommandHasASample(t *testing.T) {
	var sampled []string
	for _, c := range samples() {
		sampled = append(sampled, command.Name(c))
	}
	fields := (&v1.Command{}).ProtoReflect().Descriptor().Oneofs().ByName("kind").Fields()
	for i := range fields.Len() {
		if name := string(fields.Get(i).Name()); !slices.Contains(sampled, name) {
			t.Errorf("command %s has no sample", name)
		}
	}
}
