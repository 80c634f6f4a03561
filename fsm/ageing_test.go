package fsm_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
)

func ageBoard(board string, step time.Duration) *v1.Command {
	return &v1.Command{Kind: &v1.Command_AgeBoard{AgeBoard: &v1.AgeBoardCommand{Board: board, Step: lasting(step)}}}
}

// TestAgeing: each word "name:priority" posts a job, one second after the previous word. "+5"
// lets five seconds pass instead, and "age:3" sets the length of a step. The row ends with the
// expected claim order.
func TestAgeing(t *testing.T) {
	for _, row := range []struct{ name, script, want string }{
		{"without it, priority counts alone", "a:0 +60 b:1 c:0", "b a c"},
		{"a step is a step", "age:5 a:0 +4 b:1 c:2", "c a b"},
		{"less is not", "age:5 a:0 +3 b:1", "b a"},
		{"all that wait are raised alike", "age:1 a:2 b:1 +100 c:0", "a b c"},
		{"the lowest comes at last", fmt.Sprintf("age:1 a:-3 b:0 c:0 d:0 e:0 f:%d", math.MaxInt32), "f b c a d e"},
		{"what waited before counts from then on", "a:0 +60 age:5 b:1 +10 c:1 d:2", "b a d c"},
		{"switched off, what was reached stays", "age:1 a:0 +5 age:0 b:5 c:6 d:7 +60 e:6", "d a c e b"},
		{"slower from then on", "age:1 a:0 +4 age:10 b:5 +7 c:6 d:5", "c a b d"},
		{"switched on again", "age:1 a:0 +4 age:0 +60 age:1 +2 b:7 c:8 d:9", "a b c d"},
		{"the front is before its equals of then", "age:10 a:0 +9 b:0 f:0:front g:1:front", "g a f b"},
		{"another priority keeps the age", "age:1 a:0 b:5 +2 a=5 c:0", "a b c"},
		{"who is suspended for a while keeps its age", "a:0 age:1 +5 a| b:3", "a b"},
		{"who comes back from its end waits anew", "age:1 a:0 +5 a^ b:1", "b a"},
		{"who is given back keeps its age", "age:1 a:0 +5 a! b:3", "a b"},
		{"of two boards, each by its own", "age:1 a:0 +3 b:2@other +1 c:5@other d:5", "a d c b"},
		{"at the end of all priorities nothing rises", fmt.Sprintf("age:1 a:%d +5 b:%d", math.MinInt32, math.MinInt32), "a b"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t)
			r.ok(open("ann"))
			for _, word := range strings.Fields(row.script) {
				r.ageingWord(word)
			}
			var got []string
			for i := 0; ; i++ {
				granted := r.ok(claimNext("ann", fmt.Sprint("n", i), 1, []string{"default", "other"}, []string{"k", "l"})).GetClaim().Granted
				if len(granted) == 0 {
					break
				}
				got = append(got, r.job(granted[0].Job).Name)
			}
			if said := strings.Join(got, " "); said != row.want {
				t.Errorf("claimed %s, want %s", said, row.want)
			}
			if err := fsm.Verify(r.Machine); err != nil {
				t.Error(err)
			}
		})
	}
}

func (r *rig) ageingWord(word string) {
	r.Helper()
	number := func(text string) (n int32) {
		if _, err := fmt.Sscan(text, &n); err != nil {
			r.Fatalf("%q: %v", word, err)
		}
		return n
	}
	name, rest, _ := strings.Cut(word, ":")
	switch {
	case strings.HasPrefix(word, "+"):
		r.now = r.now.Add(time.Duration(number(word[1:])) * time.Second)
	case name == "age":
		r.ok(ageBoard("", time.Duration(number(rest))*time.Second))
	case strings.HasSuffix(word, "!"):
		token := r.claimedAgain("ann", id(word[:1]))
		r.ok(abandon(&v1.Ending{Job: id(word[:1]), Token: command.TokenToProto(token)}))
	case strings.HasSuffix(word, "|"):
		r.ok(suspend(&v1.JobCommand{Job: id(word[:1])}))
		r.ok(resume(&v1.JobCommand{Job: id(word[:1])}))
	case strings.HasSuffix(word, "^"):
		token := r.claimedAgain("ann", id(word[:1]))
		r.ok(trash(&v1.Ending{Job: id(word[:1]), Token: command.TokenToProto(token)}))
		r.ok(retry(&v1.JobCommand{Job: id(word[:1])}))
	case strings.Contains(word, "="):
		priority := number(word[2:])
		r.ok(&v1.Command{Kind: &v1.Command_Change{Change: &v1.Change{Job: id(word[:1]), Priority: &priority}}})
	default:
		p := posting(name, []string{"k", "l"}[int(name[0])%2])
		rest, front := strings.CutSuffix(rest, ":front")
		text, board, _ := strings.Cut(rest, "@")
		p.Priority, p.Front, p.Board = number(text), front, board
		r.posted(p)
		r.now = r.now.Add(time.Second)
	}
}

