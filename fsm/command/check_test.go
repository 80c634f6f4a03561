package command_test

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/logbook"
)

func hexOf(data []byte) string { return hex.EncodeToString(data) }

func TestCheckAcceptsTheSamples(t *testing.T) {
	for _, c := range samples() {
		if err := command.Check(logbook.MaxLimits, c); err != nil {
			t.Errorf("%s: %v", command.Name(c), err)
		}
	}
}

// sample is a new copy of the sample with a name, which a row can invalidate.
func sample(t *testing.T, name string) *v1.Command {
	t.Helper()
	for _, c := range samples() {
		if command.Name(c) == name {
			return c
		}
	}
	t.Fatalf("no sample of %s", name)
	return nil
}

func TestCheckNamesTheBadField(t *testing.T) {
	tooLong := strings.Repeat("n", logbook.MaxLimits.Name+1)
	for _, row := range []struct {
		command string
		field   string
		spoil   func(*v1.Command)
	}{
		{"post", "job id", func(c *v1.Command) { c.GetPost().Postings[1].Id = "" }},
		{"post", "posting name", func(c *v1.Command) { c.GetPost().Postings[1].Name = "" }},
		{"post", "posting board", func(c *v1.Command) { c.GetPost().Postings[1].Board = tooLong }},
		{"post", "posting details", func(c *v1.Command) { c.GetPost().Postings[0].Details = value(`{`) }},
		{"post", "posting store.x", func(c *v1.Command) { c.GetPost().Postings[0].Store = []*v1.NamedValue{{Name: "x"}} }},
		{"post", "posting kind", func(c *v1.Command) { c.GetPost().Postings[0].Kind = "k" }},
		{"post", "posting key", func(c *v1.Command) { c.GetPost().Postings[1].Key = "a\nb" }},
		{"post", "posting tags", func(c *v1.Command) { c.GetPost().Postings[1].Tags = []string{"a", "a"} }},
		{"post", "posting tags", func(c *v1.Command) { c.GetPost().Postings[1].Tags = []string{""} }},
		{"post", "posting deadline", func(c *v1.Command) { c.GetPost().Postings[0].Deadline = c.GetPost().Postings[0].NotBefore }},
		{"post", "posting labels", func(c *v1.Command) { c.GetPost().Postings[1].Labels = []string{"a", "a"} }},
		{"claim_next", "claim labels", func(c *v1.Command) { c.GetClaimNext().Labels = []string{""} }},
		{"register", "entity labels", func(c *v1.Command) { c.GetRegister().Entity.Labels = []string{"a", "a"} }},
		{"post", "posting max_crashes", func(c *v1.Command) { c.GetPost().Postings[1].MaxCrashes = 1_001 }},
		{"post", "retry attempts", func(c *v1.Command) { c.GetPost().Postings[1].Retry = &v1.RetryPolicy{Attempts: 101} }},
		{"post", "retry on_failure", func(c *v1.Command) { c.GetPost().Postings[1].Retry = &v1.RetryPolicy{OnFailure: "hope"} }},
		{"post", "flow factory", func(c *v1.Command) { c.GetPost().Postings[0].Book.Flows[0].Factory = nil }},
		{"post", "postings", func(c *v1.Command) { c.GetPost().Postings = nil }},
		{"post", "job id", func(c *v1.Command) { c.GetPost().Postings = []*v1.Posting{nil} }},
		{"post", "postings", func(c *v1.Command) { c.Kind = &v1.Command_Post{} }},
		{"claim", "claim session", func(c *v1.Command) { c.GetClaim().Session = "" }},
		{"claim", "claim job", func(c *v1.Command) { c.GetClaim().Job = "x" }},
		{"claim", "claim nonce", func(c *v1.Command) { c.GetClaim().Nonce = "" }},
		{"claim_next", "claim session", func(c *v1.Command) { c.GetClaimNext().Session = "" }},
		{"claim_next", "claim nonce", func(c *v1.Command) { c.GetClaimNext().Nonce = "x" }},
		{"claim_next", "claim boards", func(c *v1.Command) { c.GetClaimNext().Boards = []string{"a", "a"} }},
		{"claim_next", "claim kinds", func(c *v1.Command) { c.GetClaimNext().Kinds = []string{""} }},
		{"claim_next", "claim max", func(c *v1.Command) { c.GetClaimNext().Max = 257 }},
		{"consume", "ending outcome", func(c *v1.Command) { c.GetConsume().Outcome = "" }},
		{"consume", "ending outcome", func(c *v1.Command) { c.GetConsume().Outcome = "well" }},
		{"consume", "ending delay", func(c *v1.Command) { c.GetConsume().Delay = durationpb.New(1) }},
		{"consume", "ending token", func(c *v1.Command) { c.GetConsume().Token = nil }},
		{"consume", "atom name", func(c *v1.Command) { c.GetConsume().Update.Atoms[0].Name = "" }},
		{"abandon", "ending outcome", func(c *v1.Command) { c.GetAbandon().Outcome = "success" }},
		{"abandon", "ending delay", func(c *v1.Command) { c.GetAbandon().Delay = durationpb.New(-1) }},
		{"trash", "ending outcome", func(c *v1.Command) { c.GetTrash().Outcome = "failed" }},
		{"trash", "ending delay", func(c *v1.Command) { c.GetTrash().Delay = durationpb.New(1) }},
		{"trash", "ending job", func(c *v1.Command) { c.GetTrash().Job = "" }},
		{"trash", "ending failure kind", func(c *v1.Command) { c.GetTrash().Failure.Kind = "" }},
		{"suspend", "command job", func(c *v1.Command) { c.GetSuspend().Job = "" }},
		{"suspend", "command revert", func(c *v1.Command) { c.GetSuspend().Revert = true }},
		{"resume", "command revert", func(c *v1.Command) { c.GetResume().Revert = true }},
		{"resume", "command by", func(c *v1.Command) { c.GetResume().By = tooLong }},
		{"intervene", "intervention flow", func(c *v1.Command) { c.GetIntervene().Flow = "" }},
		{"intervene", "intervention id", func(c *v1.Command) { c.GetIntervene().Id = "" }},
		{"intervene", "intervention id", func(c *v1.Command) { c.GetIntervene().Id = "x" }},
		{"intervene", "intervention kind", func(c *v1.Command) { c.GetIntervene().Kind = "mend" }},
		{"intervene", "intervention step", func(c *v1.Command) { c.GetIntervene().Step = "" }},
		{"intervene", "intervention by", func(c *v1.Command) { c.GetIntervene().By = "" }},
		{"intervene", "intervention result", func(c *v1.Command) { c.GetIntervene().Kind = "skip" }},
		{"intervene", "intervention hold", func(c *v1.Command) { c.GetIntervene().Kind, c.GetIntervene().Result = "rerun", nil }},
		{"intervene", "intervention reason", func(c *v1.Command) { c.GetIntervene().Reason = strings.Repeat("x", 1<<10+1) }},
		{"cancel", "command job", func(c *v1.Command) { c.GetCancel().Job = "x" }},
		{"cancel", "command by", func(c *v1.Command) { c.GetCancel().By = "a\nb" }},
		{"cancel", "command reason", func(c *v1.Command) { c.GetCancel().Reason = strings.Repeat("x", 4<<10+1) }},
		{"change", "change job", func(c *v1.Command) { c.GetChange().Job = "" }},
		{"change", "change", func(c *v1.Command) { c.Kind = &v1.Command_Change{Change: &v1.Change{Job: jobA}} }},
		{"change", "change by", func(c *v1.Command) { c.GetChange().By = tooLong }},
		{"change", "change reason", func(c *v1.Command) { c.GetChange().Reason = strings.Repeat("x", 4<<10+1) }},
		{"change", "change not_before", func(c *v1.Command) { c.GetChange().NotBefore.Seconds = -1 }},
		{"open_session", "session id", func(c *v1.Command) { c.GetOpenSession().Id = "" }},
		{"open_session", "session name", func(c *v1.Command) { c.GetOpenSession().Name = "a\nb" }},
		{"open_session", "session ttl", func(c *v1.Command) { c.GetOpenSession().Ttl = durationpb.New(1) }},
		{"close_session", "session id", func(c *v1.Command) { c.GetCloseSession().Session = "" }},
		{"register", "session id", func(c *v1.Command) { c.GetRegister().Session = "x" }},
		{"register", "entity kind", func(c *v1.Command) { c.GetRegister().Entity = nil }},
		{"register", "entity name", func(c *v1.Command) { c.GetRegister().Entity.Name = "" }},
		{"save_book", "book id", func(c *v1.Command) { c.GetSaveBook().Id = "" }},
		{"save_book", "book name", func(c *v1.Command) { c.GetSaveBook().Name = "" }},
		{"update_flow", "update flow", func(c *v1.Command) { c.GetUpdateFlow().Flow = "" }},
		{"update_flow", "update state", func(c *v1.Command) { c.GetUpdateFlow().State = "x" }},
		{"update_flow", "update cause kind", func(c *v1.Command) { c.GetUpdateFlow().Cause.Kind = "" }},
		{"destroy_book", "book id", func(c *v1.Command) { c.GetDestroyBook().Book = "" }},
		{"raise_version", "version", func(c *v1.Command) { c.GetRaiseVersion().Version = 0 }},
		{"raise_version", "version", func(c *v1.Command) { c.GetRaiseVersion().Version = command.Version + 1 }},
		{"begin_leadership", "leader node", func(c *v1.Command) { c.GetBeginLeadership().Node = "" }},
		{"expire_session", "session id", func(c *v1.Command) { c.GetExpireSession().Session = "" }},
		{"expire_session", "timer epoch", func(c *v1.Command) { c.GetExpireSession().TimerEpoch = 0 }},
		{"expire_session", "session cool_down", func(c *v1.Command) { c.GetExpireSession().CoolDown = durationpb.New(-1) }},
		{"wake_due", "timer epoch", func(c *v1.Command) { c.GetWakeDue().TimerEpoch = 0 }},
		{"wake_due", "timer max", func(c *v1.Command) { c.GetWakeDue().Max = 0 }},
		{"sweep", "timer max", func(c *v1.Command) { c.GetSweep().Max = command.MaxTimerWork + 1 }},
		{"sweep", "sweep max_age", func(c *v1.Command) { c.GetSweep().MaxAge = durationpb.New(-1) }},
		{"sweep", "command", func(c *v1.Command) { c.Kind = nil }},
		{"sweep", "conductord.v1.Command", func(c *v1.Command) { c.ProtoReflect().SetUnknown(withField(nil)) }},
		{"post", "conductord.v1.Posting", func(c *v1.Command) { c.GetPost().Postings[1] = newerPosting(t) }},
	} {
		c := sample(t, row.command)
		row.spoil(c)
		err := command.Check(logbook.MaxLimits, c)
		if got := fieldOf(err); got != row.field {
			t.Errorf("%s: got %v, want the field %q to be refused", row.command, err, row.field)
		}
	}
}

