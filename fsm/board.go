package fsm

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/logbook"
)

var boardCountKey = []byte("boards")

// board reads a board without its counters. The default board exists even before it is stored.
func (v *view) board(name string) (board jobs.BoardStatus, found bool) {
	if len(name) > maxKeyName {
		return board, false
	}
	if known := v.heads[name]; known != nil {
		return *known, true
	}
	value := v.get(tableBoard, []byte(name))
	if value == nil {
		return jobs.BoardStatus{Name: name}, name == jobs.DefaultBoard
	}
	board = decodeBoard(name, value)
	if v.heads != nil {
		v.heads.keep(board)
	}
	return board, true
}

// existingBoard reads a board that a caller names. ErrNotFound.
func (v *view) existingBoard(name string) (jobs.BoardStatus, error) {
	board, found := v.board(cmp.Or(name, jobs.DefaultBoard))
	if !found {
		return board, fmt.Errorf("board %q: %w", name, jobs.ErrNotFound)
	}
	return board, nil
}

// paused reports whether a board is paused.
func (v *view) paused(name string) bool {
	board, _ := v.board(name)
	return board.Pause != nil
}

func (v *view) hasSchedules(board string) bool {
	if len(board) > maxKeyName {
		return false
	}
	key, _ := v.cursor(tableScheduleName).Seek(boardKey(board))
	return bytes.HasPrefix(key, boardKey(board))
}

// saveBoard writes an existing board, or the default board.
func (t *txn) saveBoard(board *jobs.BoardStatus) {
	row := t.boardRow(board.Name)
	if row == nil {
		t.makeBoard(board, "")
		return
	}
	t.writeBoard(board, row.GetMadeBy())
}

// makeBoard writes a new board, and counts it. It also counts the board for the principal by; empty: none.
func (t *txn) makeBoard(board *jobs.BoardStatus, by string) {
	board.CreatedAt = t.now
	t.countBoard(by, 1)
	t.writeBoard(board, by)
}

func (t *txn) countBoard(by string, n int) {
	t.addCount(tableBoardCount, boardCountKey, n)
	if by != "" {
		t.changedCounters(quotaCounters(access.Subject{Principal: by})).boards += uint64(n)
	}
}

func (t *txn) writeBoard(board *jobs.BoardStatus, madeBy string) {
	delete(t.heads, board.Name)
	head := command.BoardHeadToProto(board)
	t.putMessage(tableBoard, []byte(board.Name), nil, &v1.BoardRow{CreatedAt: head.CreatedAt, Limits: head.Limits, Pause: head.Pause, Ageing: head.Ageing, MadeBy: madeBy})
}

// boardRow returns the stored row of a board; nil: none.
func (v *view) boardRow(name string) *v1.BoardRow {
	value := v.get(tableBoard, []byte(name))
	if value == nil {
		return nil
	}
	return decode(value, &v1.BoardRow{}, func(row *v1.BoardRow) (*v1.BoardRow, error) { return row, nil })
}

func decodeBoard(name string, value []byte) jobs.BoardStatus {
	return decode(value, &v1.BoardRow{}, func(row *v1.BoardRow) (jobs.BoardStatus, error) {
		return command.BoardFromProto(&v1.Board{Name: name, CreatedAt: row.GetCreatedAt(), Limits: row.GetLimits(), Pause: row.GetPause(), Ageing: row.GetAgeing()})
	})
}

// roomForBoard refuses a new board over the limit of the cluster, or of the principal that makes it. A
// principal may make at most half of the remaining boards, so other principals can always make some.
func (t *txn) roomForBoard(name, by string) error {
	if len(name) > maxKeyName {
		return &logbook.LimitError{Field: "board", Limit: maxKeyName, Size: int64(len(name)), Unit: "bytes"}
	}
	count, own := t.storedCount(tableBoardCount, boardCountKey), uint64(0)
	if by != "" {
		own = t.countersOf(quotaCounters(access.Subject{Principal: by})).boards
	}
	share := (jobs.MaxKeptBoards - count + own + 1) / 2
	switch {
	case count >= jobs.MaxKeptBoards:
		return &logbook.LimitError{Field: "boards", Limit: jobs.MaxKeptBoards, Size: int64(count) + 1, Unit: "boards"}
	case by != "" && own >= share:
		what := fmt.Sprintf("the share of principal %q in the boards", by)
		return &fullError{what, &logbook.LimitError{Field: what, Limit: int64(share), Size: int64(own) + 1, Unit: "boards, which is half of the boards that other principals do not use"}, ""}
	}
	return nil
}

