package command

import (
	"fmt"

	"google.golang.org/protobuf/types/known/durationpb"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// MaxPostings bounds the postings of one command, so that no command delays the others for
// long.
const MaxPostings = 1_000

// MaxTimerWork limits the jobs that one wake_due or sweep changes. The next command handles the
// rest.
const MaxTimerWork = 10_000

// Check refuses invalid commands before they reach the log: wrong names, values, counts, sizes and
// ids. Its error is a *logbook.LimitError or *logbook.InvalidError with the name of the field. It
// reads only the command, not the state: the state machine checks, for example, whether a job
// exists.
//
// One bad posting refuses the whole post command. A caller that needs a verdict for each posting
// first calls CheckPosting, and leaves out the refused postings.
func Check(limits logbook.Limits, c *v1.Command) error {
	if err := checkFrame(limits, c); err != nil {
		return err
	}
	return VerbOf(c).check(limits, c)
}

// CheckClaimNext is Check of a claim_next. It returns the request, so the caller need not convert it again.
func CheckClaimNext(limits logbook.Limits, c *v1.Command) (jobs.ClaimRequest, error) {
	if err := checkFrame(limits, c); err != nil {
		return jobs.ClaimRequest{}, err
	}
	return claimRequest(limits, c.GetClaimNext())
}

// CheckPost is Check for a post command. Before it checks the next posting, it passes each valid
// posting to also, with its place. It returns the number of postings that passed both, and the
// error of the first posting that did not.
func CheckPost(limits logbook.Limits, c *v1.Command, also func(place int, posting *jobs.Posting) error) (passed int, err error) {
	if err := checkFrame(limits, c); err != nil {
		return 0, err
	}
	return checkPostings(limits, c.GetPost(), also)
}

// checkFrame checks the common parts of all commands.
func checkFrame(limits logbook.Limits, c *v1.Command) error {
	if size := Size(c); size > limits.Command {
		return &logbook.LimitError{Field: "command", Limit: int64(limits.Command), Size: int64(size), Unit: "bytes"}
	}
	if VerbOf(c) == nil {
		return &logbook.InvalidError{Field: "command", Reason: "not set, or not supported by this program"}
	}
	if name, found := c.UnknownField(); found {
		return unknownField(name)
	}
	return nil
}

// CheckPosting checks one posting, and returns it as a domain value. It requires the posting's id:
// without an id, the log could not distinguish a posting from its repeat. An accepted posting fits
// into its own command.
func CheckPosting(limits logbook.Limits, p *v1.Posting) (jobs.Posting, error) {
	alone := &v1.Command{Kind: &v1.Command_Post{Post: &v1.PostCommand{Postings: []*v1.Posting{p}}}}
	if size := Size(alone); size > limits.Command {
		return jobs.Posting{}, &logbook.LimitError{Field: "posting", Limit: int64(limits.Command), Size: int64(size), Unit: "bytes"}
	}
	if name, found := p.UnknownField(); found {
		return jobs.Posting{}, unknownField(name)
	}
	return checkPosting(limits, p)
}

func unknownField(name string) error {
	return &logbook.InvalidError{Field: name, Reason: "holds a field that this program does not know"}
}

// checkPosting checks one posting of a command whose size was already checked.
func checkPosting(limits logbook.Limits, p *v1.Posting) (jobs.Posting, error) {
	posting, err := PostingFromProto(p)
	if err == nil && posting.ID.IsZero() {
		err = &logbook.InvalidError{Field: "job id", Reason: "unset"}
	}
	if err == nil {
		err = jobs.CheckPosting(limits, &posting)
	}
	return posting, err
}

func checkPost(limits logbook.Limits, c *v1.PostCommand) error {
	_, err := checkPostings(limits, c, func(int, *jobs.Posting) error { return nil })
	return err
}

func checkPostings(limits logbook.Limits, c *v1.PostCommand, also func(place int, posting *jobs.Posting) error) (passed int, err error) {
	switch n := len(c.GetPostings()); {
	case n == 0:
		return 0, &logbook.InvalidError{Field: "postings", Reason: "none"}
	case n > MaxPostings:
		return 0, &logbook.LimitError{Field: "postings", Limit: MaxPostings, Size: int64(n), Unit: "postings"}
	}
	for i, p := range c.GetPostings() {
		posting, err := checkPosting(limits, p)
		if err == nil {
			err = also(i, &posting)
		}
		if err != nil {
			return i, fmt.Errorf("posting %d of %d: %w", i+1, len(c.GetPostings()), err)
		}
	}
	return len(c.GetPostings()), nil
}

func checkClaim(_ logbook.Limits, c *v1.ClaimCommand) error {
	return checkIDs(
		field{"claim session", c.GetSession()}, field{"claim job", c.GetJob()}, field{"claim nonce", c.GetNonce()})
}

func checkClaimNext(limits logbook.Limits, c *v1.ClaimNextCommand) error {
	_, err := claimRequest(limits, c)
	return err
}

// claimRequest converts a claim_next, and checks it.
func claimRequest(limits logbook.Limits, c *v1.ClaimNextCommand) (jobs.ClaimRequest, error) {
	if err := checkIDs(field{"claim session", c.GetSession()}, field{"claim nonce", c.GetNonce()}); err != nil {
		return jobs.ClaimRequest{}, err
	}
	request, err := ClaimRequestFromProto(c)
	if err != nil {
		return jobs.ClaimRequest{}, err
	}
	return request, jobs.CheckClaimRequest(limits, &request)
}

func checkExtend(_ logbook.Limits, c *v1.ExtendClaimCommand) error {
	if err := checkIDs(field{"claim job", c.GetJob()}); err != nil {
		return err
	}
	if TokenFromProto(c.GetToken()).IsZero() {
		return &logbook.InvalidError{Field: "claim token", Reason: "unset"}
	}
	expiry, err := DurationFromProto("claim expiry", c.GetExpiry())
	if err != nil {
		return err
	}
	return jobs.CheckExpiry(expiry)
}

// converted checks a message that represents a domain value: the message must convert, and the
// value must pass its own check.
func converted[M, D any](from func(M) (D, error), check func(logbook.Limits, *D) error) func(logbook.Limits, M) error {
	return func(limits logbook.Limits, message M) error {
		value, err := from(message)
		if err != nil {
			return err
		}
		return check(limits, &value)
	}
}

var (
	checkEnding     = converted(EndingFromProto, jobs.CheckEnding)
	checkJobCommand = converted(JobCommandFromProto, jobs.CheckJobCommand) // common parts of all commands about a job
)

// checkConsume, checkAbandon and checkTrash check the common fields of the three endings. They
// refuse fields of the other endings, which would be lost.
func checkConsume(limits logbook.Limits, e *v1.Ending) error {
	if e.GetOutcome() == "" {
		return &logbook.InvalidError{Field: "ending outcome", Reason: "unset; a consumed job has one"}
	}
	if e.GetDelay() != nil {
		return &logbook.InvalidError{Field: "ending delay", Reason: "set; only an abandoned job has one"}
	}
	return checkEnding(limits, e)
}

func checkAbandon(limits logbook.Limits, e *v1.Ending) error {
	if err := checkUnconsumed(e); err != nil {
		return err
	}
	return checkEnding(limits, e)
}

// checkUnconsumed refuses fields that only a consume has.
func checkUnconsumed(e *v1.Ending) error {
	switch {
	case e.GetOutcome() != "":
		return &logbook.InvalidError{Field: "ending outcome", Reason: "set; only a consumed job has one"}
	case e.GetAgain() != nil:
		return &logbook.InvalidError{Field: "ending again", Reason: "set; only a consumed job can continue"}
	}
	return nil
}

func checkTrash(limits logbook.Limits, e *v1.Ending) error {
	if err := checkUnconsumed(e); err != nil {
		return err
	}
	if e.GetDelay() != nil {
		return &logbook.InvalidError{Field: "ending delay", Reason: "set; only an abandoned job has one"}
	}
	return checkEnding(limits, e)
}

func checkCloseSession(_ logbook.Limits, c *v1.CloseSessionCommand) error {
	return checkIDs(field{"session id", c.GetSession()})
}

func checkDestroyBook(_ logbook.Limits, c *v1.DestroyBookCommand) error {
	return checkIDs(field{"book id", c.GetBook()})
}

func checkRegister(limits logbook.Limits, c *v1.RegisterCommand) error {
	if err := checkIDs(field{"session id", c.GetSession()}); err != nil {
		return err
	}
	entity, err := EntityFromProto(c.GetEntity())
	if err != nil {
		return err
	}
	return jobs.CheckEntity(limits, &entity)
}

// The leader's commands come from our own code. They are checked anyway, because every node applies
// all commands in the log.

func checkBeginLeadership(limits logbook.Limits, c *v1.BeginLeadershipCommand) error {
	return limits.CheckName("leader node", c.GetNode())
}

func checkRaiseVersion(_ logbook.Limits, c *v1.RaiseVersionCommand) error {
	if c.GetVersion() < 1 || c.GetVersion() > Version {
		return &logbook.InvalidError{Field: "version", Reason: fmt.Sprintf("is %d; this program supports 1 to %d", c.GetVersion(), Version)}
	}
	return nil
}

func checkWakeDue(_ logbook.Limits, c *v1.WakeDueCommand) error {
	return checkTimer(c.GetTimerEpoch(), c.GetMax())
}

func checkExpire(_ logbook.Limits, c *v1.ExpireSessionCommand) error {
	if err := checkIDs(field{"session id", c.GetSession()}); err != nil {
		return err
	}
	return checkLapse("session cool_down", c.GetCoolDown(), c.GetTimerEpoch())
}

func checkExpireClaim(_ logbook.Limits, c *v1.ExpireClaimCommand) error {
	if err := checkIDs(field{"claim job", c.GetJob()}); err != nil {
		return err
	}
	if TokenFromProto(c.GetToken()).IsZero() {
		return &logbook.InvalidError{Field: "claim token", Reason: "unset"}
	}
	return checkLapse("claim cool_down", c.GetCoolDown(), c.GetTimerEpoch())
}

// checkLapse checks the fields of the leader's expiry commands.
func checkLapse(name string, given *durationpb.Duration, epoch uint64) error {
	coolDown, err := DurationFromProto(name, given)
	switch {
	case err != nil:
		return err
	case coolDown < 0:
		return &logbook.InvalidError{Field: name, Reason: "negative"}
	case epoch == 0:
		return &logbook.InvalidError{Field: "timer epoch", Reason: "unset"}
	}
	return nil
}

func checkSweep(_ logbook.Limits, c *v1.SweepCommand) error {
	age, err := DurationFromProto("sweep max_age", c.GetMaxAge())
	switch {
	case err != nil:
		return err
	case age < 0:
		return &logbook.InvalidError{Field: "sweep max_age", Reason: "negative"}
	}
	return checkTimer(c.GetTimerEpoch(), c.GetMax())
}

func checkTimer(epoch uint64, most uint32) error {
	switch {
	case epoch == 0:
		return &logbook.InvalidError{Field: "timer epoch", Reason: "unset"}
	case most == 0:
		return &logbook.InvalidError{Field: "timer max", Reason: "unset"}
	case most > MaxTimerWork:
		return &logbook.LimitError{Field: "timer max", Limit: MaxTimerWork, Size: int64(most), Unit: "jobs"}
	}
	return nil
}

// field is a field of a message that must hold an id.
type field struct{ name, text string }

func checkIDs(fields ...field) error {
	for _, f := range fields {
		if f.text == "" {
			return &logbook.InvalidError{Field: f.name, Reason: "unset"}
		}
		if _, err := logbook.ParseID(f.name, f.text); err != nil {
			return err
		}
	}
	return nil
}
