package jobstest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

var limitRows = []row{
	{"a name at the limit is kept, one byte more is refused", namesAtLimit},
	{"a name must be a name", namesMustBeNames},
	{"a value at the limit is kept, one byte more is refused", valuesAtLimit},
	{"a value must be one JSON value", valuesMustBeJSON},
	{"a posting larger than a command is refused", postingTooLarge},
	{"a session's TTL has bounds", boundsOfTTL},
	{"a request for jobs has bounds", boundsOfRequest},
	{"many large jobs are claimed and listed", manyLargeJobs},
}

// wantsLimit checks that the error is a *logbook.LimitError with these numbers.
func (k *kit) wantsLimit(what string, err error, limit, size int) {
	k.Helper()
	var over *logbook.LimitError
	switch {
	case !errors.Is(err, jobs.ErrLimit) || !errors.As(err, &over):
		k.Errorf("%s: got error %v, want a *logbook.LimitError", what, err)
	case over.Field == "" || over.Limit != int64(limit) || over.Size < int64(size):
		k.Errorf("%s: got %+v, want a field, limit %d and size %d", what, *over, limit, size)
	}
}

// wantsInvalid checks that the error is a *logbook.InvalidError with a field.
func (k *kit) wantsInvalid(what string, err error) {
	k.Helper()
	var invalid *logbook.InvalidError
	if !errors.Is(err, jobs.ErrInvalid) || !errors.As(err, &invalid) || invalid.Field == "" {
		k.Errorf("%s: got error %v, want a *logbook.InvalidError that names a field", what, err)
	}
}

// named are the calls with a name from the caller.
func (k *kit) named(session jobs.SessionID) map[string]func(string) error {
	post := func(set func(*jobs.Posting, string)) func(string) error {
		return func(name string) error {
			posting := k.posting("plain")
			set(&posting, name)
			return k.verdict(posting)
		}
	}
	register := func(set func(*jobs.Entity, string)) func(string) error {
		return func(name string) error {
			entity := jobs.Entity{Kind: k.kind, Name: "worker"}
			set(&entity, name)
			return k.Board.Register(k.ctx, session, entity)
		}
	}
	return map[string]func(string) error{
		"name of a job":    post(func(p *jobs.Posting, name string) { p.Name = name }),
		"name in a store":  post(func(p *jobs.Posting, name string) { p.Store = logbook.Values{name: json.RawMessage(`1`)} }),
		"kind of entity":   register(func(e *jobs.Entity, name string) { e.Kind = name }),
		"name of entity":   register(func(e *jobs.Entity, name string) { e.Name = name }),
		"board of entity":  register(func(e *jobs.Entity, name string) { e.Boards = []string{name} }),
		"name in metadata": register(func(e *jobs.Entity, name string) { e.Metadata = logbook.Values{name: json.RawMessage(`1`)} }),
		"name of a session": func(name string) error {
			opened, err := k.Board.OpenSession(k.ctx, jobs.Opening{ID: jobs.NewSessionID(), Name: name, TTL: lasting})
			if err == nil {
				k.close(opened.ID)
			}
			return err
		},
	}
}

// optional are the names that can be omitted.
func (k *kit) optional() map[string]func(string) error {
	post := func(set func(*jobs.Posting, string)) func(string) error {
		return func(name string) error {
			posting := k.posting("plain")
			set(&posting, name)
			return k.verdict(posting)
		}
	}
	return map[string]func(string) error{
		"board of a job": post(func(p *jobs.Posting, name string) { p.Board = name }),
		"kind of a job":  post(func(p *jobs.Posting, name string) { p.Kind = name }),
	}
}