// createBoard makes a board. An existing board stays unchanged.
func (t *txn) createBoard(c *v1.BoardCommand) error {
	name := cmp.Or(c.GetBoard(), jobs.DefaultBoard)
	if t.get(tableBoard, []byte(name)) != nil {
		return nil
	}
	by := maker(t.by)
	if err := t.roomForBoard(name, by); err != nil {
		return fmt.Errorf("cannot create board %q: %w", name, err)
	}
	t.makeBoard(&jobs.BoardStatus{Name: name}, by)
	return nil
}

// maker returns the principal to which a caller's boards are charged. Boards of nodes, and of operators on a node's
// machine, are charged to nobody.
func maker(caller string) string {
	if strings.Contains(caller, "/") {
		return ""
	}
	return caller
}

// limitBoard replaces the limits of a board.
func (t *txn) limitBoard(c *v1.LimitBoardCommand) error {
	board, err := t.existingBoard(c.GetBoard())
	if err != nil {
		return fmt.Errorf("cannot limit: %w", err)
	}
	limits := command.BoardLimitsFromProto(c.GetLimits())
	if err := jobs.CheckBoardLimits(&limits); err != nil {
		return err
	}
	if board.Limits != limits {
		board.Limits = limits
		t.saveBoard(&board)
	}
	return nil
}

// pauseBoard stops all claims from a board.
func (t *txn) pauseBoard(c *v1.BoardCommand) error {
	board, err := t.existingBoard(c.GetBoard())
	if err != nil {
		return fmt.Errorf("cannot pause: %w", err)
	}
	if board.Pause != nil {
		return nil
	}
	board.Pause = &jobs.BoardPause{By: c.GetBy(), Reason: c.GetReason(), At: t.now}
	t.saveBoard(&board)
	t.tellOfBoard(jobs.EventBoardPaused, jobs.RequestSuspend, c)
	return nil
}

// resumeBoard ends a pause, and wakes the callers that wait for jobs of the board.
func (t *txn) resumeBoard(c *v1.BoardCommand) error {
	board, err := t.existingBoard(c.GetBoard())
	if err != nil {
		return fmt.Errorf("cannot resume: %w", err)
	}
	if board.Pause == nil {
		return nil
	}
	board.Pause = nil
	t.saveBoard(&board)
	for _, queue := range append(t.boardQueues(board.Name), t.reservedQueues(board.Name)...) {
		t.becameClaimable(queue)
	}
	t.tellOfBoard(jobs.EventBoardResumed, jobs.RequestResume, c)
	return nil
}

func (t *txn) tellOfBoard(kind jobs.EventKind, request jobs.RequestKind, c *v1.BoardCommand) {
	t.record(jobs.Event{
		Kind: kind, Board: cmp.Or(c.GetBoard(), jobs.DefaultBoard), Reason: c.GetReason(),
		Request: &jobs.OperatorRequest{Kind: request, By: c.GetBy(), Reason: c.GetReason(), At: t.now},
	})
}

// boardQueues returns the queues of a board that have jobs.
func (v *view) boardQueues(board string) []Queue {
	var queues []Queue
	prefix := boardKey(board)
	for _, key := range v.leap(tableClaimable, prefix, 1) {
		queues = append(queues, Queue{Board: board, Kind: string(key[len(prefix)+1:])})
	}
	for _, key := range v.leap(tableLabelled, prefix, 2) {
		kind := key[len(prefix)+1:][:key[len(prefix)]]
		labels := key[len(prefix)+1+len(kind)+1:]
		queues = append(queues, Queue{Board: board, Kind: string(kind), Labels: string(labels)})
	}
	return queues
}

// deleteBoard removes a board that no job and no schedule names.
func (t *txn) deleteBoard(c *v1.BoardCommand) error {
	board, err := t.existingBoard(c.GetBoard())
	if err != nil {
		return fmt.Errorf("cannot delete: %w", err)
	}
	if board.Name == jobs.DefaultBoard {
		return fmt.Errorf("cannot delete board %q: %w: the default board always exists", board.Name, jobs.ErrConflict)
	}
	counted := t.countersOf(board.Name, countersOfBoard, nil)
	unfinished, kept := counted.unfinished(), uint64(0)
	for _, n := range counted.jobs {
		kept += n
	}
	if kept > 0 {
		return fmt.Errorf("cannot delete board %q: %w: it has %d unfinished and %d finished jobs; first move or cancel the unfinished jobs, and purge the finished jobs",
			board.Name, jobs.ErrConflict, unfinished, kept-unfinished)
	}
	if t.hasSchedules(board.Name) {
		return fmt.Errorf("cannot delete board %q: %w: it has schedules; delete them first", board.Name, jobs.ErrConflict)
	}
	t.removePublications(board.Name)
	delete(t.heads, board.Name)
	t.countBoard(t.boardRow(board.Name).GetMadeBy(), -1)
	t.delete(tableBoard, []byte(board.Name))
	*t.changedCounters(board.Name, countersOfBoard, nil) = counters{changed: true}
	return nil
}

