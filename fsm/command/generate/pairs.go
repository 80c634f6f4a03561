package main

import (
	"encoding/json"
	"reflect"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/jobs/schedules"
	"github.com/conductord/conductord/jobs/steps"
	"github.com/conductord/conductord/logbook"
)

// pair is a domain type and its message.
type pair struct {
	name            string // of the functions: nameToProto and nameFromProto
	domain, message reflect.Type
	noun            string // of the fields in errors

	rename  map[string]string // fields of the message that have another name, by field of the domain type
	labels  map[string]string // of fields in errors, instead of noun and field; by field of the message
	skip    []string          // fields that are not converted; fields of the message start with a dot
	flatten []string          // struct fields of the domain type whose own fields are fields of the message
	texts   []string          // fields of the message with text for operators, which is made valid UTF-8

	pointer bool   // FromProto returns a pointer, and nil for nil
	zero    bool   // ToProto returns nil for the zero value
	sure    bool   // FromProto cannot fail
	within  bool   // FromProto is a method of the caller's reader
	wrap    string // the error of FromProto, instead of r.err

	only direction
}

type direction string

const (
	fromOnly direction = "from"
	byHand   direction = "by hand" // both conversions are hand-written
)

func (p *pair) toProto() bool   { return p.only == "" }
func (p *pair) fromProto() bool { return p.only == "" || p.only == fromOnly }

func of[T any]() reflect.Type { return reflect.TypeFor[T]() }

// plain are the types with hand-written conversions that cannot fail.
var plain = map[reflect.Type]string{
	of[json.RawMessage]():   "Value",
	of[logbook.Values]():    "Values",
	of[logbook.Token]():     "Token",
	of[*logbook.Failure]():  "Failure",
	of[[]logbook.Failure](): "failures",
	of[logbook.Factory]():   "factory",
	of[jobs.Position]():     "Position",
}

// knownWords are the functions that know the words of a type.
var knownWords = map[reflect.Type]string{
	of[jobs.State]():          "knownJobState",
	of[jobs.Outcome]():        "knownOutcome",
	of[jobs.EventKind]():      "knownEventKind",
	of[jobs.RequestKind]():    "knownRequestKind",
	of[jobs.Cause]():          "knownCause",
	of[jobs.StepOutcome]():    "knownStepOutcome",
	of[jobs.RemedyVerb]():     "knownRemedyVerb",
	of[logbook.FlowState]():   "knownFlowState",
	of[logbook.AtomKind]():    "knownAtomKind",
	of[logbook.AtomState]():   "knownAtomState",
	of[logbook.Intention]():   "knownIntention",
	of[logbook.Action]():      "knownAction",
	of[schedules.SlotState](): "knownSlotState",
	of[schedules.Trigger]():   "knownTrigger",
}

