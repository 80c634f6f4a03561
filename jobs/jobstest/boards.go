package jobstest

import (
	"time"

	"github.com/conductord/conductord/jobs"
)

var boardRows = []row{
	{"a board is made with its first job, or before", boardsAreMade},
	{"no caller gets a job from a paused board", pausedBoard},
	{"resuming a board wakes waiting callers", resumingWakes},
	{"a full board refuses postings", fullBoard},
	{"a board bounds its postings a second", boundedRate},
	{"a board counts its jobs", boardCounts},
	{"only an empty board can be deleted", emptyBoardsGo},
	{"a pause and its end are events", pausesAreTold},
	{"an explanation names the pause", pauseExplained},
	{"where waiting raises priority, nothing waits for ever", ageingRaises},
	{"ageing is bounded and can be switched off", ageingIsSaid},
}

func (k *kit) status() jobs.BoardStatus {
	k.Helper()
	return k.statusOf(k.board)
}

func (k *kit) statusOf(board string) jobs.BoardStatus {
	k.Helper()
	status, err := k.Board.BoardStatus(k.ctx, board)
	if err != nil {
		k.Fatalf("BoardStatus: %v", err)
	}
	return status
}

// ordered makes a command about the row's board.
func (k *kit) ordered() jobs.BoardCommand {
	return jobs.BoardCommand{Board: k.board, By: "ann", Reason: "the roof leaks"}
}

func (k *kit) pause() {
	k.Helper()
	if err := k.Board.PauseBoard(k.ctx, k.ordered()); err != nil {
		k.Fatalf("PauseBoard: %v", err)
	}
}

func boardsAreMade(k *kit) {
	for what, do := range map[string]func() error{
		"status": func() error { _, err := k.Board.BoardStatus(k.ctx, k.board); return err },
		"limit":  func() error { return k.Board.LimitBoard(k.ctx, k.board, jobs.BoardLimits{Jobs: 1}) },
		"pause":  func() error { return k.Board.PauseBoard(k.ctx, k.ordered()) },
		"resume": func() error { return k.Board.ResumeBoard(k.ctx, k.ordered()) },
		"delete": func() error { return k.Board.DeleteBoard(k.ctx, k.board) },
	} {
		k.wants(what+" of an unknown board", do(), jobs.ErrNotFound)
	}
	k.wants("CreateBoard", k.Board.CreateBoard(k.ctx, k.board), nil)
	made := k.status()
	if made.Name != k.board || made.CreatedAt.IsZero() || len(made.Jobs) != 0 {
		k.Errorf("made %s", render(made))
	}
	k.posted("a")
	k.wants("CreateBoard again", k.Board.CreateBoard(k.ctx, k.board), nil)
	if again := k.status(); !again.CreatedAt.Equal(made.CreatedAt) || again.Jobs[jobs.StateClaimable] != 1 {
		k.Errorf("made %s, and then %s", render(made), render(again))
	}
	status, err := k.Board.BoardStatus(k.ctx, "")
	if err != nil || status.Name != jobs.DefaultBoard {
		k.Errorf("the default board is %s, %v", render(status), err)
	}
	seen, last := map[string]bool{}, ""
	for after := ""; ; {
		page, err := k.Board.BoardList(k.ctx, after, 7)
		if err != nil || len(page.Items) > 7 {
			k.Fatalf("BoardList after %q: %d boards, %v", after, len(page.Items), err)
		}
		for _, board := range page.Items {
			if board.Name <= last || seen[board.Name] || len(board.Kinds) > 0 {
				k.Errorf("after %q comes %s", last, render(board))
			}
			last, seen[board.Name] = board.Name, true
		}
		if after = page.Next; after == "" {
			break
		}
	}
	if !seen[k.board] || !seen[jobs.DefaultBoard] {
		k.Errorf("listed %v", seen)
	}
}

