package fsm_test

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/jobs"
)

// mixedKinds is the number of kinds of the jobs of a mixed board. Each tenth kind requires a label,
// one of ten.
const mixedKinds = 1_000

func mixedKind(n int) string  { return fmt.Sprintf("kind-%03d", n%mixedKinds) }
func mixedLabel(n int) string { return fmt.Sprintf("label-%d", n/10%10) }

// mixedBoard is a machine with a number of waiting jobs of all kinds and priorities.
func mixedBoard(b *testing.B, waiting int) *rig {
	b.Helper()
	r := newRigWith(b, fsm.Options{Generation: 1, EventsKept: 1_000}) // few, so that both boards drop an event for each new one
	r.ok(open("ann"))
	const parcel = 1_000
	for posted := 0; posted < waiting; posted += parcel {
		var postings []*v1.Posting
		for n := posted; n < posted+parcel; n++ {
			p := &v1.Posting{Id: jobs.NewJobID().String(), Name: "job", Kind: mixedKind(n), Priority: int32(n / mixedKinds % 5)}
			if n%10 == 0 {
				p.Labels = []string{mixedLabel(n)}
			}
			postings = append(postings, p)
		}
		for _, posted := range apply(b, r, []*v1.Command{post(postings...)})[0].GetPost().Posted {
			if posted.Error != nil {
				b.Fatal(posted.Error)
			}
		}
		r.changes = nil
	}
	return r
}

// claimPacked makes a number of requests for the next job in one entry, releases the jobs, and
// returns the time per request.
func claimPacked(b *testing.B, r *rig, request *v1.ClaimNextCommand, many int) time.Duration {
	b.Helper()
	var claims, abandons []*v1.Command
	for n := range many {
		claims = append(claims, &v1.Command{Kind: &v1.Command_ClaimNext{ClaimNext: &v1.ClaimNextCommand{
			Session: id("ann"), Nonce: id(fmt.Sprint("nonce ", r.index, n)), Max: 1, Kinds: request.Kinds, Labels: request.Labels,
		}}})
	}
	entry := r.entry(claims...)
	began := time.Now()
	results, err := r.Apply([]fsm.Entry{entry})
	took := time.Since(began)
	if err != nil {
		b.Fatal(err)
	}
	for _, result := range results[0] {
		if len(result.GetClaim().GetGranted()) != 1 {
			b.Fatalf("claimed %v", result)
		}
		granted := result.GetClaim().Granted[0]
		abandons = append(abandons, abandon(&v1.Ending{Job: granted.Job, Token: granted.Token}))
	}
	apply(b, r, abandons)
	r.changes = nil
	return took / time.Duration(many)
}

// BenchmarkClaimNextOfMany claims alternately from a board with a thousand waiting jobs of a
// thousand kinds, and from a board with a million. It reports both medians and their ratio;
// the goal for the ratio is 1.2. Posting the million takes about a minute.
func BenchmarkClaimNextOfMany(b *testing.B) {
	small := mixedBoard(b, 1_000)
	began, before := time.Now(), heap()
	large := mixedBoard(b, 1_000_000)
	fmt.Fprintf(os.Stderr, "a million postings took %s, a thousand to an entry; their state is a file of %d MiB, and %d MiB of heap\n",
		time.Since(began).Round(time.Millisecond), fileSize(b, large)>>20, int64(heap()-before)>>20)
	var plain, labelled, labels []string
	for n := range 10 {
		plain = append(plain, mixedKind(10*n+1))
		labelled = append(labelled, mixedKind(10*n))
		labels = append(labels, mixedLabel(10*n))
	}
	for _, row := range []struct {
		name    string
		request *v1.ClaimNextCommand
		packed  int
	}{
		{"ten kinds", &v1.ClaimNextCommand{Kinds: plain}, 1},
		{"ten kinds, packed", &v1.ClaimNextCommand{Kinds: plain}, 8},
		{"ten kinds that want labels", &v1.ClaimNextCommand{Kinds: labelled, Labels: labels}, 1},
		{"ten kinds that want labels, packed", &v1.ClaimNextCommand{Kinds: labelled, Labels: labels}, 8},
		{"any kind", &v1.ClaimNextCommand{}, 1},
		{"any kind, packed", &v1.ClaimNextCommand{}, 8},
		{"any kind and label", &v1.ClaimNextCommand{Labels: labels}, 1},
	} {
		b.Run(row.name, func(b *testing.B) {
			var few, many []time.Duration
			for range b.N {
				few = append(few, claimPacked(b, small, row.request, row.packed))
				many = append(many, claimPacked(b, large, row.request, row.packed))
			}
			slices.Sort(few)
			slices.Sort(many)
			fewTook, manyTook := few[len(few)/2], many[len(many)/2]
			b.ReportMetric(0, "ns/op") // over both boards and the releases
			b.ReportMetric(float64(fewTook.Nanoseconds()), "ns/claim-of-1000")
			b.ReportMetric(float64(manyTook.Nanoseconds()), "ns/claim-of-1000000")
			b.ReportMetric(float64(manyTook)/float64(fewTook), "ratio")
		})
	}
}

// heap is the live heap of the process.
func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

func fileSize(b *testing.B, r *rig) int64 {
	b.Helper()
	info, err := os.Stat(r.path)
	if err != nil {
		b.Fatal(err)
	}
	return info.Size()
}
