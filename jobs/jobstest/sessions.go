package jobstest

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

var sessionRows = []row{
	{"an open session is listed", openSessionListed},
	{"a session without a TTL gets the default", defaultTTL},
	{"opening again is a repeat", openingAgain},
	{"a session that is over stays over", overIsOver},
	{"keep-alives keep a session", keptAlive},
	{"closing releases every claim at once", closingGivesBack},
	{"the claims of a session are counted", claimsAreCounted},
	{"entities are listed by kind and name", entitiesListed},
	{"registering again replaces", registeringAgain},
	{"an entity dies with its session", entityDies},
}

func (k *kit) find(id jobs.SessionID) (jobs.Session, bool) {
	k.Helper()
	sessions, err := k.Board.Sessions(k.ctx)
	if err != nil {
		k.Fatalf("Sessions: %v", err)
	}
	for i := range sessions {
		if i > 0 && slices.Compare(sessions[i-1].ID.UUID[:], sessions[i].ID.UUID[:]) >= 0 {
			k.Errorf("session %s is listed after %s", sessions[i].ID, sessions[i-1].ID)
		}
	}
	at := slices.IndexFunc(sessions, func(s jobs.Session) bool { return s.ID == id })
	if at < 0 {
		return jobs.Session{}, false
	}
	return sessions[at], true
}

func openSessionListed(k *kit) {
	opening := jobs.Opening{ID: jobs.NewSessionID(), Name: "worker", Host: "a.example", PID: 4711, TTL: lasting}
	opened, err := k.Board.OpenSession(k.ctx, opening)
	if err != nil {
		k.Fatalf("OpenSession: %v", err)
	}
	k.keep(opening.ID, lasting)
	k.same("session", opened, jobs.Session{
		ID: opening.ID, Name: "worker", Host: "a.example", PID: 4711, TTL: lasting, OpenedAt: opened.OpenedAt,
	})
	if opened.OpenedAt.IsZero() {
		k.Errorf("the session has no time of opening")
	}
	for range 3 {
		k.session("other")
	}
	listed, ok := k.find(opening.ID)
	if !ok {
		k.Fatalf("the session is not listed")
	}
	k.same("session in the list", listed, opened)
	k.close(opening.ID)
	if _, ok := k.find(opening.ID); ok {
		k.Errorf("a closed session is listed")
	}
}

func defaultTTL(k *kit) {
	opened, err := k.Board.OpenSession(k.ctx, jobs.Opening{ID: jobs.NewSessionID(), Name: "worker"})
	if err != nil || opened.TTL != jobs.DefaultTTL {
		k.Fatalf("OpenSession: %s, %v; want a TTL of %s", render(opened), err, jobs.DefaultTTL)
	}
	k.keep(opened.ID, opened.TTL)
}

func openingAgain(k *kit) {
	opening := jobs.Opening{ID: jobs.NewSessionID(), Name: "worker", Host: "a.example", PID: 1, TTL: lasting}
	first, err := k.Board.OpenSession(k.ctx, opening)
	k.wants("OpenSession", err, nil)
	k.keep(opening.ID, lasting)
	second, err := k.Board.OpenSession(k.ctx, opening)
	k.wants("OpenSession again", err, nil)
	k.same("session", second, first)
	for what, change := range map[string]func(*jobs.Opening){
		"name": func(o *jobs.Opening) { o.Name = "other" },
		"host": func(o *jobs.Opening) { o.Host = "b.example" },
		"pid":  func(o *jobs.Opening) { o.PID = 2 },
		"TTL":  func(o *jobs.Opening) { o.TTL += time.Second },
	} {
		other := opening
		change(&other)
		_, err := k.Board.OpenSession(k.ctx, other)
		k.wants("OpenSession with another "+what, err, jobs.ErrConflict)
	}
	listed, _ := k.find(opening.ID)
	k.same("session in the list", listed, first)
}

func overIsOver(k *kit) {
	closed, lapsed := k.session("worker"), k.mortal("worker")
	k.close(closed)
	k.lapse(lapsed)
	for what, id := range map[string]jobs.SessionID{"closed": closed, "lapsed": lapsed} {
		_, err := k.Board.OpenSession(k.ctx, jobs.Opening{ID: id, Name: "worker", TTL: k.TTL})
		k.wants("OpenSession of one that is "+what, err, jobs.ErrSessionExpired)
	}
	for what, id := range map[string]jobs.SessionID{"closed": closed, "lapsed": lapsed, "unknown": jobs.NewSessionID()} {
		k.wants("KeepAlive of one that is "+what, k.Board.KeepAlive(k.ctx, id), jobs.ErrSessionExpired)
		k.wants("CloseSession of one that is "+what, k.Board.CloseSession(k.ctx, id), jobs.ErrSessionExpired)
		err := k.Board.Register(k.ctx, id, jobs.Entity{Kind: k.kind, Name: "worker"})
		k.wants("Register with one that is "+what, err, jobs.ErrSessionExpired)
		if _, ok := k.find(id); ok {
			k.Errorf("a session that is %s is listed", what)
		}
	}
	k.same("entities", k.entities(), []string{})
}