func pausedBoard(k *kit) {
	session := k.session("worker")
	held := k.owned(session, "held")
	job := k.posted("waits")
	k.pause()
	if pause := k.status().Pause; pause == nil || pause.By != "ann" || pause.Reason != "the roof leaks" || pause.At.IsZero() {
		k.Errorf("paused by %s", render(pause))
	}
	before := k.status()
	k.wants("PauseBoard again", k.Board.PauseBoard(k.ctx, jobs.BoardCommand{Board: k.board, By: "bob"}), nil)
	k.same("the pause", k.status().Pause, before.Pause)

	k.same("ClaimNext", names(k.next(k.request(session))), []string{})
	_, err := k.Board.Claim(k.ctx, session, job.ID, jobs.NewNonce())
	k.wants("Claim", err, jobs.ErrUnclaimable)
	k.posted("is accepted")
	k.wants("Consume of what was claimed before", k.Board.Consume(k.ctx, success(held)), nil)

	k.wants("ResumeBoard", k.Board.ResumeBoard(k.ctx, k.ordered()), nil)
	k.wants("ResumeBoard again", k.Board.ResumeBoard(k.ctx, k.ordered()), nil)
	if got := k.soon(session); got.Job.ID != job.ID {
		k.Errorf("claimed %s", render(got.Job))
	}
}

func resumingWakes(k *kit) {
	first, second := k.session("first"), k.session("second")
	k.post(k.labelled("a", "gpu"), k.posting("b"))
	k.pause()
	answered := k.asleep(first)
	request := k.offering(second, true, "gpu")
	request.Wait, request.Max = parked, 1
	labelled := k.park(k.ctx, request)
	k.linger(first)
	k.wants("ResumeBoard", k.Board.ResumeBoard(k.ctx, k.ordered()), nil)
	if got := k.wakes("ClaimNext", labelled); got.Job.Name == "b" {
		// The other caller can take it too: then no job is left for a caller that offers no labels.
		k.posted("c")
	}
	if got := k.wakes("ClaimNext without labels", answered); got.Job.Name == "a" {
		k.Errorf("got %s", render(got.Job))
	}
}

func fullBoard(k *kit) {
	session := k.session("worker")
	first := k.owned(session, "first")
	limit := func(limits jobs.BoardLimits) {
		k.Helper()
		k.wants("LimitBoard", k.Board.LimitBoard(k.ctx, k.board, limits), nil)
		k.same("limits", k.status().Limits, limits)
	}
	limit(jobs.BoardLimits{Jobs: 2})
	again := k.posting("second")
	k.post(again)
	k.wantsLimit("a third job", k.verdict(k.posting("third")), 2, 3)
	k.wants("a repeat of the second", k.verdict(again), nil)
	k.wants("Consume", k.Board.Consume(k.ctx, success(first)), nil)
	k.posted("third, now that the first is finished")

	used := k.status().Bytes
	limit(jobs.BoardLimits{Bytes: used})
	k.wantsLimit("a byte too many", k.verdict(k.posting("fourth")), int(used), int(used)+1)
	limit(jobs.BoardLimits{})
	k.posted("fourth")
	k.wantsLimit("a limit that is none", k.Board.LimitBoard(k.ctx, k.board, jobs.BoardLimits{PostingsPerSecond: jobs.MaxPostingRate + 1}),
		jobs.MaxPostingRate, jobs.MaxPostingRate+1)
}

func boundedRate(k *kit) {
	k.wants("CreateBoard", k.Board.CreateBoard(k.ctx, k.board), nil)
	k.wants("LimitBoard", k.Board.LimitBoard(k.ctx, k.board, jobs.BoardLimits{PostingsPerSecond: 3}), nil)
	// One call counts at one moment, so it can contain the postings of one second.
	answers, err := k.Board.Post(k.ctx, k.posting("a"), k.posting("b"), k.posting("c"), k.posting("d"))
	if err != nil || len(answers) != 4 {
		k.Fatalf("Post: %d answers, %v", len(answers), err)
	}
	for _, accepted := range answers[:3] {
		k.wants("one of three", accepted.Err, nil)
	}
	k.wantsLimit("the fourth", answers[3].Err, 3, 4)
}