func namesAtLimit(k *kit) {
	most := logbook.MaxLimits.Name
	// The row's own kind comes first, so that rows do not affect each other.
	fits := k.kind + strings.Repeat("å", (most-len(k.kind))/2)
	fits += strings.Repeat("x", most-len(fits))
	session := k.session("worker")
	for _, calls := range []map[string]func(string) error{k.named(session), k.optional()} {
		for what, call := range calls {
			k.wants("the longest "+what, call(fits), nil)
			k.wantsLimit("a longer "+what, call(fits+"x"), most, most+1)
		}
	}
}

func namesMustBeNames(k *kit) {
	session := k.session("worker")
	for what, call := range k.named(session) {
		for _, name := range []string{"", "a\x00b", "line\nbreak", "\x7f", "\u0085"} {
			k.wantsInvalid(fmt.Sprintf("%s %q", what, name), call(name))
		}
	}
	for what, call := range k.optional() {
		k.wantsInvalid("a control character in the "+what, call("line\nbreak"))
	}
	page, err := k.Board.Jobs(k.ctx, jobs.Query{Board: k.board})
	if err != nil || len(page.Items) != 0 {
		k.Errorf("refused postings have left jobs: %s, %v", render(page), err)
	}
}

// text makes a JSON string of a size, quotes included.
func text(size int) json.RawMessage {
	return json.RawMessage(`"` + strings.Repeat("x", size-2) + `"`)
}

// longest is the maximum size of a value for the board.
func (k *kit) longest() int { return logbook.PlainLimits(k.Board, logbook.MaxLimits).Value }

func valuesAtLimit(k *kit) {
	most := k.longest()
	for what, set := range map[string]func(*jobs.Posting, json.RawMessage){
		"details": func(p *jobs.Posting, value json.RawMessage) { p.Details = value },
		"store":   func(p *jobs.Posting, value json.RawMessage) { p.Store = logbook.Values{"v": value} },
	} {
		posting := k.posting("heavy")
		set(&posting, text(most))
		k.post(posting)
		if job := k.job(posting.ID); len(job.Details)+len(job.Store["v"]) != most {
			k.Errorf("%s: got %d bytes back, want %d", what, len(job.Details)+len(job.Store["v"]), most)
		}
		posting = k.posting("heavier")
		set(&posting, text(most+1))
		k.wantsLimit(what, k.verdict(posting), most, most+1)
		_, err := k.Board.Job(k.ctx, posting.ID)
		k.wants("the refused job", err, jobs.ErrNotFound)
	}
}

func valuesMustBeJSON(k *kit) {
	for _, value := range []string{`{`, `nope`, `1 2`, "\"\xff\"", `{"k":1,"k":2}`, `1e400`, `"\ud800"`} {
		posting := k.posting("odd")
		posting.Details = json.RawMessage(value)
		k.wantsInvalid(fmt.Sprintf("details %q", value), k.verdict(posting))
		posting = k.posting("odd")
		posting.Store = logbook.Values{"v": json.RawMessage(value)}
		k.wantsInvalid(fmt.Sprintf("value %q in the store", value), k.verdict(posting))
	}
	posting := k.posting("odd")
	posting.Store = logbook.Values{"v": nil}
	k.wantsInvalid("an empty value in the store", k.verdict(posting))
}

func postingTooLarge(k *kit) {
	posting := k.posting("huge")
	posting.Store = make(logbook.Values)
	for i := range logbook.MaxLimits.Command/k.longest() + 1 {
		posting.Store[fmt.Sprint("v", i)] = text(k.longest())
	}
	k.wantsLimit("the posting", k.verdict(posting), logbook.MaxLimits.Command, logbook.MaxLimits.Command+1)
	_, err := k.Board.Job(k.ctx, posting.ID)
	k.wants("the refused job", err, jobs.ErrNotFound)
}