// admit refuses a new job if its board or a quota has no room for it. Otherwise it makes a missing board, and
// counts the posting in the rates. After admit, the job must be posted.
func (t *txn) admit(j *jobRecord) error {
	board, _ := t.board(j.Board)
	counted := t.countersOf(j.Board, countersOfBoard, nil)
	if over := overLoad(board.Limits.Jobs, board.Limits.Bytes, counted.unfinished(), counted.bytes, j.Size); over != nil {
		return ofBoard(j.Board, over)
	}
	charged, over := overRate(counted.bucket, t.now, board.Limits.PostingsPerSecond)
	if over != nil {
		return ofBoard(j.Board, over)
	}
	if err := t.checkQuotas(j, true); err != nil {
		return err
	}
	if t.heads[j.Board] == nil && t.get(tableBoard, []byte(j.Board)) == nil {
		by := maker(j.PostedBy)
		if err := t.roomForBoard(j.Board, by); err != nil {
			return err
		}
		t.makeBoard(&board, by)
	}
	if charged != counted.bucket {
		t.changedCounters(j.Board, countersOfBoard, nil).bucket = charged
	}
	t.chargeQuotas(j)
	return nil
}

// roomAgain refuses to reopen a finished job if another unfinished job has its key, or if the board or a quota
// has no room for it. A job that only continues its undo needs no room.
func (t *txn) roomAgain(j *jobRecord) error {
	if err := t.checkKey(j, j.Board); err != nil {
		return err
	}
	if j.isUnder(jobs.RequestCancel) {
		return nil
	}
	if err := t.roomOn(j.Board, j.Size); err != nil {
		return err
	}
	return t.checkQuotas(j, false)
}

// roomOn refuses one more unfinished job of a size if the board has no room for it.
func (t *txn) roomOn(name string, size uint64) error {
	board, _ := t.board(name)
	counted := t.countersOf(name, countersOfBoard, nil)
	if over := overLoad(board.Limits.Jobs, board.Limits.Bytes, counted.unfinished(), counted.bytes, size); over != nil {
		return ofBoard(name, over)
	}
	return nil
}

func ofBoard(name string, over *logbook.LimitError) error {
	over.Field = fmt.Sprintf("board %q %s", name, over.Field)
	return &fullError{fmt.Sprintf("board %q", name), over, raiseLimit}
}

// raiseLimit is the next step after the refusal of a posting.
const raiseLimit = "; try again later, or ask an administrator for a higher limit"

// fullError is a LimitError that names the board or the quota.
type fullError struct {
	what string
	*logbook.LimitError
	next string // the next step; empty: none
}

func (e *fullError) Error() string {
	unit := e.Unit
	if e.Limit == 1 && unit == unfinishedJobs {
		unit = "unfinished job"
	}
	return fmt.Sprintf("%s is at its limit: at most %d %s%s", e.what, e.Limit, unit, e.next)
}

// unfinishedJobs is the unit of limits of jobs.
const unfinishedJobs = "unfinished jobs"

func (e *fullError) Unwrap() error { return e.LimitError }

// overLoad returns the limit that one more unfinished job of this size would exceed; nil if there is room. A
// limit of 0 is no limit.
func overLoad(most, mostBytes, unfinished, bytes, size uint64) *logbook.LimitError {
	switch {
	case most > 0 && unfinished >= most:
		return &logbook.LimitError{Field: "jobs", Limit: int64(most), Size: int64(unfinished) + 1, Unit: unfinishedJobs}
	case mostBytes > 0 && bytes+size > mostBytes:
		return &logbook.LimitError{Field: "bytes", Limit: int64(mostBytes), Size: int64(bytes + size), Unit: "bytes of unfinished jobs"}
	}
	return nil
}

