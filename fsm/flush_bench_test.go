package fsm_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/jobs"
)

// BenchmarkPostFlushed posts jobs of 512 bytes, including the cost of flushing the tables. An
// entry has two commands of a hundred postings, as many callers with such commands produce.
// Few events are kept, so that each new event drops an old one. The ids are in order, or
// random.
func BenchmarkPostFlushed(b *testing.B) {
	const postings, commands = 100, 2
	details := &v1.Value{Json: []byte(`"` + strings.Repeat("x", 510) + `"`)}
	for name, newID := range map[string]func() string{
		"ids in order": func() string { return jobs.NewJobID().String() },
		"random ids":   uuid.NewString,
	} {
		b.Run(name, func(b *testing.B) {
			r := newRigWith(b, fsm.Options{EventsKept: 5_000})
			for done := 0; done < b.N; {
				var posts []*v1.Command
				for range commands {
					var many []*v1.Posting
					for ; len(many) < postings && done < b.N; done++ {
						many = append(many, &v1.Posting{Id: newID(), Name: "job", Kind: "kind", Details: details})
					}
					posts = append(posts, post(many...))
				}
				apply(b, r, posts)
				r.changes = nil
			}
			b.ReportMetric(float64(fileSize(b, r))/float64(b.N), "file-B/op")
		})
	}
}