// fieldOf is the field that an error names.
func fieldOf(err error) string {
	var invalid *logbook.InvalidError
	var limit *logbook.LimitError
	switch {
	case errors.As(err, &invalid):
		return invalid.Field
	case errors.As(err, &limit):
		return limit.Field
	}
	return ""
}

func TestCheckAtTheLimitOfACommand(t *testing.T) {
	for _, c := range samples() {
		limits := logbook.MaxLimits
		limits.Command = command.Size(c)
		if err := command.Check(limits, c); err != nil {
			t.Errorf("%s at the limit: %v", command.Name(c), err)
		}
		limits.Command--
		want := &logbook.LimitError{
			Field: "command", Limit: int64(limits.Command), Size: int64(limits.Command) + 1, Unit: "bytes",
		}
		var got *logbook.LimitError
		if err := command.Check(limits, c); !errors.As(err, &got) || *got != *want {
			t.Errorf("%s over the limit: %v, want %v", command.Name(c), err, want)
		}
	}
}

func TestCheckAtTheLimitOfPostings(t *testing.T) {
	var many []*v1.Posting
	for i := range command.MaxPostings + 1 {
		many = append(many, &v1.Posting{Id: fmt.Sprintf("0190c7e2-0000-7000-8000-%012d", i+1), Name: "n"})
	}
	if err := command.Check(logbook.MaxLimits, postOf(many[1:]...)); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	var limit *logbook.LimitError
	if err := command.Check(logbook.MaxLimits, postOf(many...)); !errors.As(err, &limit) || limit.Size != command.MaxPostings+1 {
		t.Errorf("over the limit: %v", err)
	}
}