// overRate returns a bucket after one more posting, or the limit that the posting would exceed. A limit of 0 is
// no limit.
func overRate(b bucket, now time.Time, perSecond uint64) (bucket, *logbook.LimitError) {
	if perSecond == 0 {
		return b, nil
	}
	charged, room := b.charge(now, perSecond)
	if room {
		return charged, nil
	}
	return b, &logbook.LimitError{Field: "postings_per_second", Limit: int64(perSecond), Size: int64(perSecond) + 1, Unit: "postings a second"}
}

// BoardStatus reads a board with its kinds and holders. Rates are for the time now. ErrNotFound.
func (m *Machine) BoardStatus(name string, now time.Time) (jobs.BoardStatus, error) {
	var status jobs.BoardStatus
	err := m.read(func(v *view) (err error) {
		if status, err = v.existingBoard(name); err != nil {
			return err
		}
		v.fillBoard(&status, now)
		v.fillKinds(&status)
		v.fillHolders(&status)
		return nil
	})
	return status, err
}

// HasBoard reports whether a board exists, or has a schedule whose jobs will create it.
func (m *Machine) HasBoard(name string) (has bool) {
	err := m.read(func(v *view) error {
		_, err := v.existingBoard(name)
		has = err == nil || v.hasSchedules(name)
		return nil
	})
	return err == nil && has
}

// BoardList reads a page of up to limit boards, sorted by name, without kinds and holders. A limit of 0 or over
// logbook.MaxPage means logbook.MaxPage.
func (m *Machine) BoardList(after string, limit int, now time.Time) (page jobs.Page[jobs.BoardStatus], err error) {
	limit = pageSize(limit)
	err = m.read(func(v *view) error {
		names, more := v.boardNames(after, limit)
		for _, name := range names {
			board, err := v.existingBoard(name)
			if err != nil {
				return err
			}
			v.fillBoard(&board, now)
			page.Items = append(page.Items, board)
		}
		if more {
			page.Next = names[len(names)-1]
		}
		return nil
	})
	return page, err
}

// boardNames returns the names of a page of boards, and whether more follow. It includes the default board even
// before that is stored.
func (v *view) boardNames(after string, limit int) (names []string, more bool) {
	size, unstored := 0, v.get(tableBoard, []byte(jobs.DefaultBoard)) == nil && after < jobs.DefaultBoard
	cursor := v.cursor(tableBoard)
	key, value := cursor.Seek([]byte(after))
	if string(key) == after {
		key, value = cursor.Next()
	}
	for key != nil || unstored {
		if len(names) == limit || size >= maxPageBytes {
			return names, true
		}
		if unstored && (key == nil || string(key) > jobs.DefaultBoard) {
			names, unstored = append(names, jobs.DefaultBoard), false
			continue
		}
		names, size = append(names, string(key)), size+len(value)
		key, value = cursor.Next()
	}
	return names, false
}

// fillBoard adds the counters of a whole board.
func (v *view) fillBoard(status *jobs.BoardStatus, now time.Time) {
	counted := v.counters(countersKey(status.Name, countersOfBoard, nil))
	status.Jobs, status.Bytes, status.Parked = counted.byState(), counted.bytes, v.storedCount(tableParked, []byte(status.Name))
	status.Posted, status.Finished = counted.posted.spans(now), counted.finished.spans(now)
	status.OldestClaimable = v.firstWaiting(status.Name, waitsForClaim)
	status.NextDue = v.firstWaiting(status.Name, waitsForTime)
}

func (v *view) fillKinds(status *jobs.BoardStatus) {
	prefix := countersKey(status.Name, countersOfKind, nil)
	v.scan(tableCounters, prefix, func(key, value []byte) bool {
		if status.More = len(status.Kinds) == jobs.MaxBoardRows; status.More {
			return false
		}
		counted := decode(value, &v1.Counters{}, countersFromProto)
		status.Kinds = append(status.Kinds, jobs.BoardKind{Kind: string(key[len(prefix):]), Jobs: counted.byState()})
		return true
	})
}

func (v *view) fillHolders(status *jobs.BoardStatus) {
	prefix := countersKey(status.Name, countersOfHolder, nil)
	v.scan(tableCounters, prefix, func(key, value []byte) bool {
		if len(status.Holders) == jobs.MaxBoardRows {
			status.More = true
			return false
		}
		counted := decode(value, &v1.Counters{}, countersFromProto)
		holder := jobs.BoardHolder{Jobs: counted.jobs[stateNumber(jobs.StateClaimed)]}
		copy(holder.Session.UUID[:], key[len(prefix):])
		session, _ := v.findSession(holder.Session)
		holder.Owner = session.Name
		status.Holders = append(status.Holders, holder)
		return true
	})
}
