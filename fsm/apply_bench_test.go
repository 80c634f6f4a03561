package fsm_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/jobs"
)

// benchSessions share the jobs of a round, as the conductors of a cluster do.
const benchSessions = 16

// lives is a number of jobs with a flow of three steps that go through a job's usual states
// together. Each stage is one entry with a command per job.
type lives struct {
	*rig
	round  int
	ids    []string // of the jobs and of their flows
	tokens []*v1.Token
}

// stages are the stages of a job's life in their order. The job is released once.
var stages = []struct {
	name     string
	commands func(*lives, int) *v1.Command
}{
	{"post", (*lives).post},
	{"claim next, to give back", (*lives).claimNext},
	{"abandon", (*lives).abandon},
	{"claim next", (*lives).claimNext},
	{"update flow, first step begins", (*lives).first},
	{"update flow, second step begins", (*lives).second},
	{"update flow, third step begins", (*lives).third},
	{"consume, third step and flow end", (*lives).consume},
}

func newLives(b *testing.B) *lives {
	l := &lives{rig: newRig(b)}
	for n := range benchSessions {
		l.do(open(l.session(n)))
	}
	return l
}

func (l *lives) session(n int) string { return fmt.Sprint("session ", n%benchSessions) }

func (l *lives) post(n int) *v1.Command {
	if n == 0 {
		l.round++
		l.ids, l.tokens = nil, nil
	}
	name := jobs.NewJobID().String()
	l.ids = append(l.ids, name)
	return post(&v1.Posting{Id: name, Name: "job", Details: value(`"` + strings.Repeat("x", 510) + `"`), Book: &v1.Book{
		Id: name, Name: "book", Flows: []*v1.FlowDetail{{Id: name, Name: "flow", Factory: &v1.Factory{Name: "test"}}},
	}})
}

func (l *lives) claimNext(n int) *v1.Command {
	return claimNext(l.session(n), fmt.Sprint("nonce ", l.index, n), 1, nil, []string{"test"})
}

func (l *lives) abandon(n int) *v1.Command {
	return abandon(&v1.Ending{Job: l.ids[n], Token: l.tokens[n]})
}

func (l *lives) update(n int, sequence uint64, state string, atoms ...*v1.AtomChange) *v1.Update {
	return &v1.Update{Flow: l.ids[n], Token: l.tokens[n], Sequence: sequence, State: state, Atoms: atoms}
}

// first names the definition of all flows, like a client that has sent it before.
func (l *lives) first(n int) *v1.Command {
	u := l.update(n, 1, "running", task("one", "running", executing(1)))
	built := definition("one", "two", "three")
	if u.DefinitionId = named(built); l.round == 1 {
		u.Definition, u.DefinitionId = built, nil
	}
	return updateFlow(u)
}

func (l *lives) second(n int) *v1.Command {
	return updateFlow(l.update(n, 2, "", task("one", "success", executed(1, `{}`)), task("two", "running", executing(1))))
}

func (l *lives) third(n int) *v1.Command {
	return updateFlow(l.update(n, 3, "", task("two", "success", executed(1, `{}`)), task("three", "running", executing(1))))
}

func (l *lives) consume(n int) *v1.Command {
	return consume(&v1.Ending{
		Job: l.ids[n], Token: l.tokens[n], Outcome: "success",
		Update: l.update(n, 4, "success", task("three", "success", executed(1, `{}`))),
	})
}

// note records the tokens of claims, and sorts the jobs in the order of the tokens.
func (l *lives) note(results []*v1.Result) {
	for n, result := range results {
		for _, granted := range result.GetClaim().GetGranted() {
			if n == 0 {
				l.ids, l.tokens = nil, nil
			}
			l.ids, l.tokens = append(l.ids, granted.Job), append(l.tokens, granted.Token)
		}
	}
}

// BenchmarkApply measures the cost of applying the commands of a busy cluster, including the
// flushes of the tables. An operation is one command of 64 in an entry; for a whole life it is
// one job.
func BenchmarkApply(b *testing.B) {
	for wanted, stage := range stages {
		b.Run(stage.name, func(b *testing.B) { benchmarkLives(b, func(at int) bool { return at == wanted }) })
	}
	b.Run("whole life", func(b *testing.B) { benchmarkLives(b, func(int) bool { return true }) })
	b.Run("flow on a follower", benchmarkFollower)
	b.Run("post a hundred", benchmarkPostMany)
	b.Run("open and close session", benchmarkSessions)
}