var pairs = []pair{
	// Sessions and conductors.
	{name: "Opening", domain: of[jobs.Opening](), message: of[v1.Opening](), noun: "session"},
	{name: "Session", domain: of[jobs.Session](), message: of[v1.Session](), noun: "session"},
	{name: "Entity", domain: of[jobs.Entity](), message: of[v1.Entity](), noun: "entity", rename: map[string]string{"Held": "Claims"}},
	{name: "Drain", domain: of[jobs.Drain](), message: of[v1.Drain](), noun: "drain", texts: []string{"Reason"}},
	{name: "DrainCommand", domain: of[jobs.DrainCommand](), message: of[v1.DrainCommand](), texts: []string{"Reason"}, sure: true},

	// Jobs.
	{name: "Job", domain: of[jobs.Job](), message: of[v1.Job](), noun: "job", rename: map[string]string{"Effective": "EffectivePriority"}, only: fromOnly},
	{name: "reservation", domain: of[jobs.Reservation](), message: of[v1.Reservation](), noun: "reservation", pointer: true, within: true},
	{
		name: "Posting", domain: of[jobs.Posting](), message: of[v1.Posting](), noun: "posting",
		labels: map[string]string{"Id": "job id"}, skip: []string{"Begin", "Err"},
	},
	{name: "RetryPolicy", domain: of[jobs.RetryPolicy](), message: of[v1.RetryPolicy](), noun: "retry", pointer: true},
	{name: "OperatorRequest", domain: of[jobs.OperatorRequest](), message: of[v1.OperatorRequest](), noun: "request", texts: []string{"Reason"}, pointer: true},
	{name: "JobCommand", domain: of[jobs.JobCommand](), message: of[v1.JobCommand](), noun: "command", texts: []string{"Reason"}},
	{name: "Change", domain: of[jobs.Change](), message: of[v1.Change](), noun: "change", texts: []string{"Reason"}},
	{name: "Step", domain: of[jobs.Step](), message: of[v1.Step](), noun: "step"},
	{name: "StepApproval", domain: of[jobs.StepApproval](), message: of[v1.StepApproval](), noun: "approval"},
	{name: "DecisionReceipt", domain: of[jobs.DecisionReceipt](), message: of[v1.DecideResult](), noun: "decision"},
	{name: "ApprovalQuery", domain: of[jobs.ApprovalQuery](), message: of[v1.ListApprovalsRequest](), noun: "query", skip: []string{".Stale"}},
	{name: "Explanation", domain: of[jobs.Explanation](), message: of[v1.ExplainResponse](), noun: "explanation", texts: []string{"Text"}},
	{name: "remedy", domain: of[jobs.Remedy](), message: of[v1.Remedy](), noun: "remedy", texts: []string{"Target", "Value", "Name"}, zero: true, within: true},
	{name: "Query", domain: of[jobs.Query](), message: of[v1.ListJobsRequest](), noun: "query", skip: []string{".Stale"}},

	// Claims.
	{name: "Claim", domain: of[jobs.Claim](), message: of[v1.Claim](), noun: "claim", pointer: true, only: fromOnly},
	{name: "Claimed", domain: of[jobs.Claimed](), message: of[v1.Claimed](), skip: []string{".FlowOmitted"}},
	{name: "ClaimRequest", domain: of[jobs.ClaimRequest](), message: of[v1.ClaimNextCommand](), noun: "claim", skip: []string{"Wait"}},
	{name: "HeldClaim", domain: of[jobs.HeldClaim](), message: of[v1.HeldClaim](), noun: "claim"},
	{name: "Ending", domain: of[jobs.Ending](), message: of[v1.Ending](), noun: "ending", texts: []string{"Reason"}},
	{name: "continuation", domain: of[jobs.Continuation](), message: of[v1.Continuation](), noun: "continuation", pointer: true, within: true},

	// Events.
	{
		name: "Event", domain: of[jobs.Event](), message: of[v1.Event](), noun: "event", only: fromOnly,
	},
	{name: "stepEvent", domain: of[jobs.StepEvent](), message: of[v1.StepEvent](), sure: true, only: fromOnly},

	// The logbook.
	{name: "Book", domain: of[logbook.Book](), message: of[v1.Book](), noun: "book"},
	{
		name: "FlowDetail", domain: of[logbook.FlowDetail](), message: of[v1.FlowDetail](), noun: "flow",
		rename: map[string]string{"Ended": "EndedToken", "Begun": "BegunToken"},
	},
	{name: "Definition", domain: of[logbook.Definition](), message: of[v1.Definition](), sure: true, pointer: true},
	{name: "Intervention", domain: of[logbook.Intervention](), message: of[v1.Intervention](), noun: "intervention"},
	{name: "AtomDetail", domain: of[logbook.AtomDetail](), message: of[v1.AtomDetail](), noun: "atom", wrap: "inAtom(m.Name, r.err)", only: fromOnly},
	{name: "Update", domain: of[logbook.Update](), message: of[v1.Update](), only: byHand},
	{name: "AtomChange", domain: of[logbook.AtomChange](), message: of[v1.AtomChange](), noun: "atom", wrap: "inAtom(m.Name, r.err)"},
	{name: "Attempt", domain: of[logbook.Attempt](), message: of[v1.Attempt](), noun: "attempt", only: fromOnly},
	{name: "Signal", domain: of[logbook.Signal](), message: of[v1.Signal](), noun: "signal", pointer: true, texts: []string{"Reject"}},
	{name: "Sending", domain: of[logbook.Sending](), message: of[v1.Sending](), noun: "sending"},
	{name: "Approval", domain: of[logbook.Approval](), message: of[v1.Approval](), noun: "approval", pointer: true, texts: []string{"Text"}},
	{name: "Need", domain: of[logbook.Need](), message: of[v1.Need](), noun: "need"},
	{name: "Reminder", domain: of[logbook.Reminder](), message: of[v1.Reminder](), noun: "reminder"},
	{name: "Decision", domain: of[logbook.Decision](), message: of[v1.Decision](), noun: "decision"},
	{name: "Wait", domain: of[logbook.Wait](), message: of[v1.Wait](), noun: "wait", pointer: true},
	{name: "Checkpoint", domain: of[logbook.Checkpoint](), message: of[v1.Checkpoint](), noun: "checkpoint"},
	{name: "checkpoints", domain: of[logbook.Checkpoints](), message: of[v1.Checkpoints](), noun: "checkpoints", pointer: true, within: true},
	{name: "folded", domain: of[logbook.Folded](), message: of[v1.Folded](), noun: "folded", zero: true, within: true},
	{name: "progress", domain: of[logbook.Progress](), message: of[v1.Progress](), noun: "progress", pointer: true, within: true},

	// Schedules.
	{
		name: "Schedule", domain: of[schedules.Schedule](), message: of[v1.Schedule](), noun: "schedule", flatten: []string{"Missed"},
		rename: map[string]string{"Missed.Policy": "Missed", "Missed.Last": "MissedLast", "Missed.Window": "MissedWindow"},
	},
	{name: "schedulePause", domain: of[schedules.Pause](), message: of[v1.SchedulePause](), noun: "schedule pause", texts: []string{"Reason"}, pointer: true, within: true},
	{
		name: "SlotRecord", domain: of[schedules.SlotRecord](), message: of[v1.SlotRecord](), noun: "slot", texts: []string{"Reason"},
		labels: map[string]string{"Slot": "slot"},
	},
	{
		name: "SlotDecision", domain: of[schedules.SlotDecision](), message: of[v1.SlotDecision](), noun: "slot", texts: []string{"Skip"},
		labels: map[string]string{"Slot": "slot"},
	},

	// Quotas.
	{name: "Quota", domain: of[access.Quota](), message: of[v1.Quota](), noun: "quota"},
	{name: "amounts", domain: of[access.Amounts](), message: of[v1.Amounts](), zero: true, sure: true},

	// Workers.
	{name: "LiveWorker", domain: of[steps.Live](), message: of[v1.LiveWorker](), noun: "worker"},
}