// TestReopenedJobsWaitAnew: the time that a job was finished does not count as waiting time.
func TestReopenedJobsWaitAnew(t *testing.T) {
	r := stuck(t, "failure")
	r.ok(ageBoard("", time.Second))
	r.now = r.now.Add(5 * time.Second)
	r.ok(intervene(asked("rerun", "")))
	p := posting("b", "k")
	p.Priority = 1
	r.posted(p)
	if granted := r.ok(claimNext("bob", "n", 1, nil, nil)).GetClaim().Granted; len(granted) != 1 || granted[0].Job != id("b") {
		t.Errorf("claimed %v", granted)
	}
}

// TestAgeingIsExplained: the explanation's number of jobs ahead, and the priority that would put
// the job first, include ageing.
func TestAgeingIsExplained(t *testing.T) {
	r := newRig(t)
	r.ok(ageBoard("", time.Second))
	r.posted(posting("old", "k"))
	r.now = r.now.Add(10 * time.Second)
	p := posting("new", "k")
	p.Priority = 7
	r.posted(p)
	s, err := r.Situation(jobID(id("new")), r.now)
	if err != nil || s.Ahead != 1 || s.First != 10 {
		t.Fatalf("%d come before it, the first as if of priority %d (%v)", s.Ahead, s.First, err)
	}
	priority := int32(s.First) + 1
	r.ok(&v1.Command{Kind: &v1.Command_Change{Change: &v1.Change{Job: id("new"), Priority: &priority}}})
	if s, err := r.Situation(jobID(id("new")), r.now); err != nil || s.Ahead != 0 {
		t.Errorf("%d still come before it (%v)", s.Ahead, err)
	}
	if ageing := r.board("").Ageing; ageing.Step != time.Second || ageing.Steps != 0 || !ageing.Since.Equal(start) {
		t.Errorf("the board ages by %+v", ageing)
	}
	r.harmless(ageBoard("", time.Second))
	r.refused(ageBoard("nowhere", time.Second), "not_found")
	r.refused(ageBoard("", time.Millisecond), "invalid")
}

// TestEffectivePriority checks the effective priority of a script's first job at a time; "-"
// means the posted priority. Scripts are as in TestAgeing.
func TestEffectivePriority(t *testing.T) {
	for _, row := range []struct{ name, script, want string }{
		{"no ageing", "a:5 +60", "-"},
		{"from the beginning", "age:5 a:5 +4", "6"},
		{"less than a step", "age:5 a:5 +3", "5"},
		{"what waited before counts from then on", "a:5 +60 age:5 +10", "7"},
		{"posted later", "age:1 +9 a:5 +1", "7"},
		{"switched off, what was reached stays", "age:1 a:5 +4 age:0 +60", "10"},
		{"another priority keeps the age", "age:1 a:5 +2 a=7", "10"},
		{"who is given back keeps its age", "age:1 a:5 +4 a!", "10"},
		{"to the end of all priorities", fmt.Sprintf("age:1 a:%d +9", math.MaxInt32-3), fmt.Sprint(math.MaxInt32)},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t)
			r.ok(open("ann"))
			for _, word := range strings.Fields(row.script) {
				r.ageingWord(word)
			}
			job, err := r.JobAt(jobID(id("a")), r.now)
			if err != nil {
				t.Fatal(err)
			}
			got := "-"
			if job.Effective != nil {
				got = fmt.Sprint(int32(*job.Effective))
			}
			if got != row.want {
				t.Errorf("it counts for %s, want %s", got, row.want)
			}
		})
	}
	r := newRig(t)
	r.ok(open("ann"))
	r.ok(ageBoard("", time.Second))
	held := posting("held", "k")
	held.Hold = true
	r.posted(held)
	r.now = r.now.Add(time.Minute)
	if job, err := r.JobAt(jobID(id("held")), r.now); err != nil || job.Effective == nil || *job.Effective != job.Priority {
		t.Errorf("a held job, whose age has not begun: %+v, %v", job, err)
	}
	r.ok(consume(success("done", r.claimed("ann", posting("done", "k")))))
	if job, err := r.JobAt(jobID(id("done")), r.now); err != nil || job.Effective != nil {
		t.Errorf("a finished job: %+v, %v", job, err)
	}
}
