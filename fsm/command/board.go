package command

import (
	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// BoardToProto converts a board; nil stays nil.
func BoardToProto(b *jobs.BoardStatus) *v1.Board {
	if b == nil {
		return nil
	}
	message := BoardHeadToProto(b)
	message.Counts = &v1.BoardCounts{
		Jobs: stateCountsToProto(b.Jobs), Bytes: b.Bytes, Parked: b.Parked,
		OldestClaimable: TimeToProto(b.OldestClaimable), NextDue: TimeToProto(b.NextDue),
		Posted: boardRateToProto(b.Posted), Finished: boardRateToProto(b.Finished), More: b.More,
	}
	for _, kind := range b.Kinds {
		message.Counts.Kinds = append(message.Counts.Kinds, &v1.BoardKind{Kind: kind.Kind, Jobs: stateCountsToProto(kind.Jobs)})
	}
	for _, holder := range b.Holders {
		message.Counts.Holders = append(message.Counts.Holders, &v1.BoardHolder{
			Session: idText(holder.Session.UUID), Owner: holder.Owner, Jobs: holder.Jobs,
		})
	}
	return message
}

// BoardHeadToProto converts the stored part of a board, without its counts.
func BoardHeadToProto(b *jobs.BoardStatus) *v1.Board {
	message := &v1.Board{Name: b.Name, CreatedAt: TimeToProto(b.CreatedAt), Limits: BoardLimitsToProto(b.Limits)}
	if b.Ageing != (jobs.BoardAgeing{}) {
		message.Ageing = &v1.BoardAgeing{Step: DurationToProto(b.Ageing.Step), Since: TimeToProto(b.Ageing.Since), Steps: b.Ageing.Steps}
	}
	if b.Pause != nil {
		message.Pause = &v1.BoardPause{By: b.Pause.By, Reason: text(b.Pause.Reason), At: TimeToProto(b.Pause.At)}
	}
	return message
}

// BoardFromProto converts a board. Nil is the zero board.
func BoardFromProto(message *v1.Board) (jobs.BoardStatus, error) {
	var r reader
	counts := message.GetCounts()
	b := jobs.BoardStatus{
		Name: message.GetName(), CreatedAt: r.time("board created_at", message.GetCreatedAt()),
		Limits: BoardLimitsFromProto(message.GetLimits()),
		Jobs:   stateCounts(&r, counts.GetJobs()), Bytes: counts.GetBytes(), Parked: counts.GetParked(),
		OldestClaimable: r.time("board oldest_claimable", counts.GetOldestClaimable()),
		NextDue:         r.time("board next_due", counts.GetNextDue()),
		Posted:          boardRate(counts.GetPosted()), Finished: boardRate(counts.GetFinished()), More: counts.GetMore(),
	}
	if pause := message.GetPause(); pause != nil {
		b.Pause = &jobs.BoardPause{By: pause.GetBy(), Reason: pause.GetReason(), At: r.time("board pause", pause.GetAt())}
	}
	if ageing := message.GetAgeing(); ageing != nil {
		b.Ageing = jobs.BoardAgeing{
			Step: r.duration("board ageing", ageing.GetStep()), Since: r.time("board ageing since", ageing.GetSince()), Steps: ageing.GetSteps(),
		}
	}
	for _, kind := range counts.GetKinds() {
		b.Kinds = append(b.Kinds, jobs.BoardKind{Kind: kind.GetKind(), Jobs: stateCounts(&r, kind.GetJobs())})
	}
	for _, holder := range counts.GetHolders() {
		b.Holders = append(b.Holders, jobs.BoardHolder{
			Session: jobs.SessionID{UUID: r.id("board holder", holder.GetSession())}, Owner: holder.GetOwner(), Jobs: holder.GetJobs(),
		})
	}
	if r.err != nil {
		return jobs.BoardStatus{}, r.err
	}
	return b, nil
}

// BoardLimitsToProto converts the limits of a board.
func BoardLimitsToProto(l jobs.BoardLimits) *v1.BoardLimits {
	if l == (jobs.BoardLimits{}) {
		return nil
	}
	return &v1.BoardLimits{Jobs: l.Jobs, Bytes: l.Bytes, PostingsPerSecond: l.PostingsPerSecond}
}

// BoardLimitsFromProto converts the limits of a board. Nil is none.
func BoardLimitsFromProto(message *v1.BoardLimits) jobs.BoardLimits {
	return jobs.BoardLimits{Jobs: message.GetJobs(), Bytes: message.GetBytes(), PostingsPerSecond: message.GetPostingsPerSecond()}
}

func boardRateToProto(rate jobs.BoardRate) *v1.BoardRate {
	return &v1.BoardRate{One: rate.One, Five: rate.Five, Fifteen: rate.Fifteen}
}

func boardRate(message *v1.BoardRate) jobs.BoardRate {
	return jobs.BoardRate{One: message.GetOne(), Five: message.GetFive(), Fifteen: message.GetFifteen()}
}

func stateCountsToProto(counts map[jobs.State]uint64) map[string]uint64 {
	message := make(map[string]uint64, len(counts))
	for state, n := range counts {
		message[string(state)] = n
	}
	return message
}

func stateCounts(r *reader, message map[string]uint64) map[jobs.State]uint64 {
	counts := make(map[jobs.State]uint64, len(message))
	for text, n := range message {
		counts[word(r, "board state", text, knownJobState)] = n
	}
	return counts
}

func checkLimitBoard(limits logbook.Limits, c *v1.LimitBoardCommand) error {
	if err := jobs.CheckBoardName(limits, c.GetBoard()); err != nil {
		return err
	}
	said := BoardLimitsFromProto(c.GetLimits())
	return jobs.CheckBoardLimits(&said)
}

func checkAgeBoard(limits logbook.Limits, c *v1.AgeBoardCommand) error {
	if err := jobs.CheckBoardName(limits, c.GetBoard()); err != nil {
		return err
	}
	step, err := DurationFromProto("board ageing", c.GetStep())
	if err != nil {
		return err
	}
	return jobs.CheckAgeing(step)
}

// checkBoardName checks a command that only names a board. Only the node sets By.
func checkBoardName(limits logbook.Limits, c *v1.BoardCommand) error {
	if c.GetReason() != "" {
		return &logbook.InvalidError{Field: "board reason", Reason: "must not be set: only a pause and a resume have a reason"}
	}
	return jobs.CheckBoardName(limits, c.GetBoard())
}

func checkBoardCommand(limits logbook.Limits, c *v1.BoardCommand) error {
	return jobs.CheckBoardCommand(limits, &jobs.BoardCommand{Board: c.GetBoard(), By: c.GetBy(), Reason: c.GetReason()})
}
