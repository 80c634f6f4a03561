package command_test

import (
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// TestEveryNounSurvivesTheWire encodes and decodes each domain type, and checks that each of its
// fields was tested.
func TestEveryNounSurvivesTheWire(t *testing.T) {
	t.Run("Job", func(t *testing.T) { roundTrip(t, boardJobs, command.JobToProto, command.JobFromProto) })
	t.Run("Posting", func(t *testing.T) { roundTrip(t, postings, command.PostingToProto, command.PostingFromProto, "Err") })
	t.Run("Claimed", func(t *testing.T) { roundTrip(t, claimed, command.ClaimedToProto, command.ClaimedFromProto) })
	t.Run("Claim", func(t *testing.T) { roundTrip(t, claims, command.ClaimToProto, throughPointer(command.ClaimFromProto)) })
	t.Run("HeldClaim", func(t *testing.T) {
		roundTrip(t, heldClaims, command.HeldClaimToProto, command.HeldClaimFromProto)
	})
	t.Run("Watch", func(t *testing.T) { roundTrip(t, watches, command.WatchToProto, command.WatchFromProto, "Begin") })
	t.Run("Ending", func(t *testing.T) { roundTrip(t, endings, command.EndingToProto, command.EndingFromProto) })
	t.Run("Order", func(t *testing.T) { roundTrip(t, orders, command.JobCommandToProto, command.JobCommandFromProto) })
	t.Run("OperatorRequest", func(t *testing.T) {
		roundTrip(t, standingOrders, command.OperatorRequestToProto, throughPointer(command.OperatorRequestFromProto))
	})
	t.Run("Change", func(t *testing.T) { roundTrip(t, jobChanges, command.ChangeToProto, command.ChangeFromProto) })
	t.Run("Explanation", func(t *testing.T) {
		roundTrip(t, explanations, command.ExplanationToProto, command.ExplanationFromProto)
	})
	t.Run("Board", func(t *testing.T) { roundTrip(t, boardStatuses, command.BoardToProto, command.BoardFromProto) })
	t.Run("AuditRecord", func(t *testing.T) { roundTrip(t, auditRecords, command.RecordToProto, command.RecordFromProto) })
	t.Run("Principal", func(t *testing.T) { roundTrip(t, principals, command.PrincipalToProto, command.PrincipalFromProto) })
	t.Run("Quota", func(t *testing.T) { roundTrip(t, quotas, command.QuotaToProto, command.QuotaFromProto) })
	t.Run("Drain", func(t *testing.T) { roundTrip(t, drains, command.DrainToProto, command.DrainFromProto) })
	t.Run("DrainCommand", func(t *testing.T) {
		roundTrip(t, drainOrders, command.DrainCommandToProto, func(m *v1.DrainCommand) (jobs.DrainCommand, error) {
			return command.DrainCommandFromProto(m), nil
		})
	})
	t.Run("Schedule", func(t *testing.T) {
		roundTrip(t, drawnSchedules, command.ScheduleToProto, command.ScheduleFromProto, "Posting.Err")
	})
	t.Run("SlotRecord", func(t *testing.T) {
		roundTrip(t, slotRecords, command.SlotRecordToProto, command.SlotRecordFromProto)
	})
	t.Run("SlotDecision", func(t *testing.T) {
		roundTrip(t, slotDecisions, command.SlotDecisionToProto, command.SlotDecisionFromProto)
	})
	t.Run("ClaimRequest", func(t *testing.T) {
		roundTrip(t, requests, command.ClaimRequestToProto, command.ClaimRequestFromProto, "Wait")
	})
	t.Run("Opening", func(t *testing.T) { roundTrip(t, openings, command.OpeningToProto, command.OpeningFromProto) })
	t.Run("Session", func(t *testing.T) { roundTrip(t, sessions, command.SessionToProto, command.SessionFromProto) })
	t.Run("Entity", func(t *testing.T) { roundTrip(t, entities, command.EntityToProto, command.EntityFromProto) })
	t.Run("Event", func(t *testing.T) { roundTrip(t, events, command.EventToProto, command.EventFromProto) })
	t.Run("Position", func(t *testing.T) {
		roundTrip(t, positions,
			func(p *jobs.Position) *v1.Position { return command.PositionToProto(*p) },
			func(m *v1.Position) (jobs.Position, error) { return command.PositionFromProto(m), nil })
	})
	t.Run("Book", func(t *testing.T) { roundTrip(t, books, command.BookToProto, command.BookFromProto) })
	t.Run("FlowDetail", func(t *testing.T) {
		roundTrip(t, flows, command.FlowDetailToProto, command.FlowDetailFromProto)
	})
	t.Run("AtomDetail", func(t *testing.T) {
		roundTrip(t, atoms, command.AtomDetailToProto, command.AtomDetailFromProto)
	})
	t.Run("Attempt", func(t *testing.T) { roundTrip(t, attempts, command.AttemptToProto, command.AttemptFromProto) })
	t.Run("Update", func(t *testing.T) { roundTrip(t, updates, command.UpdateToProto, command.UpdateFromProto) })
	t.Run("AtomChange", func(t *testing.T) {
		roundTrip(t, changes, command.AtomChangeToProto, command.AtomChangeFromProto)
	})
	t.Run("Failure", func(t *testing.T) {
		roundTrip(t, failures, command.FailureToProto, func(m *v1.Failure) (logbook.Failure, error) {
			return *command.FailureFromProto(m), nil
		})
	})
	t.Run("JobError", func(t *testing.T) { roundTrip(t, jobErrors, command.JobErrorToProto, command.JobErrorFromProto) })
	t.Run("ErrorQuery", func(t *testing.T) {
		roundTrip(t, errorQueries, command.ErrorQueryToProto, command.ErrorQueryFromProto)
	})
	t.Run("Query", func(t *testing.T) { roundTrip(t, jobQueries, command.QueryToProto, command.QueryFromProto) })
	t.Run("Bulk", func(t *testing.T) { roundTrip(t, bulks, command.BulkToProto, command.BulkFromProto) })
	t.Run("Token", func(t *testing.T) {
		roundTrip(t, tokens,
			func(token *logbook.Token) *v1.Token { return command.TokenToProto(*token) },
			func(m *v1.Token) (logbook.Token, error) { return command.TokenFromProto(m), nil })
	})
}

// TestSignalsSurviveTheWire: a sent signal, except its time, which the cluster sets.
func TestSignalsSurviveTheWire(t *testing.T) {
	roundTrip(t, rapid.Custom(func(t *rapid.T) jobs.SignalCommand {
		sent := jobs.SignalCommand{Job: jobs.JobID{UUID: ids.Draw(t, "job")}, Board: rapid.String().Draw(t, "board"), Key: rapid.String().Draw(t, "key"), Signal: signals.Draw(t, "signal")}
		sent.Signal.At = time.Time{}
		return sent
	}), command.SignalCommandToProto, command.SignalCommandFromProto, "Signal.At")
}

func throughPointer[D any, M proto.Message](from func(M) (*D, error)) func(M) (D, error) {
	return func(m M) (D, error) {
		d, err := from(m)
		if err != nil {
			return *new(D), err
		}
		return *d, nil
	}
}

func roundTrip[D any, M proto.Message](
	t *testing.T, gen *rapid.Generator[D], to func(*D) M, from func(M) (D, error), elsewhere ...string,
) {
	touched := map[string]bool{}
	rapid.Check(t, func(t *rapid.T) {
		sent := gen.Draw(t, "sent")
		touch(touched, "", reflect.ValueOf(sent))
		encoded, err := proto.Marshal(to(&sent))
		if err != nil {
			t.Fatalf("cannot encode: %v", err)
		}
		message := (*new(M)).ProtoReflect().New().Interface().(M)
		if err := proto.Unmarshal(encoded, message); err != nil {
			t.Fatalf("cannot decode: %v", err)
		}
		got, err := from(message)
		if err != nil {
			t.Fatalf("cannot convert back: %v", err)
		}
		if !reflect.DeepEqual(got, sent) {
			t.Fatalf("sent %+v\n got %+v", sent, got)
		}
	})
	for _, field := range elsewhere {
		touched[field] = true
	}
	if !testing.Short() { // a fifth of the draws does not reach all fields
		demandTouched(t, touched, "", reflect.TypeFor[D](), nil)
	}
}

// touch records the fields that were not zero in some drawn value.
func touch(touched map[string]bool, path string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			touch(touched, path, v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			touch(touched, path, v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() && !v.Field(i).IsZero() {
				touched[path+field.Name] = true
				touch(touched, path+field.Name+".", v.Field(i))
			}
		}
	}
}

// demandTouched fails for a field that no value had. Otherwise the missing conversion of a new
// domain field would be unnoticed.
func demandTouched(t *testing.T, touched map[string]bool, path string, typ reflect.Type, above []reflect.Type) {
	t.Helper()
	for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
		typ = typ.Elem()
	}
	if typ.Kind() != reflect.Struct || typ == reflect.TypeFor[time.Time]() {
		return
	}
	for _, seen := range above {
		if seen == typ {
			return // the causes of a failure are failures
		}
	}
	for i := range typ.NumField() {
		field := typ.Field(i)
		if !field.IsExported() {
			continue
		}
		if !touched[path+field.Name] {
			t.Errorf("no value was drawn with a field %s%s", path, field.Name)
			continue
		}
		demandTouched(t, touched, path+field.Name+".", field.Type, append(above, typ))
	}
}