func keptAlive(k *kit) {
	session := k.mortal("worker")
	claimed := k.owned(session, "long")
	// The row's keeper sends the keep-alives. This timer only lets 2.5 times the TTL pass:
	// without keep-alives, no session survives that.
	timer := time.NewTimer(k.TTL * 5 / 2)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-k.ctx.Done():
		k.Fatal(k.ctx.Err())
	}
	k.wants("KeepAlive", k.Board.KeepAlive(k.ctx, session), nil)
	k.wants("Consume", k.Board.Consume(k.ctx, success(claimed)), nil)
}

func closingGivesBack(k *kit) {
	session := k.session("worker")
	for i := range 5 {
		k.owned(session, fmt.Sprint(i))
	}
	done := k.owned(session, "done")
	k.wants("Consume", k.Board.Consume(k.ctx, success(done)), nil)
	k.close(session)
	request := k.request(k.session("heir"))
	request.Max = 9
	claimed := k.next(request)
	k.same("jobs at once", names(claimed), []string{"0", "1", "2", "3", "4"})
	for i := range claimed {
		if job := claimed[i].Job; job.Claims != 2 || job.Crashes != 0 {
			k.Errorf("got %s, want two claims and no crash", render(job))
		}
	}
}

func claimsAreCounted(k *kit) {
	session := k.session("worker")
	first, second := k.owned(session, "1"), k.owned(session, "2")
	k.owned(session, "3")
	for _, step := range []struct {
		do   func() error
		want int
	}{
		{func() error { return nil }, 3},
		{func() error { return k.Board.Consume(k.ctx, success(first)) }, 2},
		{func() error { return k.Board.Abandon(k.ctx, release(second)) }, 1},
	} {
		k.wants("ending", step.do(), nil)
		if listed, ok := k.find(session); !ok || listed.Claims != step.want {
			k.Errorf("the session has %d claims, want %d", listed.Claims, step.want)
		}
	}
}

// entities lists the names of the entities of the row's kind.
func (k *kit) entities() []string {
	k.Helper()
	listed, err := k.Board.Entities(k.ctx, k.kind)
	if err != nil {
		k.Fatalf("Entities: %v", err)
	}
	found := []string{}
	for _, entity := range listed {
		found = append(found, entity.Name)
	}
	return found
}

func (k *kit) register(session jobs.SessionID, kind, name string) {
	k.Helper()
	if err := k.Board.Register(k.ctx, session, jobs.Entity{Kind: kind, Name: name}); err != nil {
		k.Fatalf("Register: %v", err)
	}
}

func entitiesListed(k *kit) {
	first, second := k.session("first"), k.session("second")
	full := jobs.Entity{
		Kind: k.kind, Name: "b", Boards: []string{"default", "night"}, JobKinds: []string{"travel"}, MaxJobs: 4,
		Host: "a.example", PID: 4711, Metadata: logbook.Values{"zone": json.RawMessage(`{"a": 1}`)},
	}
	k.wants("Register", k.Board.Register(k.ctx, first, full), nil)
	k.register(second, k.kind, "a")
	k.register(first, k.kind, "c")
	k.register(second, k.kind+" 2", "0")
	k.same("entities of a kind", k.entities(), []string{"a", "b", "c"})
	listed, err := k.Board.Entities(k.ctx, k.kind)
	if err != nil || len(listed) != 3 {
		k.Fatalf("Entities: %s, %v", render(listed), err)
	}
	full.Session, full.RegisteredAt = first, listed[1].RegisteredAt
	k.same("entity", listed[1], full)
	if full.RegisteredAt.IsZero() {
		k.Errorf("the entity has no time of registration")
	}
	all, err := k.Board.Entities(k.ctx, "")
	if err != nil {
		k.Fatalf("Entities: %v", err)
	}
	mine := []string{}
	for i, entity := range all {
		if i > 0 && (all[i-1].Kind > entity.Kind || (all[i-1].Kind == entity.Kind && all[i-1].Name > entity.Name)) {
			k.Errorf("%s %s is listed after %s %s", entity.Kind, entity.Name, all[i-1].Kind, all[i-1].Name)
		}
		if entity.Session == first || entity.Session == second {
			mine = append(mine, entity.Name)
		}
	}
	k.same("entities of all kinds", mine, []string{"a", "b", "c", "0"})
}

func registeringAgain(k *kit) {
	session := k.session("worker")
	for most := range 3 {
		entity := jobs.Entity{Kind: k.kind, Name: "one", MaxJobs: most}
		for range 2 {
			k.wants("Register", k.Board.Register(k.ctx, session, entity), nil)
		}
		listed, err := k.Board.Entities(k.ctx, k.kind)
		if err != nil || len(listed) != 1 || listed[0].MaxJobs != most {
			k.Errorf("Entities: %s, %v; want one, with %d jobs at most", render(listed), err, most)
		}
	}
}

func entityDies(k *kit) {
	closed, lapsed, living := k.session("closed"), k.mortal("lapsed"), k.session("living")
	k.register(closed, k.kind, "closed")
	k.register(lapsed, k.kind, "lapsed")
	k.register(living, k.kind, "living")
	k.close(closed)
	k.same("after one was closed", k.entities(), []string{"lapsed", "living"})
	k.lapse(lapsed)
	k.same("after one has lapsed", k.entities(), []string{"living"})
}