func boardCounts(k *kit) {
	session := k.session("counter")
	done := k.owned(session, "done")
	k.wants("Consume", k.Board.Consume(k.ctx, success(done)), nil)
	held := k.owned(session, "held by its owner")
	later := k.posting("later")
	later.NotBefore = time.Now().Add(time.Hour).UTC()
	other := k.posting("other")
	other.Kind += " other"
	k.post(later, other)
	first := k.posted("a")
	k.posted("b")

	got := k.status()
	want := jobs.BoardStatus{
		Name: k.board, CreatedAt: got.CreatedAt,
		Jobs: map[jobs.State]uint64{
			jobs.StateCompleted: 1, jobs.StateClaimed: 1, jobs.StateDelayed: 1, jobs.StateClaimable: 3,
		},
		Bytes:           held.Job.Size + k.job(later.ID).Size + k.job(other.ID).Size + 2*first.Size,
		OldestClaimable: k.job(other.ID).ClaimableAt, NextDue: k.job(later.ID).DueAt,
		Posted: jobs.BoardRate{One: 6, Five: 6, Fifteen: 6}, Finished: jobs.BoardRate{One: 1, Five: 1, Fifteen: 1},
		Kinds: []jobs.BoardKind{
			{Kind: k.kind, Jobs: map[jobs.State]uint64{
				jobs.StateCompleted: 1, jobs.StateClaimed: 1, jobs.StateDelayed: 1, jobs.StateClaimable: 2,
			}},
			{Kind: other.Kind, Jobs: map[jobs.State]uint64{jobs.StateClaimable: 1}},
		},
		Holders: []jobs.BoardHolder{{Session: session, Owner: "counter", Jobs: 1}},
	}
	k.same("the board", got, want)
	if got.Unfinished() != 5 {
		k.Errorf("%d jobs are unfinished", got.Unfinished())
	}

	// The priority of a job does not change its waiting time.
	high := jobs.High
	k.wants("Change", k.Board.Change(k.ctx, jobs.Change{Job: other.ID, Priority: &high}), nil)
	k.wants("Abandon", k.Board.Abandon(k.ctx, release(held)), nil)
	got = k.status()
	if !got.OldestClaimable.Equal(want.OldestClaimable) || len(got.Holders) != 0 || got.Jobs[jobs.StateClaimable] != 4 {
		k.Errorf("the board is %s", render(got))
	}
}

func emptyBoardsGo(k *kit) {
	k.wants("delete the default board", k.Board.DeleteBoard(k.ctx, ""), jobs.ErrConflict)
	k.wants("CreateBoard", k.Board.CreateBoard(k.ctx, k.board), nil)
	k.wants("LimitBoard", k.Board.LimitBoard(k.ctx, k.board, jobs.BoardLimits{Jobs: 1}), nil)
	k.wants("DeleteBoard", k.Board.DeleteBoard(k.ctx, k.board), nil)
	k.wantsGone("DeleteBoard again", func() error { return k.Board.DeleteBoard(k.ctx, k.board) })
	job := k.posted("a")
	if limits := k.status().Limits; limits != (jobs.BoardLimits{}) {
		k.Errorf("the new board has the limits %+v", limits)
	}
	k.wants("delete a board with a job", k.Board.DeleteBoard(k.ctx, k.board), jobs.ErrConflict)
	claimed := k.claim(k.session("worker"), job.ID)
	k.wants("Consume", k.Board.Consume(k.ctx, success(claimed)), nil)
	k.wants("delete a board with a finished job", k.Board.DeleteBoard(k.ctx, k.board), jobs.ErrConflict)
}

func pausesAreTold(k *kit) {
	k.posted("a")
	k.pause()
	k.pause()
	k.wants("ResumeBoard", k.Board.ResumeBoard(k.ctx, k.ordered()), nil)
	events, err := k.watch(jobs.Watch{After: &jobs.Position{}, Board: k.board}, 3)
	if err != nil || len(events) != 3 {
		k.Fatalf("events %s, %v", render(events), err)
	}
	for i, want := range []jobs.EventKind{jobs.EventPosted, jobs.EventBoardPaused, jobs.EventBoardResumed} {
		if got := events[i]; got.Kind != want || got.Job.IsZero() != (i > 0) {
			k.Errorf("event %d is %s, not %s", i, render(got), want)
		}
	}
	if order := events[1].Request; order == nil || order.By != "ann" || events[1].Reason != "the roof leaks" {
		k.Errorf("the event of the pause is %s", render(events[1]))
	}
}