func TestNilIsZero(t *testing.T) {
	type row struct {
		name string
		zero bool
		err  error
	}
	var rows []row
	add := func(name string, value any, err error) {
		v := reflect.ValueOf(value)
		rows = append(rows, row{name, v.IsZero(), err})
	}
	job, err := command.JobFromProto(nil)
	add("job", job, err)
	posting, err := command.PostingFromProto(nil)
	add("posting", posting, err)
	answer, err := command.ClaimedFromProto(nil)
	add("claimed", answer, err)
	claim, err := command.ClaimFromProto(nil)
	add("claim", claim, err)
	ending, err := command.EndingFromProto(nil)
	add("ending", ending, err)
	opening, err := command.OpeningFromProto(nil)
	add("opening", opening, err)
	session, err := command.SessionFromProto(nil)
	add("session", session, err)
	entity, err := command.EntityFromProto(nil)
	add("entity", entity, err)
	event, err := command.EventFromProto(nil)
	add("event", event, err)
	book, err := command.BookFromProto(nil)
	add("book", book, err)
	flow, err := command.FlowDetailFromProto(nil)
	add("flow", flow, err)
	update, err := command.UpdateFromProto(nil)
	add("update", update, err)
	add("failure", command.FailureFromProto(nil), nil)
	add("token", command.TokenFromProto(nil), nil)
	for _, r := range rows {
		if !r.zero || r.err != nil {
			t.Errorf("%s from nil: zero %t, error %v", r.name, r.zero, r.err)
		}
	}
	for name, message := range map[string]proto.Message{
		"job": command.JobToProto(nil), "posting": command.PostingToProto(nil), "claimed": command.ClaimedToProto(nil),
		"claim": command.ClaimToProto(nil), "ending": command.EndingToProto(nil), "opening": command.OpeningToProto(nil),
		"session": command.SessionToProto(nil), "entity": command.EntityToProto(nil), "event": command.EventToProto(nil),
		"book": command.BookToProto(nil), "flow": command.FlowDetailToProto(nil), "update": command.UpdateToProto(nil),
		"failure": command.FailureToProto(nil), "atom": command.AtomDetailToProto(nil),
		"attempt": command.AttemptToProto(nil), "change": command.AtomChangeToProto(nil),
		"request": command.ClaimRequestToProto(nil), "error": command.ErrorToProto(nil),
	} {
		if message.ProtoReflect().IsValid() {
			t.Errorf("%s to a message from nil: %v", name, message)
		}
	}
}