func benchmarkLives(b *testing.B, measured func(stage int) bool) {
	l := newLives(b)
	b.ReportAllocs()
	b.ResetTimer()
	b.StopTimer()
	for done := 0; done < b.N; done += packed {
		for at, stage := range stages {
			var commands []*v1.Command
			for n := range packed {
				commands = append(commands, stage.commands(l, n))
			}
			l.note(l.timed(b, l.entry(commands...), measured(at)))
		}
	}
}

// benchmarkFollower measures the cost of a flow of three steps on a node that does not answer
// calls. An operation is one job.
func benchmarkFollower(b *testing.B) {
	l := newLives(b)
	claim := func(l *lives, n int) *v1.Command {
		l.tokens = append(l.tokens, &v1.Token{Generation: 1, Index: l.index + 1})
		return &v1.Command{Kind: &v1.Command_Claim{Claim: &v1.ClaimCommand{Session: id(l.session(n)), Job: l.ids[n], Nonce: jobs.NewNonce().String()}}}
	}
	b.ReportAllocs()
	b.ResetTimer()
	b.StopTimer()
	for done := 0; done < b.N; done += packed {
		for _, stage := range []func(*lives, int) *v1.Command{(*lives).post, claim, (*lives).first, (*lives).second, (*lives).third, (*lives).consume} {
			var commands []*v1.Command
			for n := range packed {
				commands = append(commands, stage(l, n))
			}
			entry := l.entry(commands...)
			entry.Unanswered = true
			l.changes = nil
			b.StartTimer()
			_, err := l.Apply([]fsm.Entry{entry})
			b.StopTimer()
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	if finished := l.Counts()[jobs.StateCompleted]; finished == 0 {
		b.Fatal("no job was completed")
	}
}

// timed applies an entry. No command of it may be refused.
func (r *rig) timed(b *testing.B, entry fsm.Entry, measured bool) []*v1.Result {
	entries := []fsm.Entry{entry}
	r.changes = nil
	if measured {
		b.StartTimer()
	}
	results, err := r.Apply(entries)
	b.StopTimer()
	if err != nil {
		b.Fatal(err)
	}
	for _, result := range results[0] {
		if result.GetError() != nil {
			b.Fatal(result.GetError())
		}
		for _, posted := range result.GetPost().GetPosted() {
			if posted.Error != nil {
				b.Fatal(posted.Error)
			}
		}
	}
	return results[0]
}

// benchmarkPostMany posts jobs of 512 bytes, a hundred to a command and two commands to an entry,
// like a cluster under bulk load.
func benchmarkPostMany(b *testing.B) {
	r := newRig(b)
	var log []fsm.Entry
	for done := 0; done < b.N; {
		var commands []*v1.Command
		for range 2 {
			var postings []*v1.Posting
			for range 100 {
				done++
				postings = append(postings, &v1.Posting{
					Id: jobs.NewJobID().String(), Name: "job", Board: "bench", Kind: "bench", Details: value(`"` + strings.Repeat("x", 510) + `"`),
				})
			}
			commands = append(commands, post(postings...))
		}
		log = append(log, r.entry(commands...))
	}
	b.ReportAllocs()
	b.ResetTimer()
	for _, entry := range log {
		r.changes = nil
		if _, err := r.Apply([]fsm.Entry{entry}); err != nil {
			b.Fatal(err)
		}
	}
}

func benchmarkSessions(b *testing.B) {
	r := newRig(b)
	b.ReportAllocs()
	b.ResetTimer()
	b.StopTimer()
	for done := 0; done < b.N; done += packed {
		var opens, closes []*v1.Command
		for n := range packed {
			name := fmt.Sprint(done, n)
			opening := &v1.Opening{Id: id(name), Name: name, Ttl: lasting(4 * time.Second)}
			opens = append(opens, &v1.Command{Kind: &v1.Command_OpenSession{OpenSession: opening}})
			closes = append(closes, closing(name))
		}
		r.timed(b, r.entry(opens...), true)
		r.timed(b, r.entry(closes...), true)
	}
}
