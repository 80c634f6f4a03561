package fsm_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/logbook"
)

// packed is the number of commands per entry in the benchmarks, as in a busy leader.
const packed = 64

// apply applies an entry. No command of it may be refused.
func apply(b *testing.B, r *rig, commands []*v1.Command) []*v1.Result {
	results, err := r.Apply([]fsm.Entry{r.entry(commands...)})
	if err != nil {
		b.Fatal(err)
	}
	for _, result := range results[0] {
		if result.GetError() != nil {
			b.Fatal(result.GetError())
		}
	}
	return results[0]
}

func BenchmarkPost(b *testing.B) {
	kinds := map[string]func(int) *v1.Posting{
		"job": func(int) *v1.Posting {
			return &v1.Posting{Id: jobs.NewJobID().String(), Name: "job", Kind: "k"}
		},
		"job of 512 bytes": func(int) *v1.Posting {
			details := &v1.Value{Json: []byte(`"` + strings.Repeat("x", 510) + `"`)}
			return &v1.Posting{Id: jobs.NewJobID().String(), Name: "job", Kind: "k", Details: details}
		},
		"job with book": func(int) *v1.Posting {
			p := flowPosting("job")
			p.Id, p.Book.Id, p.Book.Flows[0].Id = jobs.NewJobID().String(), logbook.NewBookID().String(), logbook.NewFlowID().String()
			return p
		},
	}
	for name, make := range kinds {
		b.Run(name, func(b *testing.B) {
			r := newRig(b)
			for done := 0; done < b.N; {
				var commands []*v1.Command
				for ; len(commands) < packed && done < b.N; done++ {
					commands = append(commands, post(make(done)))
				}
				apply(b, r, commands)
			}
		})
	}
}

// BenchmarkPostUnderQuotas: the cost of a posting depends only on the quotas that cover it.
func BenchmarkPostUnderQuotas(b *testing.B) {
	for _, covering := range []int{0, 1, 4} {
		for _, others := range []int{0, access.MaxQuotas - 4} {
			b.Run(fmt.Sprint(covering, " that cover, ", others, " others"), func(b *testing.B) {
				r := newRig(b)
				limits := access.Amounts{Jobs: 1 << 40, Bytes: 1 << 40, PostingsPerSecond: jobs.MaxPostingRate}
				subjects := []access.Subject{ofAnn, {Boards: "*"}, {Boards: "orders*"}, {Boards: "orders/eu"}}[:covering]
				for i := range others {
					subjects = append(subjects, access.Subject{Boards: fmt.Sprint("other ", i)})
				}
				for _, subject := range subjects {
					apply(b, r, []*v1.Command{saveQuota(subject, limits)})
				}
				b.ResetTimer()
				for done := 0; done < b.N; {
					r.now = r.now.Add(time.Second)
					var commands []*v1.Command
					for ; len(commands) < packed && done < b.N; done++ {
						p := &v1.Posting{Id: jobs.NewJobID().String(), Name: "job", Kind: "k", Board: "orders/eu"}
						commands = append(commands, by("ann", post(p)))
					}
					apply(b, r, commands)
				}
			})
		}
	}
}

func BenchmarkClaimNext(b *testing.B) {
	for _, waiting := range []int{1_000, 100_000} {
		b.Run(fmt.Sprint(waiting, " waiting"), func(b *testing.B) {
			r := newRig(b)
			for done := 0; done < waiting; done += 1000 {
				var postings []*v1.Posting
				for range 1000 {
					postings = append(postings, &v1.Posting{Id: jobs.NewJobID().String(), Name: "n", Kind: fmt.Sprint(done % 7)})
				}
				apply(b, r, []*v1.Command{post(postings...)})
			}
			apply(b, r, []*v1.Command{open("ann")})
			b.ResetTimer()
			for i := 0; i < b.N; i++ {
				granted := apply(b, r, []*v1.Command{claimNext("ann", fmt.Sprint(i), 1, nil, nil)})[0].GetClaim().Granted[0]
				// The jobs are released, so that the number of waiting jobs does not change.
				apply(b, r, []*v1.Command{abandon(&v1.Ending{Job: granted.Job, Token: granted.Token})})
			}
		})
	}
}

// BenchmarkDrainQueue repeatedly claims and consumes the first job of a queue: each claim skips the
// rows that were removed since the last flush.
func BenchmarkDrainQueue(b *testing.B) {
	r := newRig(b)
	for done := 0; done < b.N; {
		var postings []*v1.Posting
		for ; len(postings) < 1000 && done < b.N; done++ {
			postings = append(postings, &v1.Posting{Id: jobs.NewJobID().String(), Name: "n", Kind: "k"})
		}
		apply(b, r, []*v1.Command{post(postings...)})
	}
	apply(b, r, []*v1.Command{open("ann")})
	b.ResetTimer()
	for i := range b.N {
		granted := apply(b, r, []*v1.Command{claimNext("ann", fmt.Sprint(i), 1, nil, nil)})[0].GetClaim().Granted[0]
		apply(b, r, []*v1.Command{consume(&v1.Ending{Job: granted.Job, Token: granted.Token, Outcome: "success"})})
	}
}

// BenchmarkUpdate finishes one step and starts the next, in flows of several sizes: the cost
// must depend on the change, not on the flow.
func BenchmarkUpdate(b *testing.B) {
	for _, steps := range []int{10, 10_000} {
		b.Run(fmt.Sprint(steps, " steps"), func(b *testing.B) {
			r := newRig(b)
			apply(b, r, []*v1.Command{saveBook(book("b", "f"))})
			var atoms []*v1.AtomChange
			for i := range steps {
				atoms = append(atoms, task(fmt.Sprint(i), "running", executing(1)))
			}
			apply(b, r, []*v1.Command{updateFlow(update("f", logbook.Token{}, 1, "running", atoms...))})
			b.ResetTimer()
			for done := 0; done < b.N; {
				var commands []*v1.Command
				for ; len(commands) < packed && done < b.N; done++ {
					name := fmt.Sprint(done % steps)
					commands = append(commands, updateFlow(update("f", logbook.Token{}, uint64(done+2), "", task(name, ""))))
				}
				apply(b, r, commands)
			}
		})
	}
}

// BenchmarkLife posts a job, claims it, and consumes it, one command per entry, as in a
// cluster with a single client.
func BenchmarkLife(b *testing.B) {
	r := newRig(b)
	apply(b, r, []*v1.Command{open("ann")})
	b.ResetTimer()
	for i := range b.N {
		name := fmt.Sprint("job ", i)
		apply(b, r, []*v1.Command{post(posting(name, "k"))})
		granted := apply(b, r, []*v1.Command{claim("ann", id(name), name)})[0].GetClaim().Granted[0]
		apply(b, r, []*v1.Command{consume(success(name, command.TokenFromProto(granted.Token)))})
	}
}
