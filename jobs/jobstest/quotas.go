package jobstest

import (
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
)

var quotaRows = []row{
	{"the boards of a quota are bounded together", quotaOfBoards},
	{"a quota below the current use refuses only new work", quotaBelowUse},
	{"all quotas and the limits of the board hold", quotasHoldTogether},
	{"postings a second of a quota", quotaRate},
	{"quotas are saved, listed and deleted", savedQuotas},
	{"a quota that says nothing, or cannot be, is refused", badQuotas},
}

func (k *kit) quotas() access.Quotas {
	k.Helper()
	quotas, ok := k.Board.(access.Quotas)
	if !ok {
		k.Fatal("the board keeps no quotas")
	}
	return quotas
}

// together is a subject that covers the row's own boards, including k.board.
func (k *kit) together() access.Subject { return access.Subject{Boards: k.board + "*"} }

func (k *kit) saveQuota(of access.Subject, limits access.Amounts) {
	k.Helper()
	k.wants("SaveQuota", k.quotas().SaveQuota(k.ctx, access.Quota{Subject: of, Limits: limits}), nil)
}

func (k *kit) deleteQuota(of access.Subject) {
	k.Helper()
	k.wants("DeleteQuota", k.quotas().DeleteQuota(k.ctx, of), nil)
}

// quota reads a quota; nil if there is none.
func (k *kit) quota(of access.Subject) *access.Quota {
	k.Helper()
	for after := ""; ; {
		page, err := k.quotas().Quotas(k.ctx, after)
		if err != nil {
			k.Fatal(err)
		}
		for i := range page.Items {
			if page.Items[i].Subject == of {
				return &page.Items[i]
			}
		}
		if after = page.Next; after == "" {
			return nil
		}
	}
}

func (k *kit) elsewhere(name string) jobs.Posting {
	posting := k.posting(name)
	posting.Board = k.board + " too"
	return posting
}

func quotaOfBoards(k *kit) {
	first := k.owned(k.session("worker"), "first") // before the quota
	k.saveQuota(k.together(), access.Amounts{Jobs: 2})
	defer k.deleteQuota(k.together())
	k.post(k.elsewhere("second"))
	k.wantsLimit("a third job", k.verdict(k.posting("third")), 2, 3)
	k.wantsLimit("a third job on another of the boards", k.verdict(k.elsewhere("third")), 2, 3)
	outside := k.posting("outside")
	outside.Board = "other " + k.board
	k.post(outside)
	if used := k.quota(k.together()).Used; used.Jobs != 2 || used.Bytes == 0 {
		k.Errorf("used %+v", used)
	}
	k.wants("Consume", k.Board.Consume(k.ctx, success(first)), nil)
	k.post(k.elsewhere("third"))
}

func quotaBelowUse(k *kit) {
	first := k.posted("first")
	k.posted("second")
	k.saveQuota(k.together(), access.Amounts{Jobs: 1})
	defer k.deleteQuota(k.together())
	k.wantsLimit("a third job", k.verdict(k.posting("third")), 1, 3)
	claimed := k.claim(k.session("worker"), first.ID)
	k.wants("Trash", k.Board.Trash(k.ctx, release(claimed)), nil)
	k.wantsLimit("a job restored from the trash", k.restored(first.ID), 1, 2)
	k.saveQuota(k.together(), access.Amounts{Jobs: 2})
	k.wants("Retry", k.restored(first.ID), nil)
	k.saveQuota(k.together(), access.Amounts{Bytes: k.quota(k.together()).Used.Bytes})
	used := int(k.quota(k.together()).Used.Bytes)
	again := k.posting("third")
	k.wants("a byte too many", k.verdict(again), jobs.ErrLimit)
	k.saveQuota(k.together(), access.Amounts{Bytes: uint64(2 * used)})
	k.post(again)
}

func (k *kit) restored(id jobs.JobID) error {
	return k.Board.Retry(k.ctx, jobs.JobCommand{Job: id})
}