func TestCheckPostingJudgesOne(t *testing.T) {
	if _, err := command.CheckPosting(logbook.MaxLimits, samplePosting()); err != nil {
		t.Errorf("the sample: %v", err)
	}
	bad := samplePosting()
	bad.Name = "a\tb"
	err := command.Check(logbook.MaxLimits, postOf(samplePosting(), bad))
	if _, alone := command.CheckPosting(logbook.MaxLimits, bad); alone == nil || !strings.HasSuffix(err.Error(), alone.Error()) ||
		!strings.HasPrefix(err.Error(), "posting 2 of 2: ") {
		t.Errorf("alone %v, in a command %v", alone, err)
	}
}

func TestCheckPostingAtTheLimitOfACommand(t *testing.T) {
	limits := logbook.MaxLimits
	limits.Command = command.Size(postOf(samplePosting()))
	if _, err := command.CheckPosting(limits, samplePosting()); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	limits.Command--
	var limit *logbook.LimitError
	_, err := command.CheckPosting(limits, samplePosting())
	if !errors.As(err, &limit) || limit.Field != "posting" || limit.Size != int64(limits.Command)+1 {
		t.Errorf("over the limit: %v", err)
	}
}

// TestCheckChangesNothing: the check before a proposal does not change the client's command.
func TestCheckChangesNothing(t *testing.T) {
	for _, c := range samples() {
		before := proto.Clone(c)
		if err := command.Check(logbook.MaxLimits, c); err != nil || !proto.Equal(before, c) {
			t.Errorf("%s was changed, or refused: %v", command.Name(c), err)
		}
	}
}