func pauseExplained(k *kit) {
	job := k.posted("a")
	k.pause()
	explanation, err := k.Board.Explain(k.ctx, job.ID)
	if err != nil || explanation.Cause != jobs.CauseBoardPaused {
		k.Errorf("explained by %s, %v", render(explanation), err)
	}
}

// pass waits on the board's own clock: for a job with this delay, on a board that only this row
// uses.
func (k *kit) pass(session jobs.SessionID, span time.Duration) {
	k.Helper()
	clock := k.posting("clock")
	clock.Board, clock.NotBefore = k.board+" clock", time.Now().Add(span)
	k.post(clock)
	request := k.request(session)
	request.Boards, request.Wait = []string{clock.Board}, parked
	k.same("the clock", names(k.next(request)), []string{"clock"})
}

func ageingRaises(k *kit) {
	session := k.session("worker")
	k.wants("CreateBoard", k.Board.CreateBoard(k.ctx, k.board), nil)
	k.wants("AgeBoard", k.Board.AgeBoard(k.ctx, k.board, jobs.MinAgeing), nil)
	old := k.posting("old")
	old.Priority = jobs.Low
	equal := k.posting("its equal")
	equal.Priority, equal.Kind = jobs.Low, k.kind+" too"
	k.post(old, equal)
	k.pass(session, 2*jobs.MinAgeing)
	for name, priority := range map[string]jobs.Priority{"raised": jobs.Low + 1, "higher": jobs.High} {
		posting := k.posting(name)
		posting.Priority = priority
		k.post(posting)
	}
	all := k.request(session)
	all.Max = 10
	for _, kinds := range [][]string{nil, {k.kind, k.kind + " too"}} {
		all.Kinds, all.Nonce = kinds, jobs.NewNonce()
		claimed := k.next(all)
		k.same("the order", names(claimed), []string{"higher", "old", "its equal", "raised"})
		for i := range claimed {
			k.wants("Abandon", k.Board.Abandon(k.ctx, release(claimed[i])), nil)
		}
	}
	explanation, err := k.Board.Explain(k.ctx, old.ID)
	if err != nil || explanation.Job != old.ID {
		k.Errorf("explained by %s, %v", render(explanation), err)
	}
}

func ageingIsSaid(k *kit) {
	k.wants("ageing of an unknown board", k.Board.AgeBoard(k.ctx, k.board, time.Minute), jobs.ErrNotFound)
	k.wants("CreateBoard", k.Board.CreateBoard(k.ctx, k.board), nil)
	k.wantsInvalid("a step too short", k.Board.AgeBoard(k.ctx, k.board, jobs.MinAgeing-1))
	k.wantsInvalid("a step too long", k.Board.AgeBoard(k.ctx, k.board, jobs.MaxAgeing+1))
	k.wants("AgeBoard by none, which it was", k.Board.AgeBoard(k.ctx, k.board, 0), nil)
	k.same("what never aged", k.status().Ageing, jobs.BoardAgeing{})
	k.wants("AgeBoard", k.Board.AgeBoard(k.ctx, k.board, time.Minute), nil)
	first := k.status().Ageing
	if first.Step != time.Minute || first.Steps != 0 || first.Since.IsZero() {
		k.Errorf("it ages by %s", render(first))
	}
	k.wants("AgeBoard again", k.Board.AgeBoard(k.ctx, k.board, time.Minute), nil)
	k.same("the same said again", k.status().Ageing, first)
	job := k.posted("a")
	if got := k.job(job.ID); got.Effective == nil || *got.Effective < got.Priority {
		k.Errorf("a job counts for %s", render(got))
	}
	k.wants("AgeBoard off", k.Board.AgeBoard(k.ctx, k.board, 0), nil)
	if off := k.status().Ageing; off.Step != 0 || off.Since.IsZero() {
		k.Errorf("switched off, it ages by %s", render(off))
	}
}
