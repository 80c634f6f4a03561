package fsm_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// modelBoard is a board that was created explicitly or by a posting.
type modelBoard struct {
	jobs.BoardStatus // without counts and ageing
	modelBucket
	spans []ageingSpan // see model.age
}

func boardNamed(name string) string { return cmp.Or(name, jobs.DefaultBoard) }

// stored returns a board, and creates it if it does not exist.
func (m *model) stored(name string) *modelBoard {
	if m.boards[name] == nil {
		m.boards[name] = &modelBoard{BoardStatus: jobs.BoardStatus{Name: name, CreatedAt: m.now}}
	}
	return m.boards[name]
}

// head is the status of a board; the default board need not be stored.
func (m *model) head(name string) (jobs.BoardStatus, error) {
	board := m.boards[boardNamed(name)]
	switch {
	case board != nil:
		return board.BoardStatus, nil
	case boardNamed(name) == jobs.DefaultBoard:
		return jobs.BoardStatus{Name: jobs.DefaultBoard}, nil
	}
	return jobs.BoardStatus{}, jobs.ErrNotFound
}

func (m *model) paused(name string) bool { return m.boards[name] != nil && m.boards[name].Pause != nil }

func (m *model) limitBoard(c *v1.LimitBoardCommand) error {
	board, err := m.head(c.Board)
	if limits := command.BoardLimitsFromProto(c.Limits); err == nil && limits != board.Limits {
		m.stored(board.Name).Limits = limits
	}
	return err
}

func (m *model) pauseBoard(c *v1.BoardCommand) error {
	board, err := m.head(c.Board)
	if err == nil && board.Pause == nil {
		m.stored(board.Name).Pause = &jobs.BoardPause{By: c.By, Reason: c.Reason, At: m.now}
	}
	return err
}

func (m *model) resumeBoard(c *v1.BoardCommand) error {
	board, err := m.head(c.Board)
	if err == nil && board.Pause != nil {
		m.stored(board.Name).Pause = nil
	}
	return err
}

func (m *model) deleteBoard(name string) error {
	if _, err := m.head(name); err != nil {
		return err
	}
	for _, j := range m.jobs {
		if j.Board == name {
			return jobs.ErrConflict
		}
	}
	for schedule := range m.schedules {
		if schedule.Board == name {
			return jobs.ErrConflict
		}
	}
	if name == jobs.DefaultBoard {
		return jobs.ErrConflict
	}
	delete(m.boards, name)
	m.forgetPublications(name)
	return nil
}

// limits returns the limits of a board, which may not exist.
func (m *model) limits(name string) jobs.BoardLimits {
	if board := m.boards[name]; board != nil {
		return board.Limits
	}
	return jobs.BoardLimits{}
}

func overLimit(board, what string, limit, size uint64, unit string) error {
	return fmt.Errorf("board %q is at its limit: at most %d %s; try again later, or ask an administrator for a higher limit%w", board, limit, singular(limit, unit), silent{&logbook.LimitError{Field: what, Limit: int64(limit), Size: int64(size), Unit: unit}})
}

// singular returns the unit of a limit of jobs.
func singular(limit uint64, unit string) string {
	if limit == 1 && unit == "unfinished jobs" {
		return "unfinished job"
	}
	return unit
}

// room refuses a job that exceeds the limits of a board.
func (m *model) room(name string, size uint64) error {
	limits := m.limits(name)
	unfinished, bytes := m.load(name)
	switch {
	case limits.Jobs > 0 && unfinished >= limits.Jobs:
		return overLimit(name, "jobs", limits.Jobs, unfinished+1, "unfinished jobs")
	case limits.Bytes > 0 && bytes+size > limits.Bytes:
		return overLimit(name, "bytes", limits.Bytes, bytes+size, "bytes of unfinished jobs")
	}
	return nil
}

// admit admits a posting to a board, and creates the board if necessary.
func (m *model) admit(name string, size uint64) error {
	if err := m.room(name, size); err != nil {
		return err
	}
	perSecond := m.limits(name).PostingsPerSecond
	if perSecond > 0 && m.boards[name].full(m.now, perSecond) {
		return overLimit(name, "postings_per_second", perSecond, perSecond+1, "postings a second")
	}
	if err := m.quotasHold(name, m.by, size, true); err != nil {
		return err
	}
	m.stored(name).charge(m.now, perSecond)
	for _, q := range m.covering(name, m.by) {
		q.charge(m.now, q.Limits.PostingsPerSecond)
	}
	return nil
}

// roomAgain refuses to reopen a finished job if another job has its key, or if the board is full. A
// job that is only reverted further needs no room.
func (m *model) roomAgain(j *modelJob, undone bool) error {
	if holder := m.holder(j.Board, j.Key); holder != nil && holder != j {
		m.taken++
		return jobs.ErrConflict
	}
	if undone {
		return nil
	}
	if err := m.room(j.Board, j.Size); err != nil {
		return err
	}
	return m.quotasHold(j.Board, j.PostedBy, j.Size, false)
}

// load is the number and bytes of unfinished jobs on a board.
func (m *model) load(name string) (unfinished, bytes uint64) {
	for _, j := range m.jobs {
		if j.Board == name && !j.State.Finished() {
			unfinished++
			bytes += j.Size
		}
	}
	return unfinished, bytes
}

// boardLines are the boards with their counts.
func (m *model) boardLines() []string {
	names := slices.Sorted(maps.Keys(m.boards))
	if !slices.Contains(names, jobs.DefaultBoard) {
		names = append(names, jobs.DefaultBoard)
	}
	slices.Sort(names)
	var lines []string
	for _, name := range names {
		board, err := m.head(name)
		if err != nil {
			panic(err)
		}
		board.Jobs = map[jobs.State]uint64{}
		_, board.Bytes = m.load(name)
		board.Ageing = m.ageing(name)
		kinds, holders := map[string]map[jobs.State]uint64{}, map[string]uint64{}
		for _, j := range m.jobs {
			if j.Board != name {
				continue
			}
			board.Jobs[j.State]++
			if kinds[j.Kind] == nil {
				kinds[j.Kind] = map[jobs.State]uint64{}
			}
			kinds[j.Kind][j.State]++
			if j.Claim != nil {
				holders[j.Claim.Session.String()]++
			}
			if waits := j.State == jobs.StateDelayed || j.State.Pauses(); waits && (board.NextDue.IsZero() || j.DueAt.Before(board.NextDue)) {
				board.NextDue = j.DueAt
			}
		}
		for kind, counts := range kinds {
			board.Kinds = append(board.Kinds, jobs.BoardKind{Kind: kind, Jobs: counts})
		}
		for session, held := range holders {
			board.Holders = append(board.Holders, jobs.BoardHolder{Session: parsedSession(session), Owner: m.sessions[session].name, Jobs: held})
		}
		lines = append(lines, boardLine(board))
	}
	return lines
}

// silent is an error that is wrapped but not printed again.
type silent struct{ error }

func (silent) Error() string   { return "" }
func (s silent) Unwrap() error { return s.error }