func quotasHoldTogether(k *kit) {
	alone := access.Subject{Boards: k.board}
	k.wants("CreateBoard", k.Board.CreateBoard(k.ctx, k.board), nil)
	k.wants("LimitBoard", k.Board.LimitBoard(k.ctx, k.board, jobs.BoardLimits{Jobs: 3}), nil)
	k.saveQuota(k.together(), access.Amounts{Jobs: 2})
	defer k.deleteQuota(k.together())
	k.saveQuota(alone, access.Amounts{Jobs: 1})
	k.posted("first")
	k.wantsLimit("over the quota of the board alone", k.verdict(k.posting("second")), 1, 2)
	k.deleteQuota(alone)
	k.posted("second")
	k.wantsLimit("over the quota of the boards", k.verdict(k.posting("third")), 2, 3)
	k.saveQuota(k.together(), access.Amounts{Jobs: 10})
	k.posted("third")
	k.wantsLimit("over the limit of the board", k.verdict(k.posting("fourth")), 3, 4)
}

func quotaRate(k *kit) {
	k.saveQuota(k.together(), access.Amounts{PostingsPerSecond: 3})
	defer k.deleteQuota(k.together())
	// One call counts at one moment, so it can contain the postings of one second.
	answers, err := k.Board.Post(k.ctx, k.posting("a"), k.elsewhere("b"), k.posting("c"), k.elsewhere("d"))
	if err != nil || len(answers) != 4 {
		k.Fatalf("Post: %d answers, %v", len(answers), err)
	}
	for _, accepted := range answers[:3] {
		k.wants("one of three", accepted.Err, nil)
	}
	k.wantsLimit("the fourth", answers[3].Err, 3, 4)
}

func savedQuotas(k *kit) {
	limits := access.Amounts{Jobs: 5, Bytes: 6, PostingsPerSecond: 7}
	k.saveQuota(k.together(), limits)
	k.saveQuota(k.together(), limits)
	if got := k.quota(k.together()); got == nil || got.Limits != limits || got.Used != (access.Amounts{}) || got.UpdatedAt.IsZero() {
		k.Errorf("saved %+v", got)
	}
	principal := access.Subject{Principal: "principal of " + k.board}
	all := access.Amounts{Jobs: 1, Sessions: 2, Watches: 3}
	k.saveQuota(principal, all)
	if got := k.quota(principal); got == nil || got.Limits != all {
		k.Errorf("saved %+v", got)
	}
	for _, of := range []access.Subject{k.together(), principal} {
		k.deleteQuota(of)
		k.wantsGone("DeleteQuota again", func() error { return k.quotas().DeleteQuota(k.ctx, of) })
		if got := k.quota(of); got != nil {
			k.Errorf("deleted %+v", got)
		}
	}
}

func badQuotas(k *kit) {
	for _, bad := range []access.Quota{
		{Limits: access.Amounts{Jobs: 1}},
		{Subject: access.Subject{Principal: "a", Boards: "b"}, Limits: access.Amounts{Jobs: 1}},
		{Subject: access.Subject{Principal: "node/a"}, Limits: access.Amounts{Jobs: 1}},
		{Subject: access.Subject{Boards: "a*b"}, Limits: access.Amounts{Jobs: 1}},
		{Subject: k.together()},
		{Subject: k.together(), Limits: access.Amounts{Sessions: 1}},
		{Subject: k.together(), Limits: access.Amounts{Watches: 1}},
	} {
		k.wants("SaveQuota", k.quotas().SaveQuota(k.ctx, bad), jobs.ErrInvalid)
	}
	k.wantsLimit("SaveQuota", k.quotas().SaveQuota(k.ctx, access.Quota{Subject: k.together(), Limits: access.Amounts{PostingsPerSecond: jobs.MaxPostingRate + 1}}),
		jobs.MaxPostingRate, jobs.MaxPostingRate+1)
	k.wants("DeleteQuota", k.quotas().DeleteQuota(k.ctx, access.Subject{}), jobs.ErrInvalid)
}