func boundsOfTTL(k *kit) {
	for _, bound := range []struct {
		ttl time.Duration
		ok  bool
	}{
		{jobs.MinTTL, true}, {jobs.MinTTL - time.Millisecond, false}, {-time.Second, false},
		{jobs.MaxTTL, true}, {jobs.MaxTTL + time.Second, false},
	} {
		id := jobs.NewSessionID()
		opened, err := k.Board.OpenSession(k.ctx, jobs.Opening{ID: id, Name: "worker", TTL: bound.ttl})
		if bound.ok {
			if err != nil || opened.TTL != bound.ttl {
				k.Errorf("TTL %s: %s, %v", bound.ttl, render(opened), err)
			}
			// The shortest session may have expired by now.
			if err := k.Board.CloseSession(k.ctx, id); err != nil {
				k.wants("CloseSession", err, jobs.ErrSessionExpired)
			}
			continue
		}
		if !errors.Is(err, jobs.ErrInvalid) && !errors.Is(err, jobs.ErrLimit) {
			k.Errorf("TTL %s: got error %v, want a refusal", bound.ttl, err)
		}
	}
}

func boundsOfRequest(k *kit) {
	session := k.session("worker")
	k.posted("plain")
	list := func(prefix string, count int) []string {
		made := make([]string, count)
		for i := range made {
			made[i] = fmt.Sprint(prefix, " ", i)
		}
		return made
	}
	for what, spoil := range map[string]func(*jobs.ClaimRequest){
		"too many boards":         func(r *jobs.ClaimRequest) { r.Boards = append(list(k.board, jobs.MaxBoards), k.board) },
		"too many kinds":          func(r *jobs.ClaimRequest) { r.Kinds = append(list(k.kind, jobs.MaxKinds), k.kind) },
		"too many jobs":           func(r *jobs.ClaimRequest) { r.Max = jobs.MaxClaims + 1 },
		"no nonce":                func(r *jobs.ClaimRequest) { r.Nonce = jobs.Nonce{} },
		"no session":              func(r *jobs.ClaimRequest) { r.Session = jobs.SessionID{} },
		"a negative number":       func(r *jobs.ClaimRequest) { r.Max = -1 },
		"a board without a name":  func(r *jobs.ClaimRequest) { r.Boards = []string{""} },
		"a kind that is no name":  func(r *jobs.ClaimRequest) { r.Kinds = []string{"line\nbreak"} },
		"a kind that is too long": func(r *jobs.ClaimRequest) { r.Kinds = []string{strings.Repeat("x", logbook.MaxLimits.Name+1)} },
	} {
		request := k.request(session)
		spoil(&request)
		claimed, err := k.Board.ClaimNext(k.ctx, request)
		if !errors.Is(err, jobs.ErrInvalid) && !errors.Is(err, jobs.ErrLimit) {
			k.Errorf("%s: got %v and error %v, want a refusal", what, names(claimed), err)
		}
	}
	request := k.request(session)
	request.Boards = append(list(k.board, jobs.MaxBoards-1), k.board)
	request.Kinds = append(list(k.kind, jobs.MaxKinds-1), k.kind)
	request.Max = jobs.MaxClaims
	k.same("jobs at the bounds", names(k.next(request)), []string{"plain"})
}

// manyLargeJobs posts more than one answer of any transport can contain. Every job must still reach
// a claimant.
func manyLargeJobs(k *kit) {
	session := k.session("worker")
	const count = 20
	large := strings.Repeat("x", k.longest()-2)
	var want []string
	for i := range count {
		posting := k.posting(fmt.Sprint("large ", i))
		posting.Details = json.RawMessage(`"` + large + `"`)
		k.post(posting)
		want = append(want, posting.Name)
	}
	var got []string
	for range count {
		request := k.request(session)
		request.Max = count
		claimed := k.next(request)
		for i := range claimed {
			ending := release(claimed[i])
			ending.Failure = &logbook.Failure{Kind: logbook.FailureError, Message: large}
			k.wants("Trash", k.Board.Trash(k.ctx, ending), nil)
		}
		got = append(got, names(claimed)...)
	}
	k.same("claimed", got, want)
	k.same("listed", k.list(jobs.Query{Board: k.board}, 0), want)
}
