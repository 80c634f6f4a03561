package fsm

import (
	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs/access"
)

// quotas caches all quotas in their current state, because each posting needs the quotas that cover it. The zero
// value is an empty cache.
type quotas struct {
	read        bool
	ofPrincipal map[string]*access.Quota
	ofBoards    []*access.Quota
	onBoard     map[string][]*access.Quota // by board: the quotas in ofBoards that cover it, for boards looked up so far
}

func quotaKey(s access.Subject) []byte {
	if s.Principal != "" {
		return append([]byte{'p'}, s.Principal...)
	}
	return append([]byte{'b'}, s.Boards...)
}

func (v *view) eachQuota(each func(q access.Quota)) {
	v.scan(tableQuota, nil, func(_, value []byte) bool {
		each(decode(value, &v1.Quota{}, command.QuotaFromProto))
		return true
	})
}

// knownQuotas returns the cached quotas. It fills an empty cache.
func (t *txn) knownQuotas() *quotas {
	if t.quotas.read {
		return t.quotas
	}
	*t.quotas = quotas{read: true, ofPrincipal: make(map[string]*access.Quota), onBoard: make(map[string][]*access.Quota)}
	t.eachQuota(func(q access.Quota) {
		if q.Principal != "" {
			t.quotas.ofPrincipal[q.Principal] = &q
			return
		}
		t.quotas.ofBoards = append(t.quotas.ofBoards, &q)
	})
	return t.quotas
}

// on returns the quotas that cover a board.
func (q *quotas) on(board string) []*access.Quota {
	if len(q.ofBoards) == 0 {
		return nil
	}
	covering, known := q.onBoard[board]
	if known {
		return covering
	}
	for _, quota := range q.ofBoards {
		if access.Covers(quota.Boards, board) {
			covering = append(covering, quota)
		}
	}
	if len(q.onBoard) >= maxKnownHeads {
		clear(q.onBoard)
	}
	q.onBoard[board] = covering
	return covering
}
