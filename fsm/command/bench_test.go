package command_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// benchEntries are entries as a busy leader makes them, each of one kind.
func benchEntries() map[string]*v1.Entry {
	var postings []*v1.Posting
	for range 100 {
		postings = append(postings, &v1.Posting{
			Id: jobs.NewJobID().String(), Name: "job", Board: "bench", Kind: "bench",
			Details: &v1.Value{Json: []byte(`"` + strings.Repeat("x", 510) + `"`)},
		})
	}
	var updates, claims, endings []*v1.Command
	token, now := &v1.Token{Generation: 1, Index: 1_000_000}, timestamppb.New(entryTime)
	for n := range 64 {
		flow := logbook.NewFlowID().String()
		update := &v1.Update{Flow: flow, Token: token, Sequence: 2, Atoms: []*v1.AtomChange{
			{Name: "first", Kind: "task", State: "success", Attempts: []*v1.Attempt{{
				Action: "execute", Number: 1, StartedAt: now, EndedAt: now, Result: &v1.Value{Json: []byte(`{"id":17}`)},
			}}},
			{Name: "second", Kind: "task", State: "running", Attempts: []*v1.Attempt{{Action: "execute", Number: 1, StartedAt: now}}},
		}}
		updates = append(updates, &v1.Command{Kind: &v1.Command_UpdateFlow{UpdateFlow: update}})
		claims = append(claims, &v1.Command{Kind: &v1.Command_ClaimNext{ClaimNext: &v1.ClaimNextCommand{
			Session: flow, Nonce: flow, Max: 1, Boards: []string{"bench"}, Kinds: []string{"bench", fmt.Sprint("kind ", n)},
		}}})
		endings = append(endings, &v1.Command{Kind: &v1.Command_Consume{Consume: &v1.Ending{
			Job: flow, Token: token, Outcome: "success", Update: update,
		}}})
	}
	return map[string]*v1.Entry{
		"100 postings": entryOf(postOf(postings...)), "64 updates": entryOf(updates...),
		"64 claims": entryOf(claims...), "64 endings with updates": entryOf(endings...),
	}
}

var benchKinds = []string{"100 postings", "64 updates", "64 claims", "64 endings with updates"}

func BenchmarkEntry(b *testing.B) {
	entries := benchEntries()
	for _, name := range benchKinds {
		entry := entries[name]
		data := encode(b, entry)
		b.Run("encode "+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := command.EncodeEntry(entry); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("decode "+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := command.DecodeEntry(data); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("check "+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				for _, c := range entry.Commands {
					if err := command.Check(logbook.MaxLimits, c); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// BenchmarkJob converts a job to the wire and back, and BenchmarkUpdate an update.
func BenchmarkJob(b *testing.B) {
	job, err := command.JobFromProto(&v1.Job{
		Id: jobs.NewJobID().String(), Board: "bench", Name: "job", Kind: "bench", State: string(jobs.StateClaimed),
		PostedAt: timestamppb.New(entryTime), ModifiedAt: timestamppb.New(entryTime),
	})
	if err != nil {
		b.Fatal(err)
	}
	benchConversion(b, &job, command.JobToProto, command.JobFromProto)
}

func BenchmarkUpdate(b *testing.B) {
	update, err := command.UpdateFromProto(benchEntries()["64 updates"].Commands[0].GetUpdateFlow())
	if err != nil {
		b.Fatal(err)
	}
	benchConversion(b, &update, command.UpdateToProto, command.UpdateFromProto)
}

func benchConversion[D any, M proto.Message](b *testing.B, value *D, to func(*D) M, from func(M) (D, error)) {
	message := to(value)
	b.Run("to its message", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			to(value)
		}
	})
	b.Run("from its message", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := from(message); err != nil {
				b.Fatal(err)
			}
		}
	})
}
